"""Three sites that drop every incoming connection, a relay, and an operator behind a firewall of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from walktalk.records import yaml_text
from walktalk.testing.chaos.cables import Cables

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("iptables") is None, reason="needs the command `iptables`"),
]

LANE = 30  # not one that chaos has at the same time
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


@dataclass
class Scene:
    """A relay's machine, an operator, and sites that drop every incoming connection."""

    cables: Cables
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "cluster.yaml"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def relay(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return running(walktalk(self.cables, HUB, "relay", "--config", str(self.config)), self.log("relay"))

    def node(self, name: str, *more: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        words = ("node", "--config", str(self.config), "--name", name, *more)
        return running(walktalk(self.cables, SITES[name], *words), self.log(name))

    def ask(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = walktalk(self.cables, OPERATOR, command, *more, "--config", str(self.config))
        return subprocess.run(words, capture_output=True, text=True)

    def status(self) -> dict[str, Any]:
        said = self.ask("status", "--json").stdout
        return json.loads(said) if said else {}

    def train(self, names: str) -> None:
        """Wait until these and nobody else are there, each sees all others, and each has trained since."""
        before: dict[str, int] = {}

        def go_on() -> bool:
            answers = self.status()
            if set(answers) != set(names) or not all(a and len(a["alive"]) == len(names) - 1 for a in answers.values()):
                return False
            done = {name: answer["iterations"] for name, answer in answers.items()}
            for name in done:
                before.setdefault(name, done[name])
            return all(done[name] > before[name] for name in names)

        until(go_on)


@contextmanager
def scene(folder: Path, names: str) -> Iterator[Scene]:
    """- `names`: sites of the cluster's file, all of them neighbours."""
    with Cables(len(SITES) + 2, LANE) as cables:
        for node in (OPERATOR, *SITES.values()):
            for rule in ONLY_DIAL_OUT:
                subprocess.run(inside(cables, node, "iptables", *rule.split()), check=True)
        study = {
            "network": {"topology": "complete", "nodes": len(names)},
            "task": {"name": "digits"},
            "algorithms": [{"name": "multi_walk", "walks": 2}],
            "stop": {"iterations": 10**6},
        }
        content = {"name": "nat", "study": study, "certificates": "certs", "folder": "records"}
        content |= {"relay": cables.address(HUB), "pace": 0.02}
        content |= {"nodes": {name: {"reachable": False, "site": name} for name in names}}
        made = Scene(cables, folder)
        made.config.write_text(yaml_text.dump(content))
        subprocess.run(walktalk(cables, HUB, "certs", "--config", str(made.config)), check=True)
        probe = f"import socket; socket.create_connection(('{host(cables, SITES['a'])}', 22), timeout=1)"
        tried = subprocess.run(inside(cables, SITES["b"], sys.executable, "-c", probe), capture_output=True, text=True)
        assert "timed out" in tried.stderr  # nobody gets in at a site, the operator's questions neither
        yield made
    for name in names:
        assert "Traceback" not in made.log(name).read_text()


def host(cables: Cables, node: int) -> str:
    return cables.address(node).rpartition(":")[0]


def test_sites_that_only_dial_out_train_through_a_relay_that_dies_and_comes_back(tmp_path: Path) -> None:
    sites = "abc"
    with scene(tmp_path, sites) as made, made.node("a"), made.node("b"), made.node("c"):
        with made.relay():
            made.train(sites)
        until(lambda: all("is gone" in made.log(name).read_text() for name in sites))  # the relay is
        assert made.ask("status").returncode == 1
        with made.relay() as passing:
            made.train(sites)
            memory = Path(f"/proc/{passing.pid}/status").read_text()
            assert int(memory.split("VmRSS:")[1].split()[0]) < 100_000  # kB; a node has several times as much
            assert made.ask("collect", "--out", str(tmp_path / "out")).returncode == 0
            assert (tmp_path / "out" / "report.html").exists()
            assert made.ask("stop").returncode == 0
            until(lambda: all("is asked to leave" in made.log(name).read_text() for name in sites))
            passing.send_signal(signal.SIGINT)  # Ctrl-C
            assert passing.wait(20) == 0
    assert "MB were passed on" in made.log("relay").read_text()


def test_a_site_that_only_dials_out_joins_those_that_do_comes_back_and_leaves_for_good(tmp_path: Path) -> None:
    """All it needs is a certificate and the relay. It dies, the relay dies, one of the others comes back."""
    with scene(tmp_path, "ab") as made:
        certs = str(tmp_path / "certs" / "c.csr")
        signed = [("certs", "request", "c"), ("certs", "sign", certs, "--joins")]  # no --host: nobody connects to it
        for words in signed:
            assert made.ask(*words).returncode == 0
        with ExitStack() as stack:
            relaying, first = stack.enter_context(made.relay()), stack.enter_context(made.node("a"))
            stack.enter_context(made.node("b"))
            made.train("ab")
            joins = ("--join", "relay", "--part", "1")
            stranger = made.ask("node", "--name", "d", *joins)
            assert stranger.returncode == 2  # it has no certificate
            with made.node("c", *joins) as new:
                made.train("abc")
                new.kill()
                new.wait()
            until(lambda: "c is gone" in made.log("a").read_text())
            back = stack.enter_context(made.node("c"))  # without --join: it remembers where it belongs
            made.train("abc")
            first.terminate()
            assert first.wait(60) == 0
            stack.enter_context(made.node("a"))  # it remembers whom to call
            made.train("abc")
            relaying.kill()
            relaying.wait()
            until(lambda: all("has lost the relay" in made.log(name).read_text() for name in "abc"))
            stack.enter_context(made.relay())
            made.train("abc")
            left = made.ask("leave", "c")
            assert (left.returncode, left.stdout) == (0, "c: leaves for good\n")
            assert back.wait(60) == 0
            made.train("ab")
            assert made.ask("stop").returncode == 0
    assert "Traceback" not in made.log("c").read_text()
