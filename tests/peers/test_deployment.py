"""A deployment as a person starts it: certificates, nodes as processes, status, stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.peers.pair import free_port
from walktalk.errors import SpecError
from walktalk.graphs import complete, cycle
from walktalk.runtimes.peers import (
    free_ports,
    load_cluster,
    make_cluster,
    merge,
    read_diary,
    unused_ports,
    with_known_ports,
    with_own_port,
)

SECONDS = 90
MAIN = "from walktalk.cli import main; main()"


def walktalk(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *args], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def write_cluster(folder: Path, **changes: object) -> Path:
    content = {
        "name": "test",
        "study": {
            "network": {"topology": "complete", "nodes": 3},
            "algorithms": [{"name": "multi_walk", "walks": 2}],
            "stop": {"time": 600.0},
        },
        "certificates": "certs",
        "folder": "records",
        "nodes": {name: {"address": f"127.0.0.1:{free_port()}"} for name in ("ca-1", "ca-2", "il-1")},
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
    return path


def answers(config: Path) -> dict[str, dict[str, object] | None]:
    done = walktalk("status", "--config", str(config), "--json", "--seconds", "5")
    assert done.returncode in (0, 1), done.stderr  # 1: nobody is there yet
    return json.loads(done.stdout)


@pytest.mark.slow
def test_certificates_nodes_status_stop(tmp_path: Path) -> None:
    config = write_cluster(tmp_path)
    assert walktalk("certs", "--config", str(config)).returncode == 0
    command = [sys.executable, "-c", MAIN, "node", "--config", str(config), "--name"]
    nodes = {name: subprocess.Popen([*command, name]) for name in ("ca-1", "ca-2", "il-1")}
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            said = answers(config)
            if all(a is not None and a["iterations"] > 3 for a in said.values()):  # type: ignore[operator]
                break
        assert all(a is not None and len(a["alive"]) == 2 for a in said.values())  # type: ignore[arg-type]
        assert [name for name, a in said.items() if a and a["aggregates"]] == ["ca-1"]
        nodes["il-1"].send_signal(signal.SIGTERM)
        assert nodes["il-1"].wait(SECONDS) == 0
        stopped = walktalk("stop", "--config", str(config))
        assert stopped.stdout.startswith("2 of 3 nodes leave"), stopped.stdout + stopped.stderr
        assert [node.wait(SECONDS) for node in nodes.values()] == [0, 0, 0]
    finally:
        for node in nodes.values():
            node.kill()
    trace = merge(read_diary(tmp_path / "records" / name) for name in nodes)
    assert any(row.event == "handed_on" or row.event == "send" for row in trace if row.node == 2)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    cluster = load_cluster(write_cluster(tmp_path))
    assert cluster.folder == tmp_path / "records"
    assert cluster.certificates == tmp_path / "certs"
    assert cluster.number("il-1") == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": {}}, "there are none"),
        ({"nodes": {"Bad Name": {}}}, "cannot be a node's name"),
        ({"nodes": {"operator": {}}}, "cannot be a node's name"),
        ({"nodes": {"a": {"adress": "x:1"}}}, "adress"),
        ({"colour": "red", "nodes": {"a": {}}}, "colour"),
        ({"name": "a/b", "nodes": {"a": {}}}, "name"),
    ],
)
def test_mistakes_in_a_cluster_file_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_cluster(changes)


def test_who_connects_to_whom() -> None:
    nodes = {"a": {"address": "h1:1"}, "b": {"address": "h2"}, "c": {"address": "h3:3"}}
    cluster = make_cluster({"nodes": nodes})
    graph = complete(3)
    assert cluster.endpoint("a", graph).connect == ("h3:3",)
    assert cluster.endpoint("b", graph).connect == ("h1:1", "h3:3")
    assert cluster.endpoint("b", graph).listen == "h2:0"
    assert cluster.endpoint("c", graph).connect == ()
    with pytest.raises(SpecError, match="has 3, but the study's graph has 4"):
        cluster.endpoint("a", cycle(4))
    with pytest.raises(SpecError, match="not in the cluster"):
        cluster.number("d")


def test_neighbours_without_ports_find_each_other_on_one_machine(tmp_path: Path) -> None:
    graph, plain = complete(2), make_cluster({"folder": str(tmp_path), "nodes": {"a": {}, "b": {}}})
    first = with_own_port(plain, "a").endpoint("a", graph)
    second = with_own_port(plain, "b").endpoint("b", graph)
    assert first.connect == ()  # nobody is there yet
    assert second.connect == (first.listen,)
    again = with_own_port(plain, "a").endpoint("a", graph)  # it comes back: the same port, and now it knows the other
    assert again.listen == first.listen
    assert again.connect == (second.listen,)
    assert set(with_known_ports(plain).operator().connect) == {first.listen, second.listen}


def test_free_ports_are_not_those_that_the_system_gives_to_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the connection of one node may take the port on which another is about to listen."""
    lowest = int(unused_ports.RANGE.read_text().split()[0])
    found = free_ports(40)
    assert len(set(found)) == 40
    assert all(unused_ports.LOWEST <= port < lowest for port in found)
    monkeypatch.setattr(unused_ports, "_first_of_the_system", lambda: 1024)  # it gives away all
    assert free_ports(1)[0] > 0


def test_neighbours_on_two_machines_need_one_port(tmp_path: Path) -> None:
    nodes = {"a": {"address": "127.0.0.1"}, "b": {"address": "10.1.2.3"}}
    cluster = with_own_port(make_cluster({"folder": str(tmp_path), "nodes": nodes}), "a")
    with pytest.raises(SpecError, match="neither has a port that the other can connect to"):
        cluster.endpoint("a", complete(2))
