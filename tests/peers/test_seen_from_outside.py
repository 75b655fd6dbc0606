"""A node as those see it who watch it: metrics, health, its log as JSON, `walktalk status` and its exit code."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.protocols import AGGREGATE
from walktalk.records import TraceRow
from walktalk.runtimes.peers import aggregators, cluster_complaints
from walktalk.runtimes.peers.node.reports import Counts
from walktalk.runtimes.peers.operations.monitoring import (
    MOST_CLIENTS,
    MonitoringServer,
    _Handler,
    _Server,
    parse_address,
)

SECONDS = 90.0
MAIN = """
import json, sys
from walktalk.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""
NOT_FOR_NODES = ("pandas", "pyarrow", "sklearn", "scipy", "matplotlib", "networkx", "torch._dynamo", "rich.table")
"""Half a second and more of processor time, or tens of megabytes, in every node of every cluster."""


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_node_is_seen_from_outside_and_imports_what_it_needs(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    study = {
        "network": {"topology": "complete", "nodes": 2},
        "algorithms": [{"name": "multi_walk", "walks": 1}],
        "stop": {"time": 600.0},
    }
    nodes = {"one": {"address": "127.0.0.1"}, "two": {"address": "127.0.0.1"}}
    config.write_text(yaml.safe_dump({"study": study, "folder": "records", "wait": 0.1, "nodes": nodes}))
    command = [sys.executable, "-c", MAIN, "node", "--config", str(config), "--name", "one"]
    log = tmp_path / "log"
    with log.open("w") as said:
        node = subprocess.Popen(
            [*command, "--metrics", "0", "--log-format", "json"], stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        url, end = None, time.monotonic() + SECONDS
        while "begins" not in log.read_text() and time.monotonic() < end and node.poll() is None:
            time.sleep(0.05)
        url = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert url is not None, log.read_text()
        status, health = get(f"{url[0]}/health")
        assert (status, json.loads(health)["reasons"]) == (503, ["none of its 1 neighbours is there"])
        assert get(f"{url[0]}/live") == (200, '{"live": true}\n')
        assert get(f"{url[0]}/nothing")[0] == 404
        families = {family.name: family for family in text_string_to_metric_families(get(f"{url[0]}/metrics")[1])}
        ((about,), (up,)) = families["walktalk_node_info"].samples, families["walktalk_neighbour_up"].samples
        assert (about.labels["node"], up.labels, up.value) == ("one", {"peer": "two"}, 0.0)
        assert families["walktalk_healthy"].samples[0].value == 0.0
        assert families["process_resident_memory_bytes"].samples[0].value > 1e6
        asked = CliRunner().invoke(app, ["status", "--config", str(config), "--json", "--seconds", "1"])
        assert (asked.exit_code, json.loads(asked.stdout)["two"]) == (1, None)
        assert json.loads(asked.stdout)["one"]["complaints"] == ["none of its 1 neighbours is there"]
    finally:
        node.send_signal(signal.SIGTERM)
        loaded = json.loads(node.communicate(timeout=SECONDS)[0])
    assert node.returncode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["node"] for line in lines} == {"one"}
    assert [line["level"] for line in lines if line["message"] == "is asked to leave"] == ["info"]
    assert "torch" in loaded
    assert [name for name in NOT_FOR_NODES if name in loaded] == []


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="each node of a machine needs its own"):
            MonitoringServer(taken.getsockname()[1])


def test_clients_that_say_nothing_take_no_more_than_some_threads() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = server.server_address[:2]
    try:
        idle = [socket.create_connection(place, timeout=SECONDS) for _ in range(MOST_CLIENTS)]
        with socket.create_connection(place, timeout=SECONDS) as another:
            assert another.recv(1) == b""  # turned away
        for client in idle:
            client.close()
        end = time.monotonic() + SECONDS
        while True:  # there is room again
            try:
                assert get(f"http://127.0.0.1:{place[1]}/")[0] == 200
                break
            except OSError:
                assert time.monotonic() < end
    finally:
        server.shutdown()
        server.server_close()


def test_where_metrics_are() -> None:
    assert parse_address(9100) == ("127.0.0.1", 9100)  # not for the whole world unless somebody says so
    assert parse_address("0.0.0.0:9100") == ("0.0.0.0", 9100)
    assert parse_address("[::]:9100") == ("::", 9100)
    for wrong in ("here", "host:", "1:70000", "-1"):
        with pytest.raises(SpecError, match="no place to listen"):
            parse_address(wrong)


def test_counts_are_those_of_the_trace() -> None:
    counts = Counts()
    rows = [
        TraceRow(10.0, 0, "record", "aggregate", walk=1, detail=AGGREGATE),
        TraceRow(11.0, 0, "train", number=0),
        TraceRow(11.5, 0, "trained", number=0),
        TraceRow(12.0, 0, "train", number=1),  # given up: the node leaves
        TraceRow(13.0, 0, "send", peer=2, bytes=100, detail={"kind": "walk", "into": "walk-1"}),
        TraceRow(13.0, 0, "send", peer=2, bytes=10, detail={"kind": "ack", "into": ""}),
        TraceRow(13.5, 0, "send", peer=2, bytes=50, detail={"kind": "walk", "into": "walk-1"}),
        TraceRow(14.0, 0, "receive", peer=2),
        TraceRow(14.5, 0, "elected", peer=0, number=7),
    ]
    for row in rows:
        counts.add(row)
    assert (counts.trainings, counts.training_seconds) == (1, 0.5)
    assert counts.sent_bytes == {(2, "walk"): 150, (2, "ack"): 10}
    assert counts.sent_messages == {(2, "walk"): 2, (2, "ack"): 1}
    assert counts.received_messages == {2: 1}
    assert (counts.events["elected"], counts.events["lost"]) == (1, 0)
    assert counts.aggregates_since == 14.5
    counts.add(TraceRow(15.0, 0, "stepped_down"))
    assert counts.aggregates_since is None


def test_a_cluster_is_as_well_as_its_nodes() -> None:
    well = {"aggregates": True, "complaints": []}
    other = {**well, "aggregates": False}
    assert cluster_complaints({"a": well, "b": other}) == []
    assert cluster_complaints({"a": well, "b": None}) == ["b: no answer"]
    assert cluster_complaints({"a": {**well, "complaints": ["it leaves"]}, "b": {}}) == ["a: it leaves"]
    (split,) = cluster_complaints({"a": well, "b": well})
    assert split.startswith("a and b aggregate")
    assert aggregators({"a": well, "b": other, "c": None}) == ["a"]


def test_a_table_with_all_columns_fits_80_letters() -> None:
    from rich.console import Console

    from walktalk.cli.cluster import _page

    answer = {
        "name": "lyon", "state": "training", "aggregates": True, "term": 1, "walks": [1, 2], "alive": [0, 1],
        "iterations": 19_634, "loss": 0.5, "checkpoint_age": 6.0, "bytes_sent": 10_200_000, "dropped": {"rate": 106},
        "total_iterations": 1,
    }  # fmt: skip
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(_page({"lyon": answer, "nice": answer, "brest": None}, {"lyon": "south", "nice": "", "brest": ""}))
    said = console.export_text()
    assert "…" not in said
    assert "no answer" in said
    assert re.search(r"^lyon +south +training +1 +1 2 +2 +19,634 +0\.500 +6 s +10\.2 +106$", said, re.M)
