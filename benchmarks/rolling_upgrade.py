"""A rolling upgrade of a cluster under load, and back again: what it costs, and whether anything is lost.

    python benchmarks/rolling_upgrade.py [--algorithm multi_walk] [--old 0bafa1f6] [--nodes 6] [--out DIR]

Builds the wheel of an earlier commit, starts a cluster of it on this machine with certificates, one `walktalk node` a
process, and lets it train. Then one node after the other is stopped, started with the present version, and waited for;
and back. The nodes' event logs say how many trainings a second there were before, during and after, whether a walk had
to be started again, and whether an update counts twice. Needs git and the repository's history.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from walktalk.core.errors import UserError
from walktalk.records import TraceRow
from walktalk.runtimes.peers import (
    STATUS,
    Ledger,
    ask_everyone,
    free_ports,
    load_cluster,
    make_certificates,
    read_event_log,
)
from walktalk.runtimes.peers import merge as merged
from walktalk.studies import make_spec
from walktalk.testing.chaos.verdict import BEGINNINGS, copies_of_walks

ROOT = Path(__file__).parents[1]
BEFORE = "0bafa1f6"
"""The last commit whose nodes refused every other version."""
ALGORITHMS: Mapping[str, dict[str, Any]] = {
    "multi_walk": {"walks": 3, "heartbeat": 2.0},
    "async_gossip": {},
    "fedavg": {},
}
MAIN = "from walktalk.cli import main; main()"
PATIENCE = 240.0  # seconds until all nodes must be there, or one that was started again
ENDS = 60.0  # seconds in which a node that is stopped must end
WINDOW = 2.0  # seconds in which trainings are counted


def main() -> None:
    """Upgrade and roll back under each algorithm, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", action="append", choices=list(ALGORITHMS))
    parser.add_argument("--old", default=BEFORE, help="a commit, or the folder of an unpacked wheel")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--pace", type=float, default=0.2, help="seconds that a training takes at least")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds before, between and after")
    parser.add_argument("--out", type=Path, help="a folder for the table and the numbers")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        old = Path(asked.old) if Path(asked.old).is_dir() else build(asked.old, folder / "old")
        found = []
        for algorithm in asked.algorithm or ALGORITHMS:
            trial = Trial(folder / algorithm, algorithm, asked.nodes, asked.pace)
            found.append(upgrade_and_back(trial, Version("old", old), present(), asked.quiet))
            print(json.dumps(asdict(found[-1])), flush=True)
    text = table(found)
    print(text)
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "table.md").write_text(text)
        (asked.out / "rolling-upgrade.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


# -- versions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A walktalk that nodes can be started with."""

    name: str
    path: Path  # where it is imported from
    begin: str = MAIN  # what a process of it runs


def present() -> Version:
    """The walktalk of this repository."""
    return Version("new", ROOT / "src")


def build(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit, and unpack it; a `UserError` where git or the commit is missing."""
    source = folder / "source"
    source.mkdir(parents=True)
    packed = folder / "source.tar"
    try:
        said = ["git", "-C", str(ROOT), "archive", f"--output={packed}", commit]
        subprocess.run(said, check=True, capture_output=True)
        subprocess.run(["tar", "-xf", str(packed), "-C", str(source)], check=True)
        wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder)]
        subprocess.run([*wheel, str(source)], check=True, capture_output=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"the wheel of {commit} cannot be built: {error}") from error
    (found,) = folder.glob("walktalk-*.whl")
    with zipfile.ZipFile(found) as file:
        file.extractall(folder / "wheel")
    return folder / "wheel"


# -- a cluster whose nodes are of any version -------------------------------------------------------------------------


@dataclass
class Trial:
    """A cluster on this machine."""

    folder: Path
    algorithm: str
    nodes: int = 4
    pace: float = 0.2
    certificates: bool = True
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.names = [f"n{number}" for number in range(self.nodes)]
        self.study = {
            "network": {"topology": "complete", "nodes": self.nodes},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [{"name": self.algorithm, **ALGORITHMS[self.algorithm]}],
            "stop": {"time": 86_400.0},
        }
        content = {
            "name": "upgrade",
            "study": self.study,
            "folder": "records",
            "pace": self.pace,
            "nodes": {name: {"address": f"127.0.0.1:{port}"} for name, port in self.ports()},
            **({"certificates": "certs"} if self.certificates else {}),
        }
        self.config = self.folder / "cluster.yaml"
        self.config.write_text(yaml.safe_dump(content, sort_keys=False))
        self.cluster = load_cluster(self.config)
        if self.certificates:
            make_certificates(self.folder / "certs", self.cluster.hosts())

    def ports(self) -> Sequence[tuple[str, int]]:
        """Every node's name and port."""
        return list(zip(self.names, free_ports(self.nodes), strict=True))

    def start(self, name: str, version: Version) -> None:
        """Start a node with a version."""
        environment = {**os.environ, "PYTHONPATH": str(version.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", version.begin, "node", "--config", str(self.config), "--name", name]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stderr=log, env=environment, cwd=self.folder)

    def stop(self, name: str) -> None:
        """Ask a node to leave, and wait until it has."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        if process.wait(ENDS) != 0:
            raise UserError(f"{name} ended with {process.returncode}: {self.log(name)}")

    def log(self, name: str) -> str:
        """The end of a node's log."""
        return (self.folder / f"{name}.log").read_text()[-2000:]

    def await_all(self) -> dict[str, dict[str, Any]]:
        """Wait until every node trains and has all its neighbours; what they say of themselves."""
        end = time.monotonic() + PATIENCE
        while True:
            answers = ask_everyone(self.cluster, STATUS, 5.0)
            there = {name: said for name, said in answers.items() if said is not None}
            if len(there) == self.nodes and all(is_well(said, self.nodes - 1) for said in there.values()):
                return there
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise UserError(f"{name} has ended: {self.log(name)}")
            if time.monotonic() > end:
                logs = "\n".join(f"{name}: {self.log(name)}" for name in self.names)
                raise UserError(f"not all nodes are there: {there}\n{logs}")
            time.sleep(0.5)

    def replace_all(self, version: Version) -> None:
        """Stop one node after the other, and start it with a version."""
        for name in self.names:
            self.stop(name)
            self.start(name, version)
            self.await_all()

    def end(self) -> None:
        """Stop all nodes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(ENDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self.processes.clear()

    def trace(self) -> list[TraceRow]:
        """All that the nodes wrote down."""
        return merged(read_event_log(self.folder / "records" / name) for name in self.names)


def is_well(said: Mapping[str, Any], neighbours: int) -> bool:
    """Whether a node has begun and hears all its neighbours."""
    return said.get("state") in ("training", "waiting") and len(said.get("alive", ())) == neighbours


# -- what came of it --------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a trial has shown."""

    algorithm: str
    nodes: int
    rates: dict[str, float]  # trainings a second in the median window, by phase
    seconds: dict[str, float]  # of each phase
    restarted: int  # walks that were lost and started again
    walks: int  # that are there in the end; 0 where there are none
    copies: int  # of walks beyond one of each
    counted: float  # the largest weight of an update in an aggregate, or its part of a term's visits
    twice: int  # models that were mixed in twice
    refused: int  # messages that nodes refused of each other
    iterations: int

    @property
    def kept(self) -> float:
        """The rate while nodes were replaced, up or down, as a part of that before; the lower of the two."""
        return min(self.rates["upgrade"] / self.rates["before"], self.rates["rollback"] / self.rates["upgraded"])


def upgrade_and_back(trial: Trial, old: Version, new: Version, quiet: float) -> Outcome:
    """Start with the old version, upgrade node by node, and roll back."""
    phases: dict[str, tuple[float, float]] = {}
    refused = 0

    def phase(name: str, call: Any, *args: Any) -> None:
        began = time.time()
        call(*args)
        phases[name] = began, time.time()

    try:
        for name in trial.names:
            trial.start(name, old)
        trial.await_all()
        phase("before", time.sleep, quiet)
        phase("upgrade", trial.replace_all, new)
        phase("upgraded", time.sleep, quiet)
        refused += refusals(trial.await_all())
        phase("rollback", trial.replace_all, old)
        phase("after", time.sleep, quiet)
        refused += refusals(trial.await_all())
    finally:
        trial.end()
    rows = [row for name in trial.names for row in read_event_log(trial.folder / "records" / name)]
    return judged(trial, phases, [row.time for row in rows if row.event == "trained"], refused)


def refusals(answers: Mapping[str, Mapping[str, Any]]) -> int:
    """How many messages nodes have refused of each other since they were started last."""
    return sum(sum(answer.get("refused", {}).values()) for answer in answers.values())


def judged(trial: Trial, phases: Mapping[str, tuple[float, float]], trained: list[float], refused: int) -> Outcome:
    """What the nodes' event logs say of a trial."""
    trace = trial.trace()
    protocol = make_spec(trial.study).algorithms[0].protocol()
    ledger = Ledger(protocol, trial.nodes, sum(row.event in BEGINNINGS for row in trace)).play(trace)
    walking = trial.algorithm == "multi_walk"
    last = phases["after"]
    end = trace[-1].time
    walks, copies = copies_of_walks(trace, end - (last[1] - last[0]), end - 1.0) if walking else (0, 0)
    return Outcome(
        trial.algorithm,
        trial.nodes,
        {name: rate(trained, *between) for name, between in phases.items()},
        {name: round(end - began, 1) for name, (began, end) in phases.items()},
        sum(row.event == "restarted" for row in trace),
        walks,
        copies,
        round(max(ledger.counted, ledger.worst), 4) if trial.algorithm != "fedavg" else 0.0,
        ledger.twice,
        refused,
        len(trained),
    )


def rate(trained: Sequence[float], began: float, end: float) -> float:
    """Trainings a second, in the median window."""
    windows = max(1, int((end - began) / WINDOW))
    counts = [0] * windows
    for moment in trained:
        place = int((moment - began) / WINDOW)
        if moment >= began and place < windows:
            counts[place] += 1
    return round(median(counts) / WINDOW, 2)


def table(found: Sequence[Outcome]) -> str:
    """The outcomes as Markdown."""
    names = ("before", "upgrade", "upgraded", "rollback", "after")
    head = ["algorithm", "nodes", *(f"{name} /s" for name in names), "kept", "walks lost", "copies", "counted twice"]
    rows = [
        [
            one.algorithm,
            str(one.nodes),
            *(f"{one.rates[name]:.1f}" for name in names),
            f"{100 * one.kept:.0f} %",
            str(one.restarted),
            str(one.copies),
            str(one.twice),
        ]
        for one in found
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
