"""Teleportation where messages and nodes are lost: weights sum to one, models that are gone are made again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_timings, storms
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols
from tests.support.unlike import IN_STEP, run
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import Protocol, Teleportation, compressed
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)
EVERYONE = graphs.complete(7)
FORMS = [Teleportation(), Teleportation(3, "complete"), Teleportation(4, "one_peer_exponential")]
every_form = pytest.mark.parametrize("protocol", FORMS, ids=lambda one: one.label)


def losing(share: float) -> tuple[Fault, ...]:
    return (Fault("lose", at=0.0, share=share),)


@every_form
def test_while_nothing_fails_the_models_are_those_of_the_plain_form(protocol: Teleportation) -> None:
    plain, resilient = (
        Teleportation(**{**protocol.settings, "resilient": form, "patience": 1e3}) for form in (False, True)
    )
    runs = [
        Played(setup(p, EVERYONE, timing=PoissonTiming(), stop=Stop(iterations=80), seed=Seed(3)))
        for p in (plain, resilient)
    ]
    np.testing.assert_array_equal(runs[0].output, runs[1].output)
    assert runs[0].engine.simulations[0].bytes == runs[1].engine.simulations[0].bytes


@pytest.mark.parametrize(
    ("protocol", "share"), [*zip([*FORMS, Teleportation(1)], (0.3, 0.3, 0.1, 0.3), strict=True)], ids=str
)
def test_whatever_is_lost_weights_sum_to_one_and_nobody_waits(protocol: Teleportation, share: float) -> None:
    """A turn for which nothing has come is taken with the last model: nobody waits for what was never sent."""
    simulation, trace = simulate(protocol, EVERYONE, losing(share), IN_STEP, seed=1, until=60.5)
    assert sum(row.event == "lost" for row in trace) > 0.6 * share * sum(row.event == "send" for row in trace)
    skipped = [row for row in trace if row.event == "left_out"]
    assert all(row.node == row.peer for row in skipped)  # nobody was too late
    assert simulation.iteration == 60 * protocol.active - len(skipped)
    symbols = Symbols(EVERYONE.nodes).play(trace)
    assert sorted(symbols.members) == list(range(protocol.active))
    for model in symbols.members.values():
        assert model[-1] == pytest.approx(1.0, abs=1e-9)  # the initial model, that all began with


def test_losses_leave_it_where_it_is_without_them() -> None:
    """Beside the optimum of unlike nodes, by no more than the draws do."""
    far = [
        np.abs(ended.members - ended.trainer.optimum()).mean()
        for ended in (
            run(Teleportation(), EVERYONE, 300, faults=FaultPlan(faults, Seed(1))) for faults in ((), losing(0.3))
        )
    ]
    assert far[1] < 1.5 * far[0]


@every_form
def test_the_dead_are_left_out_and_taken_in_again(protocol: Teleportation) -> None:
    faults = (Fault("kill", at=20.0, node=1, seconds=40.0), Fault("pause", at=30.0, node=2, seconds=20.0))
    _, trace = simulate(protocol, EVERYONE, faults, PoissonTiming(), 1, 400.0)
    trained = [(row.time, row.node) for row in trace if row.event == "trained"]
    assert len({node for time, node in trained if 40.0 < time < 60.0}) >= 4
    assert not any(row.event == "send" and row.peer == 1 and 21.0 < row.time < 59.0 for row in trace)
    assert {node for time, node in trained if time > 300.0} == set(range(7))
    recorded = {row.walk for row in trace if row.event == "record" and row.time > 300.0}
    assert recorded == set(range(protocol.active))  # all models are there again


def test_who_comes_back_goes_where_the_models_are_at_once() -> None:
    """However patient it is: they are further than they can be from one that takes part."""
    faults = (Fault("kill", at=5.5, node=1, seconds=30.0),)
    _, trace = simulate(Teleportation(patience=1e3), EVERYONE, faults, IN_STEP, 1, 60.0)
    assert any(row.event == "trained" and row.node == 1 and row.time < 45.0 for row in trace if row.time > 36.0)


def test_when_all_models_are_lost_the_last_of_one_node_goes_on() -> None:
    """Of three models on three of seven nodes, all dead at once, and back when others go on with their copies."""
    protocol = Teleportation(3, patience=1.0)
    _, before = simulate(protocol, EVERYONE, (), IN_STEP, 1, 9.5)
    holders = {row.node for row in before if row.event == "train" and row.time > 8.5}
    assert len(holders) == 3
    faults = tuple(Fault("kill", at=9.4, node=node, seconds=100.0) for node in holders)
    _, trace = simulate(protocol, EVERYONE, faults, IN_STEP, 1, 200.0)
    (first, *_) = [row.time for row in trace if row.event == "begins_again"]
    assert not [row for row in trace if row.event == "send" and 20.0 < row.time < first]  # nor is anything said
    late = [row for row in trace if row.event == "trained" and row.time > 150.0]
    assert {row.node for row in late} == set(range(7))
    assert len(late) == pytest.approx(3 * 50, rel=0.05)  # and there are three again, in one and the same round
    model = Symbols(7).play(trace).members[0]
    assert sum(weight for number, weight in model.items() if 0 <= number < 20) > 0.5  # what was learned before is there


@settings(max_examples=3, deadline=None, phases=QUICKLY)
@given(st.data())
def test_rounds_never_stop(data: st.DataObject) -> None:
    protocol: Protocol = data.draw(
        st.sampled_from([*FORMS, Teleportation(1), compressed(Teleportation(), "int8", True)])
    )
    faults = data.draw(storms(EVERYONE, ("kill", "pause", "partition", "lose", "slow")))
    seed, timing = data.draw(st.integers(0, 999)), data.draw(some_timings)
    _, trace = simulate(protocol, EVERYONE, faults, timing, seed, until=1000.0)
    late = {row.node for row in trace if row.event == "trained" and row.time > 800.0}
    assert late == set(range(EVERYONE.nodes))
