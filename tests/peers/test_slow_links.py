"""Models of 10 MB over links of 8 Mbit/s, in network namespaces: heartbeats come in time, and the end is in order."""

from __future__ import annotations

import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Fleet, read_event_log
from walktalk.runtimes.peers.node.checkpoints import Checkpoints
from walktalk.studies import make_spec
from walktalk.studies.peers import NodeJob, local_cluster
from walktalk.studies.planning import prepare
from walktalk.testing.chaos.cables import Cables, plugged_in
from walktalk.testing.chaos.disturbance import DisturbedJob, run_disturbed

pytestmark = [pytest.mark.network, pytest.mark.skipif(shutil.which("tc") is None, reason="needs the command `tc`")]

LANE = 29  # not one that chaos has at the same time
NODES, HEARTBEAT, LASTS = 3, 0.5, 75.0
LATEST = 4.0  # seconds; behind full buffers of 4 MB they came 8.6 and 30 s late


def wide() -> wt.Task:
    """A model of ten megabytes, which takes ten seconds over a link."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2500, 1000), nn.ReLU(), nn.Linear(1000, 2))
    data = [(torch.randn(64, 2500), torch.arange(64) % 2) for _ in range(NODES)]
    return wt.tasks.torch(module, functional.cross_entropy, data)


def test_heartbeats_do_not_wait_behind_models_and_the_run_ends_in_order(tmp_path: Path) -> None:
    """Nobody is taken for dead, and in the end all save and say goodbye, though what is on its way takes seconds."""
    spec = make_spec(
        {
            "network": {"topology": "complete", "nodes": NODES},
            "task": {"name": "tests.peers.test_slow_links:wide"},
            "optimizer": {"lr": 0.001},
            "algorithms": [{"name": "multi_walk", "walks": 3, "heartbeat": HEARTBEAT}],
            "stop": {"time": LASTS},
        }
    )
    run = prepare(spec, "cpu").runs[0]
    with Cables(NODES, LANE) as cables:
        for node in range(NODES):
            limit = "qdisc add dev eth0 root tbf rate 8mbit burst 16kb latency 50ms"
            subprocess.run(["ip", "netns", "exec", cables.namespace(node), "tc", *limit.split()], check=True)
        cluster = plugged_in(local_cluster(spec, run, tmp_path, pace=0.1), cables)
        cluster = cluster.model_copy(update={"lease": 10.0})  # the usual one
        jobs = [DisturbedJob(NodeJob(cluster, name), cables.namespace(node)) for node, name in enumerate(cluster.nodes)]
        fleet = Fleet(run_disturbed, jobs, list(cluster.nodes))
        try:
            end = time.monotonic() + LASTS + 90.0
            while any(process.is_alive() for process in fleet.processes) and time.monotonic() < end:
                time.sleep(0.5)
            assert [process.exitcode for process in fleet.processes] == [0] * NODES  # by themselves, the run is over
        finally:
            fleet.stop()
    event_logs = [read_event_log(tmp_path / name) for name in cluster.nodes]
    over = min(row.time for event_log in event_logs for row in event_log if row.event == "over")
    rows = [[row for row in event_log if row.time < over] for event_log in event_logs]
    came = [row for event_log in rows for row in event_log if row.event == "receive" and row.slot]
    assert len(came) >= 2 * NODES  # the links were busy: a model takes ten seconds
    assert max(gap for event_log in rows for gap in silences(event_log)) < LATEST
    alarms = {"suspected", "lost", "elected", "rerouted", "restarted"}
    assert not alarms & {row.event for event_log in rows for row in event_log}
    for name, event_log in zip(cluster.nodes, event_logs, strict=True):
        assert event_log[-1].event == "saved"
        kept = Checkpoints(tmp_path / name).load()
        assert kept is not None
        assert kept.over


def silences(event_log: list[TraceRow]) -> list[float]:
    """How long a node heard nothing of a neighbour, from its first word on."""
    heard: dict[int, list[float]] = {}
    for row in event_log:
        if row.event == "receive":
            heard.setdefault(row.peer, []).append(row.time)
    assert len(heard) == NODES - 1
    return [later - earlier for times in heard.values() for earlier, later in pairwise(times)]
