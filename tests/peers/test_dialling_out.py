"""Three sites that drop every incoming connection, a relay, and an operator behind a firewall of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from walktalk.records import yaml_text
from walktalk.studies.chaos.cables import Cables

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("iptables") is None, reason="needs the command `iptables`"),
]

HUB, OPERATOR, SITES = 0, 1, {"a": 2, "b": 3, "c": 4}
ONLY_DIAL_OUT = (
    "-A INPUT -i lo -j ACCEPT",
    "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
    "-P INPUT DROP",
)


def inside(cables: Cables, node: int, *command: str) -> list[str]:
    return ["ip", "netns", "exec", cables.namespace(node), *command]


def walktalk(cables: Cables, node: int, *words: str) -> list[str]:
    return inside(cables, node, sys.executable, "-m", "walktalk", *words)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def until(done: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)


def test_sites_that_only_dial_out_train_through_a_relay_that_dies_and_comes_back(tmp_path: Path) -> None:
    with Cables(5) as cables:
        for node in (OPERATOR, *SITES.values()):
            for rule in ONLY_DIAL_OUT:
                subprocess.run(inside(cables, node, "iptables", *rule.split()), check=True)
        hub = cables.address(HUB)
        config = tmp_path / "cluster.yaml"
        study = {
            "network": {"topology": "complete", "nodes": 3},
            "task": {"name": "digits"},
            "algorithms": [{"name": "multi_walk", "walks": 2}],
            "stop": {"iterations": 10**6},
        }
        content = {"name": "nat", "study": study, "certificates": "certs", "folder": "records", "relay": hub}
        content |= {"pace": 0.02, "nodes": {name: {"reachable": False, "site": name} for name in SITES}}
        config.write_text(yaml_text.dump(content))
        subprocess.run(walktalk(cables, HUB, "certs", "--config", str(config)), check=True)

        refused = f"import socket; socket.create_connection(('{hub.rpartition(':')[0]}', 22), timeout=1)"
        probe = refused.replace(hub.rpartition(":")[0], cables.address(SITES["a"]).rpartition(":")[0])
        tried = subprocess.run(inside(cables, SITES["b"], sys.executable, "-c", probe), capture_output=True, text=True)
        assert "timed out" in tried.stderr  # nobody gets in at a site, the operator's questions neither

        def ask(command: str, *more: str) -> subprocess.CompletedProcess[str]:
            words = walktalk(cables, OPERATOR, command, "--config", str(config), *more)
            return subprocess.run(words, capture_output=True, text=True)

        def status() -> dict[str, Any]:
            said = ask("status", "--json").stdout
            return json.loads(said) if said else {}

        def all_train(more_than: int = 0) -> bool:
            answers = list(status().values())
            return bool(answers) and all(a and len(a["alive"]) == 2 and a["iterations"] > more_than for a in answers)

        relay = walktalk(cables, HUB, "relay", "--config", str(config))
        jobs = [walktalk(cables, n, "node", "--config", str(config), "--name", name) for name, n in SITES.items()]
        logs = {name: tmp_path / f"{name}.log" for name in (*SITES, "relay")}
        with running(jobs[0], logs["a"]), running(jobs[1], logs["b"]), running(jobs[2], logs["c"]):
            with running(relay, logs["relay"]):
                until(all_train)
            until(lambda: all("is gone" in logs[name].read_text() for name in SITES))  # the relay is
            assert ask("status").returncode == 1
            before = 0
            with running(relay, logs["relay"]) as passing:
                until(all_train)
                before = max(a["iterations"] for a in status().values())
                until(lambda: all_train(before))
                memory = Path(f"/proc/{passing.pid}/status").read_text()
                assert int(memory.split("VmRSS:")[1].split()[0]) < 100_000  # kB; a node has several times as much
                assert ask("collect", "--out", str(tmp_path / "out")).returncode == 0
                assert (tmp_path / "out" / "report.html").exists()
                assert ask("stop").returncode == 0
                until(lambda: all("is asked to leave" in logs[name].read_text() for name in SITES))
                passing.send_signal(signal.SIGINT)  # Ctrl-C
                assert passing.wait(20) == 0
    assert "MB were passed on" in logs["relay"].read_text()
    for name in SITES:
        assert "Traceback" not in logs[name].read_text()
