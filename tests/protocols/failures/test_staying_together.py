"""What both halves of a split network learned is kept, one that wakes deposes nobody, and a stop is not a loss."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.runs import setup
from walktalk import graphs
from walktalk.protocols import MultiWalk, Outside, Received, Rejoined, Send, Started, TimerFired, Trained
from walktalk.protocols.multi_walk.election import NOBODY
from walktalk.protocols.multi_walk.farewell import remembered
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, Simulation, all_surroundings
from walktalk.seeds import Seed

SPLIT, HEALED, UNTIL = 60.0, 360.0, 500.0


def play(protocol: MultiWalk, graph, *faults: Fault, until: float, seed: int = 4, d: float = 0.3):
    plan, timing = FaultPlan(faults, Seed(seed)), PoissonTiming(d=d)
    run = setup(protocol.hardened(), graph, faults=plan, stop=Stop(time=until), timing=timing, seed=Seed(seed))
    simulation = Simulation(run)
    return simulation, simulation.advance().trace


@pytest.mark.parametrize("walks", [1, 3])
@pytest.mark.parametrize("side", [(0, 1, 2, 3), (4, 5, 6, 7)])
def test_what_both_halves_learned_is_in_the_model(side: tuple[int, ...], walks: int) -> None:
    """The old aggregator's half lost all of it: of 2,510 updates none had any weight."""
    split = Fault("partition", at=SPLIT, seconds=HEALED - SPLIT, nodes=side)
    for seed in range(3):
        protocol = MultiWalk(walks)
        _, trace = play(protocol, graphs.complete(8), split, until=UNTIL, seed=seed)
        inherited = [row for row in trace if row.event == "inherited"]
        assert inherited
        done = inherited[-1].time
        ledger = Ledger(protocol, 8, sum(row.event == "train" for row in trace))
        ledger.play(row for row in trace if row.time <= done)
        assert ledger.sound
        aggregate = ledger.interpreter.aggregate
        for half in (set(side), set(range(8)) - set(side)):
            learned = [
                row.number for row in trace if row.event == "trained" and SPLIT < row.time < HEALED and row.node in half
            ]
            assert len(learned) > 200
            assert np.mean(aggregate[learned] > 0) >= 0.9
        whole = Ledger(protocol, 8, sum(row.event == "train" for row in trace)).play(trace)
        assert whole.sound


def test_after_a_split_the_walks_are_r_again_and_one_aggregates() -> None:
    split = Fault("partition", at=SPLIT, seconds=HEALED - SPLIT, nodes=(0, 1, 2, 3))
    simulation, trace = play(MultiWalk(3), graphs.complete(8), split, until=UNTIL)
    assert sum(machine.members.leads for machine in simulation.machines) == 1
    late = {row.walk for row in trace if row.event == "trained" and row.time > UNTIL - 60}
    assert late == {1, 2, 3}


@pytest.mark.parametrize("node", [3, 5])
def test_a_bystander_that_wakes_deposes_nobody(node: int) -> None:
    for seed in range(3):
        hang = Fault("pause", at=40.0, node=node, seconds=30.0)
        _, trace = play(MultiWalk(2), graphs.complete(6), hang, until=150.0, seed=seed)
        assert [row for row in trace if row.event == "resume"]
        assert not [row for row in trace if row.event in ("elected", "stepped_down")]


def test_an_aggregator_that_is_dead_is_replaced_all_the_same() -> None:
    for seed in range(3):
        _, trace = play(MultiWalk(2), graphs.cycle(6), Fault("kill", at=40.0, node=0), until=80.0, seed=seed)
        elected = [row.time for row in trace if row.event == "elected"]
        assert elected
        assert elected[0] < 40.0 + 15.0


# -- a planned stop ------------------------------------------------------------------------------------------------


def machines(protocol: MultiWalk, nodes: int):
    return [protocol.hardened().machine(around) for around in all_surroundings(graphs.complete(nodes))]


def test_an_aggregator_that_left_in_order_goes_on_with_its_reign_and_its_walks() -> None:
    protocol, outside = MultiWalk(2), Outside(0.0, random.Random(0))
    before, after = machines(protocol, 3)[0], machines(protocol, 3)[0]
    before.handle(Started(), outside)
    before.handle(TimerFired("beat"), outside)
    past = remembered(before.farewell())
    assert [what.walk for what in past.here] == [1]
    outside.now = 5.0
    effects = after.handle(Rejoined(before.farewell()), outside)
    assert after.members.leads
    assert after.reign.tickets == before.reign.tickets
    assert after.copies.here == before.copies.here
    assert [effect.slot for effect in effects if type(effect).__name__ == "Train"] == ["walk/1"]
    assert not after.members.sightings.unseen(2, after.members.beat, awaited=True)
    dead = machines(protocol, 3)[0]
    dead.handle(Rejoined(before.keepsake()), outside)  # one that died has an older checkpoint: its walk is elsewhere
    assert not dead.copies.here
    assert dead.members.claim == NOBODY


def test_a_walk_that_nobody_took_any_more_goes_on_its_way_after_the_stop() -> None:
    protocol = MultiWalk(1, aggregator=1)
    before, after = machines(protocol, 2)[0], machines(protocol, 2)[0]
    for seed in range(20):  # until the dice send it on
        before = machines(protocol, 2)[0]
        outside = Outside(0.0, random.Random(seed))
        before.handle(Started(), outside)
        before.handle(Trained("walk/1", 1), outside)
        if before.hops.leaving:
            break
    assert before.hops.leaving
    effects = after.handle(Rejoined(before.farewell()), Outside(9.0, random.Random(1)))
    held = after.hops.what(1) or after.copies.here.get(1)
    assert held is not None
    assert held.ticket == before.hops.what(1).ticket
    assert any(isinstance(effect, Send) or type(effect).__name__ == "Train" for effect in effects)


def test_who_comes_back_to_a_new_aggregator_judges_none_of_its_walks() -> None:
    protocol, outside = MultiWalk(2), Outside(0.0, random.Random(0))
    before, after = machines(protocol, 3)[0], machines(protocol, 3)[0]
    before.handle(Started(), outside)
    after.handle(Rejoined(before.farewell()), outside)
    newer = before.copies.here[1]._replace(walk=2, reign=(2, 1), ticket=7, hop=1)
    after.handle(Received(1, newer.message("walk"), "in/2"), outside)
    effects = after.handle(Trained("walk/2", 2), outside)
    assert not [effect for effect in effects if getattr(effect, "event", "") == "retired"]
