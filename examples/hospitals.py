"""Five hospitals, from the question to a model: advice, a comparison in simulation, and a cluster with mutual TLS.

Folders stand for machines. Each hospital's node runs in its own, where nobody else's patients are; one dies half-way.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

import walktalk as wt
from walktalk.runtimes.peers import STATUS, ask_everyone, free_ports, load_cluster

HOSPITALS = ["lyon", "nice", "paris", "lille", "brest"]
FEATURES = ["age", "weight", "pressure", "pulse", "sugar", "iron"]


class Risk(nn.Module):
    """A small network of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(len(FEATURES), 16), nn.Linear(16, 2)

    def forward(self, patients: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.hidden(patients)))


def clinic(folder: str = "data", part: str | None = None) -> wt.Task:
    """The task: at a hospital it is asked for that part alone, in a simulation for all of them."""
    data = Path(folder)
    test = pd.read_csv(data / "test.csv") if part is None else None  # patients who agreed to be shown to everybody

    def patients(name: str) -> pd.DataFrame:
        return pd.read_csv(data / f"{name}.csv")

    loss = nn.functional.cross_entropy
    return wt.tasks.torch(Risk(), loss, patients, test, names=HOSPITALS, target="ill", part=part)


def make_patients(count: int, shift: float, seed: int) -> pd.DataFrame:
    """Every hospital sees other people, but what makes them ill is the same."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(shift, 1.0, (count, len(FEATURES))), columns=FEATURES)
    risk = 3.0 * (frame["age"] + frame["sugar"] * frame["pressure"] - 0.5 * frame["iron"])
    return frame.round(3).assign(ill=(rng.random(count) < 1 / (1 + np.exp(-risk))).astype(int))


def machine(home: Path, name: str, certificates: Path, config: Path) -> Path:
    """All that a machine has: the cluster file, the authority's certificate, its own pair."""
    here = home / name
    (here / "certs").mkdir(parents=True)
    for file in ("ca.pem", f"{name}.pem", f"{name}.key"):
        shutil.copy(certificates / file, here / "certs" / file)
    shutil.copy(config, here / "cluster.yaml")
    return here


def walktalk(*words: str, here: Path) -> subprocess.Popen[bytes]:
    """The command, as one would type it on that machine; this file is where its task is."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    log = (here / "log.txt").open("wb")
    command = [sys.executable, "-m", "walktalk", *words]
    return subprocess.Popen(command, cwd=here, env=environment, stdout=log, stderr=log)


def await_words(log: Path, words: str) -> None:
    """Until they are in a log; everything that is started here takes seconds."""
    for _ in range(600):
        if words in log.read_text():
            return
        time.sleep(0.2)
    raise SystemExit(f"{log}: {log.read_text()}")


def iterations(config: Path) -> int:
    """How many the cluster has done, as far as anybody answers."""
    answers = ask_everyone(load_cluster(config), STATUS, seconds=1.0).values()
    return max((answer["total_iterations"] for answer in answers if answer is not None), default=0)


def accuracy(model: nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    with torch.no_grad():
        return float((model(test[0]).argmax(1) == test[1]).float().mean())


def main() -> None:
    home = Path("hospitals").absolute()
    shutil.rmtree(home, ignore_errors=True)
    (home / "data").mkdir(parents=True)
    for place, name in enumerate(HOSPITALS):
        make_patients(300, 0.15 * (place - 2), seed=place).to_csv(home / "data" / f"{name}.csv", index=False)
    make_patients(2000, 0.0, seed=99).to_csv(home / "data" / "test.csv", index=False)

    # 1. Before anything is deployed, on data that may be in one place, such as last year's.
    task, graph = clinic(str(home / "data")), wt.graphs.complete(5)
    how = {"stop": 600, "evaluate": wt.Evaluate(every=100), "optimizer": wt.SGD(lr=0.1)}
    advice = wt.advise(task, graph, objective="bits", target_loss=0.45, **how)
    print("to send little:", type(advice.best.protocol).__name__)
    compared = wt.compare(task, [wt.MultiWalk(walks=2), wt.AsyncGossip()], graph, repetitions=2, **how)
    simulated = compared.history.groupby("algorithm")["test_accuracy"].last()
    print("in simulation:", ", ".join(f"{label} {value:.2f}" for label, value in simulated.items()))

    # 2. A machine for every hospital, with its own patients, and one for whoever collects.
    study = {
        "network": {"topology": "complete", "nodes": 5},
        "task": {"name": "hospitals:clinic"},
        "algorithms": [{"name": "multi_walk", "walks": 2}],
        "optimizer": {"lr": 0.1},
        "stop": {"iterations": 600},
    }
    ports = free_ports(5)
    nodes = {name: {"address": f"127.0.0.1:{port}"} for name, port in zip(HOSPITALS, ports, strict=True)}
    cluster = {"name": "hospitals", "study": study, "certificates": "certs", "folder": "records", "pace": 0.02}
    config = home / "cluster.yaml"
    config.write_text(yaml.safe_dump({**cluster, "wait": 120.0, "nodes": nodes}, sort_keys=False))
    walktalk("certs", "--config", str(config), here=home).wait()
    file_server = machine(home, "operator", home / "certs", config)
    collecting = walktalk("collect", "--config", "cluster.yaml", "--out", "out", "--wait", here=file_server)
    await_words(file_server / "log.txt", "waits for the first node")
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name in HOSPITALS:
        here = machine(home, name, home / "certs", config)
        (here / "data").mkdir()
        shutil.copy(home / "data" / f"{name}.csv", here / "data")
        running[name] = walktalk("node", "--config", "cluster.yaml", "--name", name, here=here)

    # 3. Half-way one hospital's machine dies.
    await_words(file_server / "log.txt", "5 of 5 nodes answer")
    while iterations(file_server / "cluster.yaml") < 300:
        if ended := [name for name, node in running.items() if node.poll() is not None]:
            raise SystemExit((home / ended[0] / "log.txt").read_text())
        time.sleep(0.2)
    running["brest"].kill()
    collecting.wait()
    for node in running.values():
        node.wait()
    said = (file_server / "log.txt").read_text()
    print("who took part:", ", ".join(line.split()[0] for line in said.splitlines() if " iterations, " in line))
    print("not at the end:", ", ".join(line.split()[0] for line in said.splitlines() if " gone " in line))

    # 4. The model: a plain torch module with its weights.
    model = Risk()
    model.load_state_dict(load_file(file_server / "out" / "runs" / "multi_walk-2" / "0" / "model.safetensors"))
    inputs, targets = task.test
    collected = accuracy(model, (inputs, targets))
    print("the collected model is as good as the simulated:", abs(collected - simulated["multi_walk-2"]) < 0.02)
    print("the page:", (file_server / "out" / "report.html").relative_to(home))


if __name__ == "__main__":  # nodes import this file, for its task
    main()
