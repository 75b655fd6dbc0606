"""Scripts and nodes as processes of their own, which are killed at random moments: nothing counts twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.peers.test_site_cluster import CENTRES, STAR, trace_of
from walktalk.learning import tasks
from walktalk.protocols import PROTOCOLS
from walktalk.runtimes.peers import Ledger, connect, load_cluster, read_lives
from walktalk.studies.collecting import collect

SCRIPT = """
import sys, time
import torch
import walktalk as wt

model, centre = torch.nn.Linear(3, 2), float(sys.argv[2])
with wt.site(sys.argv[1], name=sys.argv[3]) as site:
    for visit in site:
        visit.load(model)
        for _ in range(5):
            loss = sum(((p - centre) ** 2).sum() for p in model.parameters())
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.02 * p.grad
        time.sleep(0.02)
        visit.finish(model, samples=10, metrics={"train_loss": float(loss)})
print(site.over)
"""

SECONDS = 240.0
KILLS = 6


def write(folder: Path, algorithm: str, iterations: int) -> Path:
    import torch

    tasks.write_state(torch.nn.Linear(3, 2), folder / "start.safetensors")
    (folder / "script.py").write_text(SCRIPT)
    study = {
        "name": "mine",
        "network": {"topology": "star" if algorithm in STAR else "complete", "nodes": 3},
        "task": {"name": "outside", "state": "start.safetensors"},
        "algorithms": [{"name": algorithm}],
        "stop": {"iterations": iterations},
    }
    nodes = {name: {"address": "127.0.0.1"} for name in CENTRES}
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump({"name": "mine", "study": study, "folder": "records", "nodes": nodes}))
    return config


def start(config: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "script.py", config.name, str(CENTRES[name]), name]
    with (config.parent / f"{name}.out").open("ab") as out:
        return subprocess.Popen(command, cwd=config.parent, stdout=out, stderr=out)


def process_of_node(folder: Path) -> int | None:
    found = connect(folder)
    if found is None:
        return None
    found.close()
    return found.process


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["multi_walk", "async_gossip", "local_dsgd", "fedavg"])
def test_scripts_and_nodes_are_killed_at_any_moment(algorithm: str, tmp_path: Path) -> None:
    config, dice = write(tmp_path, algorithm, 800), random.Random(algorithm)
    records = tmp_path / "records"
    scripts = {name: start(config, name) for name in CENTRES}
    killed, end, again = 0, time.monotonic() + SECONDS, time.monotonic() + 1.0
    try:
        while any(script.poll() is None for script in scripts.values()):
            assert time.monotonic() < end, f"it hangs; see {tmp_path}"
            for name, script in scripts.items():
                if script.poll() is not None and script.returncode == -signal.SIGKILL:
                    scripts[name] = start(config, name)  # as a person does, or systemd
            begun = all("begins" in log.read_text() for log in records.glob("*/node.log"))
            again = again if begun else time.monotonic() + 1.0
            if killed < KILLS and time.monotonic() > again:
                again = time.monotonic() + dice.uniform(1.0, 2.5)
                name = dice.choice(["nice", "paris"])
                process = process_of_node(records / name) if killed % 2 else scripts[name].pid
                if process:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                        killed += 1
            time.sleep(0.05)
    finally:
        for script in scripts.values():
            script.kill()
        for name in CENTRES:
            if process := process_of_node(records / name):
                os.kill(process, signal.SIGTERM)
    said = {name: (tmp_path / f"{name}.out").read_text() for name in CENTRES}
    assert all(script.returncode == 0 for script in scripts.values()), said
    assert killed >= 4, said
    assert sum(len(read_lives(records / name)) for name in CENTRES) > 3  # nodes came back
    trace = trace_of(tmp_path)
    protocol = PROTOCOLS.find(algorithm)()
    if protocol.family in ("walks", "gossip"):
        assert Ledger(protocol, 3, sum(row.event == "train" for row in trace)).play(trace).sound
    done = collect(load_cluster(config), tmp_path / "out", seconds=0.1)
    assert done.state == "finished"
