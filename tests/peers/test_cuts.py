"""A pulled cable, in network namespaces: whoever is not cut off does not notice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers import Fleet, merge, read_event_log
from walktalk.studies import make_spec
from walktalk.studies.peers import NodeJob, local_cluster
from walktalk.studies.planning import prepare
from walktalk.testing.chaos.cables import Cables, plugged_in
from walktalk.testing.chaos.disturbance import DisturbedJob, run_disturbed

HEARTBEAT, WARMUP, CUT = 0.5, 8.0, 16.0


def test_zenoh_has_threads_enough_before_it_starts() -> None:
    """Of its few receiving threads one lingers where a connection is cut, and others waited for it."""
    script = "import walktalk.runtimes.peers.wire.link, os; print(os.environ['ZENOH_RUNTIME'])"
    environment = {key: value for key, value in os.environ.items() if key != "ZENOH_RUNTIME"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert "rx: (worker_threads: 8)" in done.stdout


def test_real_cuts_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="needs root"):
        Cables(3)


@pytest.mark.network
def test_a_cut_does_not_stall_links_to_healthy_neighbours(tmp_path: Path) -> None:
    """Four of four cuts did, for ten seconds each."""
    nodes, cut_off = 5, 4
    spec = make_spec(
        {
            "network": {"topology": "complete", "nodes": nodes},
            "task": {"name": "digits"},
            "algorithms": [{"name": "multi_walk", "walks": 2, "heartbeat": HEARTBEAT}],
            "stop": {"time": 600.0},
        }
    )
    run = prepare(spec, "cpu").runs[0]
    with Cables(nodes) as cables:
        cluster = plugged_in(local_cluster(spec, run, tmp_path, pace=0.05), cables)
        jobs = [DisturbedJob(NodeJob(cluster, name), cables.namespace(node)) for node, name in enumerate(cluster.nodes)]
        fleet = Fleet(run_disturbed, jobs, list(cluster.nodes))
        try:
            end = time.monotonic() + 90
            while time.monotonic() < end and not all(heard(tmp_path, name) for name in cluster.nodes):
                time.sleep(0.5)
            time.sleep(WARMUP)
            began = time.time()
            cables.cut([cut_off])
            time.sleep(CUT)
            over = time.time()
            cables.heal()
            time.sleep(WARMUP)
        finally:
            fleet.stop()
    assert not fleet.failed()
    longest = 0.0
    for name in [name for node, name in enumerate(cluster.nodes) if node != cut_off]:
        rows = [row for row in read_event_log(tmp_path / name) if row.event == "receive" and row.peer != cut_off]
        for peer in {row.peer for row in rows}:
            times = [row.time for row in rows if row.peer == peer and began - 2.0 < row.time < over]
            assert times
            longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    assert longest < 5.0  # heartbeats come twice a second
    trace = merge(read_event_log(tmp_path / name) for name in cluster.nodes)
    assert [row for row in trace if row.event == "lost" and row.peer == cut_off]
    assert [row for row in trace if row.event == "found" and row.peer == cut_off and row.node != cut_off]


def heard(folder: Path, name: str) -> bool:
    return any(row.event == "receive" for row in read_event_log(folder / name))
