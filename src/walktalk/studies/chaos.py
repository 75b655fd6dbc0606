"""Chaos on this machine: real nodes, killed, hung and cut off while they train; then the books are checked.

One round: start all nodes, let them train; kill -9 the aggregator and others, each comes back from its checkpoint after
a while; stop one (SIGSTOP) and let it go on; split the network in two and heal it; wait until things have settled.
What must hold: every node leaves when it is asked to, no update is counted twice, every walk is there exactly once, and
the model is as good as one of an undisturbed run.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from walktalk.runtimes.peers import (
    BLOCKED,
    STATUS,
    Cluster,
    Fleet,
    Ledger,
    ReplaySetup,
    ask_everyone,
    merge,
    read_diary,
)
from walktalk.runtimes.peers import replay as replayed
from walktalk.runtimes.simulator import Evaluate, PoissonTiming, RunSetup, Stop
from walktalk.runtimes.stacked import Engine
from walktalk.seeds import Seed
from walktalk.studies.peers import NodeJob, local_cluster, run_node
from walktalk.studies.run import Preparation, prepare
from walktalk.studies.spec_load import make_spec

Row = tuple[Any, ...]
MEASURED = 50  # iterations between measurements of the loss
WEIGHT_DECAY = 0.01  # gives the loss a floor that it reaches: a tenth of next to nothing would be chance


@dataclass(frozen=True)
class Storm:
    """How many nodes, and what happens to them."""

    nodes: int = 20
    walks: int = 4
    heartbeat: float = 0.5
    local_steps: int = 60  # of one training; more make fewer iterations a second
    warmup: float = 8.0  # seconds of peace at first
    between: float = 4.0  # seconds between two blows
    away: float = 3.0  # seconds until a killed one comes back
    settle: float = 20.0  # seconds of peace in the end
    blows: tuple[str, ...] = ("aggregator", "random", "hang", "aggregator", "random", "split")


@dataclass
class Verdict:
    """What came out of one round."""

    seed: int
    killed: list[int] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)  # nodes that had to be ended by force
    iterations: int = 0
    mixings: int = 0
    worst: float = 0.0  # the largest weight of one update in an aggregate: above 1 it was counted twice
    walks: int = 0  # that are there in the end
    copies: int = 0  # beyond one of each
    loss: float = float("nan")
    reference: float = float("nan")  # of an undisturbed run with as many iterations
    recovery: list[float] = field(default_factory=list)  # of the aggregator, to the next one's first mixing, in beats
    replacement: list[float] = field(default_factory=list)  # last sign of a lost walk to its restart, in mean returns

    @property
    def passed(self) -> bool:
        """Whether everything held."""
        return not self.stuck and self.worst <= 1.0 + 1e-4 and self.copies == 0 and self.loss <= 1.1 * self.reference


def chaos_round(storm: Storm, seed: int, folder: Path, say: Callable[[str], None] = lambda line: None) -> Verdict:
    """One round, from the start of the nodes to the verdict."""
    spec = make_spec({
        "name": "chaos", "seed": seed, "network": {"topology": "erdos_renyi", "nodes": storm.nodes, "p": 0.3},
        "algorithms": [{"name": "multi_walk", "walks": storm.walks, "heartbeat": storm.heartbeat}],
        "training": {"local_steps": storm.local_steps}, "stop": {"time": 3600.0},
        "optimizer": {"weight_decay": WEIGHT_DECAY},
    })  # fmt: skip
    ready = prepare(spec, "cpu")
    run = ready.runs[0]
    cluster = local_cluster(spec, run, folder)
    disturbance = Disturbance(storm, cluster, random.Random(seed), say)
    verdict = disturbance.run(Verdict(seed))
    diaries = [read_diary(folder / name) for name in cluster.nodes]
    start = min(row[0] for diary in diaries for row in diary)  # traces count from there, kills by the wall clock
    killed = [when - start for when, _, aggregator in disturbance.kills if aggregator]
    _check(verdict, merge(diaries), storm, ready, killed)
    return verdict


class Disturbance:
    """A fleet of nodes, and what is done to it."""

    def __init__(self, storm: Storm, cluster: Cluster, dice: random.Random, say: Callable[[str], None]) -> None:
        self.storm, self.cluster, self.dice, self.say = storm, cluster, dice, say
        self.names = list(cluster.nodes)
        self.fleet = Fleet(run_node, [NodeJob(cluster, name) for name in self.names], self.names)
        self.kills: list[tuple[float, int, bool]] = []  # when, who, whether it was the aggregator

    def run(self, verdict: Verdict) -> Verdict:
        """All blows, then peace, then the end."""
        storm = self.storm
        try:
            self._wait_until_all_train()
            time.sleep(storm.warmup)
            for blow in storm.blows:
                getattr(self, f"_{blow}")()
                time.sleep(storm.between)
            time.sleep(storm.settle)
        finally:
            alive = [p for p in self.fleet.processes if p.is_alive()]
            self.fleet.stop()
        verdict.stuck = [process.name for process in alive if process.exitcode == -signal.SIGKILL]
        verdict.killed = [node for _, node, _ in self.kills]
        return verdict

    def _wait_until_all_train(self) -> None:
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            answers = ask_everyone(self.cluster, STATUS, 2.0).values()
            if all(a is not None for a in answers) and sum(a["iterations"] for a in answers if a) > 0:
                return

    def _aggregator(self) -> None:
        answers = ask_everyone(self.cluster, STATUS, 1.0)
        leaders = [index for index, name in enumerate(self.names) if (answers[name] or {}).get("aggregates")]
        self._kill(leaders[0] if leaders else self._somebody(), bool(leaders))

    def _random(self) -> None:
        self._kill(self._somebody(), False)

    def _somebody(self) -> int:
        return self.dice.choice([k for k, process in enumerate(self.fleet.processes) if process.is_alive()])

    def _kill(self, index: int, aggregator: bool) -> None:
        self.say(f"kill -9 {self.names[index]}{' (the aggregator)' if aggregator else ''}")
        self.kills.append((time.time(), index, aggregator))
        self.fleet.signal(index, signal.SIGKILL)
        time.sleep(self.storm.away)
        self.fleet.restart(index, NodeJob(self.cluster, self.names[index], rejoin=True))

    def _hang(self) -> None:
        index = self._somebody()
        self.say(f"SIGSTOP {self.names[index]}")
        self.fleet.signal(index, signal.SIGSTOP)
        time.sleep(2 * self.storm.away)
        self.fleet.signal(index, signal.SIGCONT)

    def _split(self) -> None:
        side = set(self.dice.sample(range(len(self.names)), len(self.names) // 2))
        self.say(f"partition: {' '.join(map(str, sorted(side)))} against the rest")
        files = {index: self.cluster.folder / name / BLOCKED for index, name in enumerate(self.names)}
        for index, file in files.items():
            others = [peer for peer in range(len(self.names)) if (peer in side) != (index in side)]
            file.write_text(" ".join(map(str, others)))
        time.sleep(3 * self.storm.away)
        for file in files.values():
            file.unlink()


def _check(verdict: Verdict, trace: list[Row], storm: Storm, ready: Preparation, killed: list[float]) -> None:
    run = ready.runs[0]
    ledger = Ledger(storm.nodes, sum(row[2] == "train" for row in trace)).play(trace)
    verdict.worst, verdict.mixings = ledger.worst, ledger.mixings
    verdict.iterations = sum(row[2] == "trained" for row in trace)
    leaving = min((row[0] for row in trace if row[2] == "handed_on"), default=trace[-1][0]) - 0.5
    verdict.walks, verdict.copies = _walks_at_the_end(trace, leaving - storm.settle / 2, leaving)
    again = ReplaySetup(storm.nodes, run.initial.cpu(), Evaluate(every=MEASURED), run.setup.optimizer_state)
    measurements = replayed(trace, again, ready.trainer).measurements
    calm = [m.train_loss for m in measurements if m.op.time >= leaving - storm.settle]
    verdict.loss = fmean(calm)
    verdict.reference = _undisturbed(ready, measurements[-1].op.iteration, len(calm))
    verdict.recovery = [seconds / storm.heartbeat for seconds in _recoveries(trace, killed)]
    verdict.replacement = _replacements(trace)


def _walks_at_the_end(trace: list[Row], start: float, end: float) -> tuple[int, int]:
    """Walks that are trained in this time, and how often two copies of one were in training at the same moment."""
    busy: dict[int, set[int]] = {}
    seen: set[int] = set()
    copies = 0
    for row in trace:
        if row[2] == "train":
            others = busy.setdefault(row[5], set())
            copies += start < row[0] < end and bool(others - {row[1]})
            others.add(row[1])
            seen |= {row[5]} if start < row[0] < end else set()
        elif row[2] in ("trained", "handed_on"):
            busy.get(row[5], set()).discard(row[1])
        elif row[2] in ("started", "rejoined"):
            for nodes in busy.values():
                nodes.discard(row[1])
    return len(seen), copies


def _recoveries(trace: list[Row], killed: list[float]) -> list[float]:
    """From each kill of the aggregator to the first mixing of a later term, in seconds."""
    mixings = [(row[0], row[5]) for row in trace if row[2] == "record" and row[11] == "aggregate"]
    found = []
    for when in killed:
        before = max((term for time, term in mixings if time <= when), default=0)
        after = [time for time, term in mixings if time > when and term > before]
        found += [after[0] - when] if after else []
    return found


def _replacements(trace: list[Row]) -> list[float]:
    """From the last training of a lost walk to its restart, in mean return times of that aggregator."""
    found = []
    for restart in (row for row in trace if row[2] == "restarted"):
        visits: dict[int, list[float]] = {}
        for row in trace:
            if row[2] == "trained" and row[1] == restart[1]:
                visits.setdefault(row[5], []).append(row[0])
        gaps = [b - a for times in visits.values() for a, b in pairwise(times)]
        last = max((row[0] for row in trace if row[2] == "trained" and row[5] == restart[5] and row[0] < restart[0]),
                   default=None)  # fmt: skip
        if gaps and last is not None:
            found.append((restart[0] - last) / (sum(gaps) / len(gaps)))
    return found


def _undisturbed(ready: Preparation, iterations: int, last: int) -> float:
    """The loss of a run in the simulator with as many iterations and no faults: the mean of its last measurements."""
    run = ready.runs[0]
    seed, stop = Seed(ready.spec.seed).child("reference"), Stop(iterations=max(1, iterations))
    setup = RunSetup(
        run.setup.protocol, run.setup.graph, seed, stop,
        timing=PoissonTiming(), evaluate=Evaluate(every=MEASURED), lr=run.setup.lr, keep_trace=False,
    )  # fmt: skip
    measurements = Engine(ready.trainer, [setup], [run.initial]).advance(1.0).measurements
    return fmean(m.train_loss for m in measurements[-last:])
