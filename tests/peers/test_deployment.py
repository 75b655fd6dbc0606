"""A deployment as a person starts it: certificates, nodes as processes, status, stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import walktalk.runtimes.peers.operations.cluster as unused_ports
from tests.peers.pair import free_port
from walktalk.core.errors import SpecError
from walktalk.graphs import complete, cycle
from walktalk.runtimes.peers import (
    free_ports,
    load_cluster,
    make_cluster,
    merge,
    read_event_log,
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
    trace = merge(read_event_log(tmp_path / "records" / name) for name in nodes)
    assert any(row.event == "handed_on" or row.event == "send" for row in trace if row.node == 2)


@pytest.mark.slow
def test_certificates_are_renewed_and_revoked_while_nodes_train(tmp_path: Path) -> None:
    """All nodes take new certificates at once, and no walk is lost; then one is revoked, and the others go on."""
    config = write_cluster(tmp_path, pace=0.02)
    assert walktalk("certs", "--config", str(config), "--days", "20").returncode == 0
    names = ("ca-1", "ca-2", "il-1")
    logs = {name: tmp_path / f"{name}.log" for name in names}

    def until(happened: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, {name: log.read_text() for name, log in logs.items()}
            time.sleep(0.2)

    def everybody(words: str, among: tuple[str, ...] = names) -> Callable[[], bool]:
        return lambda: all(words in logs[name].read_text() for name in among)

    command = [sys.executable, "-c", MAIN, "node", "--config", str(config), "--name"]
    nodes = {}
    try:
        for name, log in logs.items():
            with log.open("wb") as file:
                nodes[name] = subprocess.Popen([*command, name], stderr=file)
        until(everybody("begins; 2 of 2"))
        assert "il-1.pem expires on" in logs["il-1"].read_text()
        assert "expires on" in walktalk("status", "--config", str(config)).stdout
        assert walktalk("certs", "--config", str(config)).returncode == 0  # 20 days are not enough: all are renewed
        until(everybody("takes a certificate valid until"))
        before = {name: answer["iterations"] for name, answer in answers(config).items() if answer}
        until(lambda: all(a and a["iterations"] > before[name] for name, a in answers(config).items()))  # type: ignore[operator]
        for log in logs.values():
            assert " is gone" not in log.read_text()
            assert "was lost" not in log.read_text()
        assert "expires on" not in walktalk("status", "--config", str(config)).stdout
        told = walktalk("certs", "revoke", "il-1", "--config", str(config)).stdout
        assert told.count("has taken it") == 3 or told.count("has it already") > 0, told  # they share one folder
        until(everybody("refuses il-1: its certificate was revoked on", names[:2]))
        until(everybody("il-1.pem was revoked on", names[2:]))
        until(everybody("il-1 is gone", names[:2]))
        until(lambda: all(answers(config)[name] for name in names[:2]))
        assert walktalk("status", "--config", str(config)).returncode == 1
    finally:
        for node in nodes.values():
            node.terminate()
        for node in nodes.values():
            node.wait(SECONDS)


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
        ({"name": "mine", "task": {"name": "digits"}}, r"is a study, not a cluster: .* with study: cluster"),
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
