"""Multi-Walk under random faults: nobody is counted twice, all agree on one aggregator, and R walks are left."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import (
    CALM,
    STORM,
    Scene,
    copies,
    looks,
    scenes,
    simulate,
    some_graphs,
    some_timings,
    storms,
)
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import MultiWalk
from walktalk.protocols.mechanisms.tokens.guards import Guard, ReturnTimes
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, PoissonTiming

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)  # a failure is small enough as it is drawn
ALL = ("kill", "pause", "partition", "slow", "lose")


@settings(max_examples=12, deadline=None, phases=QUICKLY)
@given(st.data())
def test_while_nothing_fails_the_models_are_those_of_algorithm_1(data):
    graph = data.draw(some_graphs)
    walks = data.draw(st.integers(1, graph.nodes))
    aggregator, seed = data.draw(st.integers(0, graph.nodes - 1)), Seed(data.draw(st.integers(0, 999)))
    timing = PoissonTiming(d=data.draw(st.floats(0.3, 2.0)))

    def outcome(**kind) -> tuple[np.ndarray, list, float]:
        run = setup(
            MultiWalk(walks, aggregator=aggregator, **kind), graph, timing=timing, seed=seed, stop=Stop(iterations=150)
        )
        played = Played(run)
        return played.output, [m.train_loss for m in played.measurements], played.engine.simulations[0].agenda.now

    plain, hard = outcome(), outcome(resilient=True)
    np.testing.assert_array_equal(plain[0], hard[0])
    assert plain[1:] == hard[1:]


HUNG_THEN_SPLIT = Scene(  # elected after the last failure that it heard of, it thought that no walk could be lost
    graphs.cycle(8),
    MultiWalk(3),
    (
        Fault("pause", at=19.028151185719366, seconds=28.48762232905221, node="aggregator"),
        Fault("partition", at=44.72946050926559, seconds=58.32498028197597, nodes=(5, 0, 4, 3, 7, 2, 1)),
        Fault("kill", at=52.52605893763455, seconds=5.663365048399951, node="aggregator"),
    ),
    PoissonTiming(d=1.8795254090303986),
    75,
)


@settings(max_examples=12, deadline=None, phases=QUICKLY)
@given(scenes(ALL))
@example(HUNG_THEN_SPLIT)
def test_after_the_storm_there_are_r_walks_and_one_aggregator(scene):
    """A guard that never gave up a living walk would never give up a dead one: where one has just been started again
    although the old one lives, there are two of it until they meet. So there are three looks, and one has to be good.
    """
    graph, protocol, faults, timing, seed = scene
    found = []
    for simulation, trace in looks(protocol, graph, faults, timing, seed, (2 * STORM + CALM, 750.0, 900.0)):
        claims = {machine.members.claim for machine in simulation.machines}
        assert len(claims) == 1
        assert [v for v, machine in enumerate(simulation.machines) if machine.members.leads] == [claims.pop().node]
        if protocol.guard != "aggregator":
            return
        assert [row for row in trace if row.event == "record" and row.detail == "aggregate" and row.time > 2 * STORM]
        found.append({walk: len(places) for walk, places in copies(simulation).items()})
        if found[-1] == dict.fromkeys(range(1, protocol.walks + 1), 1):
            return
    raise AssertionError(f"walks and their copies, at three moments: {found}")


@settings(max_examples=12, deadline=None, phases=QUICKLY)
@given(st.data())
def test_no_update_is_ever_counted_twice(data):
    graph = data.draw(some_graphs)
    walks = data.draw(st.integers(1, min(4, graph.nodes)))
    faults = data.draw(storms(graph, ALL))
    _, trace = simulate(
        MultiWalk(walks), graph, faults, data.draw(some_timings), data.draw(st.integers(0, 999)), until=150.0
    )
    law = OnceAndOnlyOnce(walks)
    Symbols(graph.nodes).play(trace, law.watch)
    assert law.checked


class OnceAndOnlyOnce:
    """In the first term an update is in the aggregate with weight 1/R or not at all; never with more than 1 anywhere.

    That is, until a second copy of a walk, which went to two nodes, is averaged in beside the first. A later term
    starts from one walk's model, which holds its own latest updates whole; as the others are mixed in, each goes down
    to its share.
    """

    def __init__(self, walks: int) -> None:
        self.share = 1 / walks
        self.checked = 0
        self.averaged = False  # whether a second copy was

    def watch(self, state: Symbols, event: tuple) -> None:
        self.averaged |= event.event == "readmitted"
        if event.event != "record" or event.detail != "aggregate":
            return
        model, term = state.slots[event.node][event.slot], event.walk
        self.checked += 1
        weights = {number: weight for number, weight in model.items() if number >= 0}
        assert abs(model[-1] - 1) < 1e-9
        assert all(-1e-9 <= weight <= 1 + 1e-9 for weight in weights.values())
        if term <= 1 and not self.averaged:
            assert all(abs(weight - self.share) < 1e-9 for weight in weights.values())


@pytest.mark.parametrize("graph", [graphs.cycle(8), graphs.complete(8), graphs.star(8)], ids=lambda g: g.name)
def test_the_best_node_is_elected_and_goes_on_from_the_first_walk_that_comes(graph):
    faults = (Fault("kill", at=50.0, node="aggregator"),)
    _, trace = simulate(MultiWalk(3), graph, faults, PoissonTiming(), 1, 400)
    elected = [row for row in trace if row.event == "elected"]
    living = [v for v in range(graph.nodes) if v != 0]
    degree = {v: sum(u != 0 for u in graph.neighbours(v)) for v in living}
    if graph.name.startswith("star"):  # everybody is alone now: nobody elects itself, and walks train where they are
        assert elected == []
        assert [row for row in trace if row.event == "trained" and row.time > 350]
        return
    assert len(elected) == 1
    assert elected[0][1] == max(living, key=lambda v: (degree[v], -v))
    after = [row for row in trace if row.time > 50 and row.event == "record" and row.detail == "aggregate"]
    symbols = Symbols(graph.nodes)
    first = []

    def watch(state: Symbols, event: tuple) -> None:
        if event is after[0]:
            walk = int(event.slot.rpartition("/")[2])
            first.append((state.slots[event.node][event.slot], state.slots[event.node][f"walk/{walk}"]))

    symbols.play(trace, watch)
    assert first[0][0] == first[0][1]


def test_an_old_aggregator_that_comes_back_steps_down():
    faults = (Fault("pause", at=50.0, node="aggregator", seconds=40.0),)
    _, trace = simulate(MultiWalk(3), graphs.complete(6), faults, PoissonTiming(), 2, 400)
    assert [row.node for row in trace if row.event == "elected"] == [1]
    assert [(row.node, round(row.time)) for row in trace if row.event == "stepped_down"] == [(0, 90)]
    mixers = {row.node for row in trace if row.event == "record" and row.detail == "aggregate" and row.time > 91}
    assert mixers == {1}


def test_both_halves_of_a_split_network_elect_and_the_higher_term_wins():
    graph = graphs.cycle(8)
    faults = (Fault("partition", at=50.0, nodes=(0, 1, 2, 3), seconds=200.0),)
    simulation, trace = simulate(MultiWalk(3), graph, faults, PoissonTiming(0.5), 3, 1500)
    during = {row.node for row in trace if row.event == "record" and row.detail == "aggregate" and 150 < row.time < 250}
    after = {row.node for row in trace if row.event == "record" and row.detail == "aggregate" and row.time > 300}
    assert 0 in during
    assert len(during) == 2
    assert len(after) == 1
    assert after == {v for v, machine in enumerate(simulation.machines) if machine.members.leads}
    assert {walk: len(p) for walk, p in copies(simulation).items()} == {1: 1, 2: 1, 3: 1}


def test_a_slow_aggregator_is_not_declared_dead_and_a_hung_one_is():
    slow = (Fault("slow", at=20.0, node=0, factor=20.0),)
    _, trace = simulate(MultiWalk(3), graphs.complete(6), slow, PoissonTiming(), 2, 400)
    assert not [row for row in trace if row.event in ("suspected", "elected")]
    hung = (Fault("pause", at=20.0, node=0, seconds=300.0),)
    _, trace = simulate(MultiWalk(3), graphs.complete(6), hung, PoissonTiming(), 2, 400)
    assert [row for row in trace if row.event == "elected"]


def test_a_walk_whose_next_node_is_dead_goes_elsewhere_and_is_not_lost():
    graph = graphs.complete(6)
    faults = tuple(Fault("partition", at=t, nodes=(5,), seconds=15.0) for t in (20.0, 60.0, 100.0))
    _, trace = simulate(MultiWalk(2, guard="none"), graph, faults, PoissonTiming(), 5, 600)
    assert [row for row in trace if row.event == "rerouted"]
    trained = {row.walk for row in trace if row.event == "trained" and row.time > 500}
    assert trained == {1, 2}


@pytest.mark.parametrize("seed", range(3))
def test_an_aggregator_beats_on_however_often_something_goes_wrong_elsewhere(seed):
    """Incidents that come faster than heartbeats made it begin its interval anew each time, until it was suspected."""
    incidents = tuple(Fault("kill", node=node, rate=1.5, seconds=0.2) for node in (5, 7))
    _, trace = simulate(MultiWalk(3), graphs.complete(9), incidents, PoissonTiming(), seed, until=100.0)
    assert [row for row in trace if row.event in ("suspected", "elected")] == []
    kills = [row for row in trace if row.event == "kill"]
    assert len(kills) > 150  # they did go wrong


def test_times_out_count_though_they_have_not_ended():
    """Those who are back are the quick ones: with ten short returns and ninety walks out, the tail is not short."""
    times = ReturnTimes(assumed=1.0, seen=deque([1.0] * 10))
    guard = Guard(times, away=dict.fromkeys(range(1, 91), 0.0))
    assert times.limit(0.01) < 8.0
    assert guard.overdue(8.0, lambda walk, left: 0.01) == []
    # One of many that is really lost is still noticed, a little later.
    times.seen = deque([1.0] * 200)
    late = Guard(times, away={1: 0.0} | dict.fromkeys(range(2, 10), 11.5))
    assert late.overdue(12.0, lambda walk, left: 0.01) == [1]
