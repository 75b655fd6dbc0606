"""What every protocol must do, on any graph and under any timing: the suite that a new protocol has to pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import ALL_PROTOCOLS, TIMINGS, Played, setup, some_graphs, some_protocols, some_timings
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import HEADER_BYTES
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Simulation

every_protocol = pytest.mark.parametrize("protocol", ALL_PROTOCOLS, ids=lambda p: p.label)
both_timings = pytest.mark.parametrize("timing", TIMINGS, ids=["poisson", "network"])


@every_protocol
@both_timings
def test_executor_agrees_with_an_independent_replay(protocol, timing):
    played = Played(setup(protocol, graphs.erdos_renyi(8, p=0.4, seed=3), timing=timing, stop=Stop(iterations=200)))
    replay = played.replay().play(played.trace)
    np.testing.assert_allclose(played.output, replay.output(), rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_executor_agrees_with_the_replay_anywhere(data):
    graph = data.draw(some_graphs)
    protocol = data.draw(some_protocols(graph.nodes))
    run = setup(protocol, graph, timing=data.draw(some_timings), seed=Seed(data.draw(st.integers(0, 1000))))
    played = Played(run, stretches=data.draw(st.integers(1, 5)))
    replay = played.replay().play(played.trace)
    scale = np.abs(played.trainer.centres).max()
    np.testing.assert_allclose(played.output, replay.output(), rtol=1e-5, atol=1e-5 * scale)


@every_protocol
@both_timings
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(protocol, timing):
    def trace(seed: int) -> list[tuple]:
        return Simulation(setup(protocol, graphs.cycle(6), timing=timing, seed=Seed(seed))).advance().trace

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


@every_protocol
@both_timings
def test_iterations_are_counted_one_by_one_to_the_end(protocol, timing):
    simulation = Simulation(setup(protocol, graphs.complete(5), timing=timing, stop=Stop(iterations=77)))
    trace = simulation.advance().trace
    assert [row.iteration for row in trace if row.event == "trained"] == list(range(1, 78))
    assert simulation.finished


@every_protocol
@both_timings
def test_every_message_goes_to_a_neighbour_and_is_received_once(protocol, timing):
    graph = graphs.erdos_renyi(7, p=0.5, seed=1)
    trace = Simulation(setup(protocol, graph, timing=timing)).advance().trace
    sent = {row.number: row for row in trace if row.event == "send"}
    received = [row.number for row in trace if row.event == "receive"]
    assert len(set(received)) == len(received)
    assert set(received) <= set(sent)
    assert all(row.peer in graph.neighbours(row.node) for row in sent.values())


@every_protocol
@both_timings
def test_bits_are_eight_times_the_bytes_of_all_messages(protocol, timing):
    graph = graphs.cycle(6)
    simulation = Simulation(setup(protocol, graph, timing=timing, model_bytes=1000))
    chunk = simulation.advance()
    sends = [row for row in chunk.trace if row.event == "send"]
    mixes = sum(row.event == "mix_everyone" for row in chunk.trace)
    assert all(row.bytes == HEADER_BYTES + 1000 for row in sends)  # every message of these protocols carries a model
    assert simulation.bytes == sum(row.bytes for row in sends) + mixes * 2 * graph.edges * (HEADER_BYTES + 1000)
    assert simulation.interpreter.traffic.payload_bytes == 1000 * (len(sends) + mixes * 2 * graph.edges)


@every_protocol
def test_a_node_trains_one_model_at_a_time_and_first_come_first_served(protocol):
    trace = Simulation(setup(protocol, graphs.star(6), timing=TIMINGS[1], stop=Stop(iterations=200))).advance().trace
    busy: set[int] = set()
    waiting: dict[int, list[int]] = {}
    for row in trace:
        node, event, walk = row.node, row.event, row.walk
        if event == "receive" and protocol.name == "multi_walk":
            waiting.setdefault(node, []).append(walk)
        if event == "train":
            assert node not in busy
            busy.add(node)
            if waiting.get(node) and walk in waiting[node]:
                assert waiting[node].pop(0) == walk
        if event == "trained":
            busy.discard(node)
    assert sum(row.event == "train" for row in trace) >= 200


@every_protocol
def test_a_single_node_works(protocol):
    if protocol.label == "multi_walk-3":
        return
    played = Played(setup(protocol, graphs.complete(1), stop=Stop(iterations=30)))
    centre = played.trainer.centres[0]
    assert np.linalg.norm(played.output - centre) < np.linalg.norm(played.trainer.initial().numpy() - centre)
    assert played.engine.simulations[0].bytes == 0


@every_protocol
@both_timings
def test_an_early_stop_by_time_or_bits_is_kept(protocol, timing):
    graph = graphs.cycle(5)
    by_time = Simulation(setup(protocol, graph, timing=timing, stop=Stop(time=25.0)))
    by_time.advance()
    assert by_time.finished
    assert by_time.agenda.now <= 25.0
    if protocol.label != "centralized":
        by_bits = Simulation(setup(protocol, graph, timing=timing, stop=Stop(bits=20000.0), model_bytes=100))
        by_bits.advance()
        assert by_bits.finished
        assert by_bits.bytes * 8 >= 20000.0
