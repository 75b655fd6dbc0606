"""A real run's trace, done again by the stacked executor: the same models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from walktalk import graphs
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol, SyncGossip
from walktalk.records import TraceRow
from walktalk.runtimes.peers.operations.replaying import ReplayResult, ReplaySetup, merge, replay
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.testing.cluster import LocalCluster, running
from walktalk.testing.quadratic import MeasuringTrainer, QuadraticTrainer


def last_members(cluster: LocalCluster) -> dict[int, Tensor]:
    """Each walk's or node's model as it was recorded last, wherever that was."""
    rows = [row for row in cluster.trace() if row.event == "record" and row.detail == "member"]
    where = {row.walk: row.node for row in rows}
    return {key: cluster.nodes[node].models.interpreter.output.members[key] for key, node in where.items()}


@pytest.mark.parametrize("protocol", [MultiWalk(walks=3), AsyncGossip(), SyncGossip()], ids=lambda p: p.label)
@pytest.mark.parametrize("where", ["visit", "node", "walk"])
def test_replay_gives_the_models_of_the_real_run(protocol: Protocol, where: str, tmp_path: Path) -> None:
    with running(
        protocol, graphs.cycle(4), tmp_path, Stop(iterations=50), momentum=0.5, optimizer_state=where
    ) as cluster:
        cluster.wait()
    setup = ReplaySetup(4, cluster.trainer.initial(), Evaluate(every=10), where)  # type: ignore[arg-type]
    replayed = replay(cluster.trace(), setup, cluster.trainer)
    for key, model in last_members(cluster).items():
        np.testing.assert_allclose(replayed.members[key].numpy(), model.numpy(), rtol=1e-4, atol=1e-5)
    iterations = [m.op.iteration for m in replayed.measurements]
    assert iterations[:5] == [0, 10, 20, 30, 40]
    begun, *later = (m.mean_train_loss for m in replayed.measurements)  # a walk may not have come by the aggregator
    assert min(later) < begun


@pytest.mark.parametrize("protocol", [MultiWalk(walks=3), AsyncGossip(), SyncGossip()], ids=lambda p: p.label)
def test_statistics_are_mixed_alike_in_both_runtimes(protocol: Protocol, tmp_path: Path) -> None:
    trainer = MeasuringTrainer(4)
    with running(protocol, graphs.cycle(4), tmp_path, Stop(iterations=80), trainer=trainer) as cluster:
        cluster.wait()
    replayed = replay(cluster.trace(), ReplaySetup(4, trainer.initial(), Evaluate(every=10)), trainer)
    for key, model in last_members(cluster).items():
        np.testing.assert_allclose(replayed.members[key].numpy(), model.numpy(), rtol=1e-4, atol=1e-5)
    assert min(row[-1] for row in trainer.evaluated) > 0


def test_evaluations_by_the_clock_and_of_other_models(tmp_path: Path) -> None:
    with running(MultiWalk(walks=2), graphs.complete(3), tmp_path, Stop(iterations=100)) as cluster:
        cluster.wait()

    def done(evaluate: Evaluate) -> ReplayResult:
        return replay(cluster.trace(), ReplaySetup(3, cluster.trainer.initial(), evaluate), cluster.trainer)

    timed = done(Evaluate(every=None, seconds=0.1)).measurements
    assert [round(m.op.time, 6) for m in timed[1:4]] == [0.1, 0.2, 0.3]
    first, mean = done(Evaluate(model="node")), done(Evaluate(model="mean"))
    np.testing.assert_allclose(first.output.numpy(), first.members[1].numpy())
    np.testing.assert_allclose(mean.output.numpy(), (mean.members[1] + mean.members[2]).numpy() / 2, rtol=1e-5)


def test_a_message_is_never_received_before_it_is_sent_whatever_the_clocks_say() -> None:
    def row(time: float, node: int, event: str, peer: int, number: int) -> TraceRow:
        return TraceRow(time, node, event, "walk/1", peer, 1, -1, number, 0, 7)

    late = [row(9.0, 0, "send", 1, 1), row(9.5, 0, "receive", 1, 1)]
    early = [row(1.0, 1, "receive", 0, 1), row(1.1, 1, "send", 0, 1)]
    merged = merge([late, early])
    assert [(r[1], r[2]) for r in merged] == [(0, "send"), (1, "receive"), (1, "send"), (0, "receive")]
    assert [r[7] for r in merged] == [0, 0, 1, 1]
    torn = merge([[row(1.0, 1, "receive", 0, 1)]])  # the sender's event log is lost
    assert len(torn) == 1


def test_where_a_send_was_not_written_down_the_senders_last_model_is_taken() -> None:
    """Not node 0's, whose number is also that of "no walk"."""
    trainer = QuadraticTrainer(3)
    trace = [TraceRow(0.0, v, "combine", "model", detail={"initial": float(v + 1)}) for v in range(3)]
    trace += [TraceRow(0.1, v, "record", "model", walk=v, detail="member") for v in range(3)]
    trace += [TraceRow(0.2, 2, "receive", "offer/1", peer=1, walk=0, number=7)]
    trace += [TraceRow(0.3, 2, "combine", "model", detail={"offer/1": 1.0})]
    trace += [TraceRow(0.4, 2, "record", "model", walk=2, detail="member")]
    replayed = replay(trace, ReplaySetup(3, trainer.initial(), Evaluate()), trainer)
    assert replayed.gaps == 1
    np.testing.assert_allclose(replayed.members[2].numpy(), 2 * trainer.initial().numpy())
