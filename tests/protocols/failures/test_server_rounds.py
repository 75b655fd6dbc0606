"""Rounds with a server where messages and nodes are lost: a round is made of those whose results are there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_timings, storms
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols
from tests.support.unlike import IN_STEP
from walktalk import graphs
from walktalk.protocols import DiLoCo, FedAvg, FedProx, Protocol, Scaffold, StreamingDiLoCo
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, PoissonTiming, Timing

STAR = graphs.star(5)
WHOLE = (FedAvg(), FedProx(), Scaffold(), DiLoCo())  # models or changes are sent as a whole
STREAMS = (StreamingDiLoCo(), StreamingDiLoCo(fragments=3, delay=2), StreamingDiLoCo(fragments=1, delay=0))
ALL = pytest.mark.parametrize("protocol", [*WHOLE, *STREAMS], ids=lambda p: p.label)
# A node that dies while it waits for the server, and is back before that has done anything.
BACK_BEFORE_THE_SERVER = (Fault("pause", at=10.2, node=0, seconds=20.0), Fault("kill", at=14.2, node=1, seconds=3.0))


@ALL
def test_while_nothing_fails_the_models_are_those_of_the_plain_form(protocol: Protocol) -> None:
    forms = (type(protocol)(**{**protocol.settings, "resilient": form, "patience": 1e3}) for form in (False, True))
    runs = [Played(setup(form, STAR, timing=PoissonTiming(), stop=Stop(iterations=60))) for form in forms]
    np.testing.assert_array_equal(runs[0].output, runs[1].output)
    assert runs[0].engine.simulations[0].bytes == runs[1].engine.simulations[0].bytes


@pytest.mark.parametrize("protocol", WHOLE, ids=lambda p: p.label)
def test_whatever_is_lost_weights_sum_to_one_and_nobody_waits(protocol: Protocol) -> None:
    _, trace = simulate(protocol, STAR, (Fault("lose", at=0.0, share=0.2),), IN_STEP, seed=1, until=40.5)
    assert not any(row.event == "left_out" for row in trace)
    assert sum(row.event == "trained" and row.node == 0 for row in trace) == 40
    assert Symbols(5).play(trace).aggregate[1][-1] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_round_is_the_mean_of_those_that_are_there(weighted: bool) -> None:
    faults = (Fault("kill", at=10.2, node=3, seconds=10.0),)
    _, trace = simulate(FedAvg(weighted=weighted), STAR, faults, IN_STEP, seed=1, until=40.5)
    mixes = [row for row in trace if row.event == "combine" and row.node == 0 and row.slot == "model"][1:]
    assert {4, 5} <= {len([slot for slot in row.detail if slot.startswith("change")]) for row in mixes}
    for row in mixes:
        changes = {slot: weight for slot, weight in row.detail.items() if slot.startswith("change")}
        assert sum(changes.values()) == pytest.approx(1.0)
        there = 4 if 10.2 < row.time < 20.1 else 5
        assert len(changes) == there or 20.1 < row.time < 22.0  # who comes back takes part from the next round on


@pytest.mark.parametrize("protocol", STREAMS, ids=lambda p: p.label)
def test_a_fragment_is_the_mean_of_changes_from_the_same_start(protocol: StreamingDiLoCo) -> None:
    """Who did not get the server's fragment shows nothing of it before it has the next one; nobody waits."""
    _, trace = simulate(protocol, STAR, (Fault("lose", at=0.0, share=0.2),), IN_STEP, seed=1, until=40.5)
    assert sum(row.event == "trained" and row.node == 0 for row in trace) == 40
    assert not any(row.event == "left_out" for row in trace)
    for row in trace:
        if row.event == "combine" and row.node == 0 and row.slot == "mean":
            assert sum(row.detail.values()) == pytest.approx(1.0)
    came = [(row.node, row.slot.split("/")) for row in trace if row.event == "receive" and "/" in row.slot]
    got = {(node, int(training)) for node, (_, training, _) in came if node}
    ups = [(int(peer), int(training)) for node, (_, training, peer) in came if not node]
    assert 60 < len(ups) < 160  # of four nodes; a fifth of both ways is lost
    for peer, training in ups:
        assert training < protocol.fragments or (peer, training - protocol.fragments) in got


@ALL
def test_the_server_comes_back_and_begins_anew(protocol: Protocol) -> None:
    faults = (Fault("kill", at=10.2, node=0, seconds=10.0), Fault("pause", at=30.0, node=2, seconds=20.0))
    _, trace = simulate(protocol, STAR, faults, PoissonTiming(), seed=1, until=200.0)
    for node in range(5):
        trained = [row.time for row in trace if row.event == "trained" and row.node == node]
        assert not [time for time in trained if 13.0 < time < 20.2 and node == 0]
        assert max(trained) > 180.0


@settings(max_examples=4, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    st.sampled_from([FedAvg(), Scaffold(), *STREAMS]),
    storms(STAR, ("kill", "pause", "partition", "lose", "slow")),
    some_timings,
    st.integers(0, 999),
)
@example(STREAMS[0], BACK_BEFORE_THE_SERVER, IN_STEP, 0)
@example(STREAMS[2], BACK_BEFORE_THE_SERVER, IN_STEP, 0)
def test_rounds_never_stop(protocol: Protocol, faults: tuple[Fault, ...], timing: Timing, seed: int) -> None:
    _, trace = simulate(protocol, STAR, faults, timing, seed, until=400.0)
    late = {row.node for row in trace if row.event == "trained" and row.time > 300.0}
    assert late == set(range(5))
