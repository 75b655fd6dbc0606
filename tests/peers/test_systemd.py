"""The unit of `examples/deploy` under a real systemd: a node that dies comes back, one that was stopped does not."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

import walktalk
from walktalk.runtimes.peers import free_ports

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
SCRIPT = ROOT / "tests" / "support" / "systemd_in_a_namespace.sh"
SYSTEMD = Path("/lib/systemd/systemd")
SECONDS = 120.0
HIDDEN = any(Path("/tmp") in Path(place).parents for place in (sys.prefix, walktalk.__file__))

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not SYSTEMD.exists() or shutil.which("unshare") is None, reason="needs systemd and unshare"),
    pytest.mark.skipif(HIDDEN, reason="the units have a /tmp of their own, in which this checkout is not to be seen"),
]


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.3)


def child_of(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


@pytest.fixture
def inside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a command beside a systemd whose only unit is ours: that of a node, or the one that is asked for."""
    content = yaml.safe_load((DEPLOY / "cluster.yaml").read_text())
    ports = free_ports(len(content["nodes"]))
    nodes = {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(content["nodes"], ports, strict=True)}
    study = {**content["study"], "stop": {"time": 3_600.0}}
    cluster = {
        **content,
        "study": study,
        "folder": "/var/lib/walktalk/records",
        "pace": 0.05,
        "metrics": 0,
        "nodes": nodes,
    }
    if hasattr(request, "param"):
        cluster["relay"] = f"127.0.0.1:{free_ports(1)[0]}"
    config = tmp_path / "cluster.yaml"
    config.write_text(yaml.safe_dump(cluster, sort_keys=False))
    source = str(Path(walktalk.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source}
    made = [sys.executable, "-m", "walktalk", "certs", "--config", str(config)]
    subprocess.run(made, check=True, capture_output=True, env=env)
    unit = DEPLOY / getattr(request, "param", "walktalk-node@.service")
    words = ["unshare", "--mount", "bash", SCRIPT, unit, config, tmp_path / "certs", sys.executable, source]
    with (tmp_path / "log").open("w") as log:
        outer = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    systemd: int | None = None
    up = False

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--target={systemd}", "--mount", "--pid", "--cgroup", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def is_up() -> bool:
        nonlocal systemd
        assert outer.poll() is None, (tmp_path / "log").read_text()
        forking = child_of(outer.pid)
        systemd = child_of(forking) if forking is not None else None
        return systemd is not None and run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    try:
        until(is_up)
        up = True
        yield run
    finally:
        if up and systemd is not None:
            os.kill(systemd, signal.SIGKILL)  # with the first process of a namespace all others end
        else:
            os.killpg(outer.pid, signal.SIGKILL)
        outer.wait(SECONDS)


def test_the_unit_under_a_real_systemd(inside: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    units = {name: f"walktalk-node@{name}" for name in ("ca-1", "ca-2", "il-1")}

    def said(unit: str, key: str) -> str:
        return inside("systemctl", "show", "--property", key, "--value", unit).stdout.strip()

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return inside("/opt/walktalk/bin/walktalk", *words, "--config", "/etc/walktalk/cluster.yaml")

    assert inside("systemctl", "enable", "--now", *units.values()).returncode == 0
    until(lambda: ask("status").returncode == 0)  # all answer, none complains
    main = said(units["il-1"], "MainPID")
    assert inside("stat", "-c", "%U", f"/proc/{main}").stdout.strip() == "walktalk"

    inside("systemctl", "kill", "--signal=KILL", units["il-1"])
    until(lambda: said(units["il-1"], "NRestarts") == "1" and ask("status").returncode == 0)
    assert said(units["il-1"], "MainPID") != main

    assert inside("systemctl", "stop", units["ca-2"]).returncode == 0
    keys = ("ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
    assert [said(units["ca-2"], key) for key in keys] == ["inactive", "success", "1", "0"]  # 1: it exited, by itself
    assert ask("status").returncode == 1

    assert "2 of 3 nodes leave" in ask("stop").stdout
    until(lambda: all(said(unit, "ActiveState") == "inactive" for unit in units.values()))
    assert [said(unit, "NRestarts") for unit in units.values()] == ["0", "0", "1"]  # stopped nodes are not brought back


@pytest.mark.parametrize("inside", ["walktalk-relay.service"], indirect=True)
def test_the_relays_unit_under_a_real_systemd(
    inside: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    unit = "walktalk-relay"
    host, port = yaml.safe_load((tmp_path / "cluster.yaml").read_text())["relay"].split(":")

    def said(key: str) -> str:
        return inside("systemctl", "show", "--property", key, "--value", unit).stdout.strip()

    def is_reached() -> bool:
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
            return True
        return False

    assert inside("systemctl", "enable", "--now", unit).returncode == 0
    until(is_reached)
    main = said("MainPID")
    assert inside("stat", "-c", "%U", f"/proc/{main}").stdout.strip() == "walktalk"
    inside("systemctl", "kill", "--signal=KILL", unit)
    until(lambda: said("NRestarts") == "1" and is_reached())
    assert inside("systemctl", "stop", unit).returncode == 0
    assert [said(key) for key in ("ActiveState", "Result", "ExecMainStatus")] == ["inactive", "success", "0"]
