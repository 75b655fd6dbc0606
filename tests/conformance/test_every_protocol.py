"""What every protocol must do, in virtual time and on real nodes alike: one run of each, many questions to it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from walktalk import graphs
from walktalk.protocols import HEADER_BYTES, AsyncGossip, MultiWalk, Protocol, SyncGossip
from walktalk.records import RUN_COLUMNS, TRACE_COLUMNS, HistoryRow
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.studies.results import trace_columns
from walktalk.testing.chaos.verdict import copies_of_walks
from walktalk.testing.engines import ENGINES, EVERY, Outcome

ITERATIONS = 120
PROTOCOLS: tuple[Protocol, ...] = (
    MultiWalk(1, heartbeat=0.2),
    MultiWalk(3, heartbeat=0.2),
    MultiWalk(3, heartbeat=0.2, guard="decentralized"),
    MultiWalk(3, aggregator=2, heartbeat=0.2, guard="none"),
    AsyncGossip(),
    AsyncGossip("neighbourhood"),
    SyncGossip(),
)


@functools.cache
def outcome(engine: str, protocol: Protocol) -> Outcome:
    """One run; all checks look at the same one."""
    graph = graphs.erdos_renyi(5, p=0.6, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        return ENGINES[engine](protocol, graph, Stop(iterations=ITERATIONS), Path(folder))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS, ids=lambda p: p.label)
def run(request: pytest.FixtureRequest, engine: str) -> Outcome:
    return outcome(engine, request.param)


def test_iterations_are_counted_once_and_reach_the_end(run: Outcome) -> None:
    counted = [row.iteration for row in run.trace if row.event == "trained"]
    assert counted == list(range(1, len(counted) + 1))
    assert ITERATIONS <= len(counted) <= ITERATIONS + 5 * run.graph.nodes  # real nodes hear of the end a moment later


def test_a_training_starts_before_it_ends_and_a_node_does_one_at_a_time(run: Outcome) -> None:
    busy: dict[int, int] = {}
    for row in run.trace:
        if row.event == "train":
            assert row.node not in busy
            busy[row.node] = row.number
        elif row.event == "trained":
            assert busy.pop(row.node) == row.number


def test_there_are_r_walks_and_each_is_in_one_place(run: Outcome) -> None:
    if not isinstance(run.protocol, MultiWalk):
        pytest.skip("gossip has no walks")
    walks, copies = copies_of_walks(run.trace, 0.0, run.seconds)
    assert (walks, copies) == (run.protocol.walks, 0)
    members = {row.walk for row in run.trace if row.event == "record" and row.detail == "member"}
    assert members == set(range(1, run.protocol.walks + 1))


def test_models_stay_finite_and_the_loss_falls(run: Outcome) -> None:
    losses = [m.train_loss for m in run.measurements]
    assert np.isfinite(losses).all()
    assert np.isfinite(run.output).all()
    floor = 0.5 * losses[0]  # different nodes want different models: not all of the loss can go away
    assert min(losses) < max(floor, losses[0] - 1.0)  # not the last: one walk leans to where it has just been


def test_messages_go_to_neighbours_and_arrive_once(run: Outcome) -> None:
    sent = {row.number: row for row in run.trace if row.event == "send"}
    received = [row.number for row in run.trace if row.event == "receive"]
    assert len(set(received)) == len(received)
    assert set(received) <= set(sent)
    assert all(row.peer in run.graph.neighbours(row.node) for row in sent.values())


def test_bits_are_those_of_all_messages(run: Outcome) -> None:
    sends = [row for row in run.trace if row.event == "send"]
    for row in sends:
        assert row.bytes >= HEADER_BYTES + (run.model_bytes if row.slot else 0)
    last = run.measurements[-1].op
    models = sum(bool(row.slot) for row in sends)
    assert 0 <= models * run.model_bytes * 8 - last.model_bits <= 8 * run.model_bytes * 2 * run.graph.nodes
    assert 0 <= 8 * sum(row.bytes for row in sends) - last.bits <= 0.2 * last.bits + 8 * 1000


def test_no_update_is_counted_twice(run: Outcome) -> None:
    ledger = Ledger(run.protocol, run.graph.nodes, sum(row.event == "train" for row in run.trace)).play(run.trace)
    assert ledger.sound
    assert ledger.mixings + ledger.exchanges > 0 or isinstance(run.protocol, SyncGossip)


def test_the_trace_computes_the_same_model_again(run: Outcome) -> None:
    np.testing.assert_allclose(run.replayed, run.output, rtol=1e-4, atol=1e-4)


def test_records_have_the_same_columns(run: Outcome) -> None:
    assert {len(row) for row in run.trace} == {len(TRACE_COLUMNS)}
    table = trace_columns(run.trace)
    assert list(table) == list(TRACE_COLUMNS)
    m = run.measurements[-1]
    row = HistoryRow(
        run.protocol.label,
        0,
        m.op.iteration,
        m.op.time,
        int(m.op.bits),
        m.train_loss,
        m.test_accuracy,
        m.consensus,
        int(m.op.model_bits),
        m.mean_train_loss,
        m.mean_test_accuracy,
    )
    assert row._fields[: len(RUN_COLUMNS)] == RUN_COLUMNS
    assert [m.op.iteration for m in run.measurements][: ITERATIONS // EVERY] == list(range(0, ITERATIONS, EVERY))


def test_events_have_the_same_names(run: Outcome) -> None:
    both = {row.event for row in run.trace} & {row.event for row in outcome("sim", run.protocol).trace}
    assert {"train", "trained", "combine", "record", "send", "receive"} <= both


@pytest.mark.parametrize("protocol", [MultiWalk(2), AsyncGossip()], ids=lambda p: p.label)
@pytest.mark.parametrize("stop", [Stop(time=1.0), Stop(bits=200_000.0)], ids=["time", "bits"])
def test_a_run_ends_by_time_and_by_bits(engine: str, protocol: Protocol, stop: Stop, tmp_path: Path) -> None:
    run = ENGINES[engine](protocol, graphs.complete(3), stop, tmp_path)
    if stop.time is not None:
        assert 0.5 < run.seconds < stop.time + 30.0  # nothing else ends it; a busy machine hears of it late
    else:
        assert 8 * sum(row.bytes for row in run.trace if row.event == "send") >= 200_000
    assert np.isfinite(run.output).all()
