"""What came out of one round, and what of it did not hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.learning import Trainer, TrainingRows
from walktalk.protocols import AGGREGATE, MultiWalk, Protocol, TokenSaga
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger, ReplaySetup, replay
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.stacked import Engine
from walktalk.studies.planning import Preparation, build_trainer

# Is the model as good as that of an undisturbed run which lacks the same data?
#
# Both are judged on all the data of the nodes that are left, over the same iterations, as the mean of many
# measurements: a single one fluctuates, because the latest walk has just trained on one node's data. The undisturbed
# run has the nodes that are left, from the start, the graph between them as it is in the end, and the aggregator of the
# end; it is repeated with other random walks, and its mean is what the disturbed run is held against. The simulator
# does it: a run on real peers, replayed, gives the same model to 1e-4 (`tests/peers/test_replay.py`), so the two differ
# in nothing but in who moved where.
#
# A loss can be held against another where both have come to a floor, which weight decay makes. Algorithms that ask for
# gradients, such as token SAGA, get them without it: their loss falls for ever, and who is a tenth of its iterations
# behind has a loss a tenth to a quarter higher. So of them it is asked how many iterations they are behind.

EVERY = 20  # iterations between two measurements
REPETITIONS = 5  # of the undisturbed run


Curve: TypeAlias = list[tuple[int, float]]  # iterations, and the loss after so many


class Left(NamedTuple):
    """What a round leaves of a network."""

    data: list[int]  # by node: whose data it has, ascending
    graph: Graph  # between them


@dataclass(frozen=True)
class Comparison:
    """Two final losses to compare, disturbed and undisturbed."""

    disturbed: float = math.nan
    undisturbed: float = math.nan  # mean over repetitions
    spread: float = math.nan  # standard deviation between repetitions
    measurements: int = 0  # of each
    behind: float | None = None  # share of its iterations that the disturbed run is behind; None: the loss has a floor

    @property
    def ratio(self) -> float:
        """Above 1 where the disturbed run is worse."""
        return self.disturbed / self.undisturbed


class Judged:
    """Trains on everybody's data, is measured on that of some."""

    def __init__(self, trainer: Trainer, judge: Trainer) -> None:
        self.trainer, self.judge = trainer, judge
        self.device, self.width, self.state_width = trainer.device, trainer.width, trainer.state_width
        self.parameters, self.local_steps = trainer.parameters, trainer.local_steps

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        return self.trainer.train(given)

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.judge.evaluate(rows)


def compare(ready: Preparation, trace: list[TraceRow], left: Left, window: tuple[float, float]) -> Comparison:
    """The losses between two moments of the trace, and in the same iterations of undisturbed runs."""
    run = ready.runs[0]
    task = replace(ready.task, parts=[ready.task.parts[node] for node in left.data], names=None, test_parts=None)
    judge = build_trainer(ready.spec, task, "cpu", samples=sum(len(part) for part in task.parts))
    again = ReplaySetup.of(run.setup, run.initial.cpu(), Evaluate(every=EVERY))
    measured = replay(trace, again, Judged(ready.trainer, judge)).measurements
    judged = [m for m in measured if window[0] < m.op.time < window[1]]
    if not judged:
        return Comparison()
    aggregator = next((row.node for row in reversed(trace) if row.event == "record" and row.detail == AGGREGATE), -1)
    first, last = judged[0].op.iteration, judged[-1].op.iteration
    place = left.data.index(aggregator) if aggregator in left.data else 0
    curves = _undisturbed(ready, _aggregating_at(run.setup.protocol, place), judge, left.graph, last)
    disturbed = fmean(m.train_loss for m in judged)
    reference = [fmean(loss for iteration, loss in curve if iteration >= first) for curve in curves]
    falls = any(row.event == "differentiate" for row in trace)
    behind = _behind(disturbed, curves, (first + last) / 2) if falls else None
    return Comparison(disturbed, fmean(reference), pstdev(reference), len(judged), behind)


def _behind(loss: float, curves: list[Curve], iteration: float) -> float:
    """The share of the iterations by which undisturbed runs had such a loss sooner; below 0 where they had it later."""
    means = {at: fmean(losses) for at, losses in _by_iteration(curves).items()}
    return 1.0 - min((at for at, mean in means.items() if mean <= loss), default=max(means)) / iteration


def _by_iteration(curves: list[Curve]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for at, loss in (point for curve in curves for point in curve):
        found.setdefault(at, []).append(loss)
    return found


def _aggregating_at(protocol: Protocol, node: int) -> Protocol:
    """The aggregate has just been trained on the aggregator's own data, so whose that is matters: the same in both."""
    return replace(protocol, aggregator=node) if isinstance(protocol, MultiWalk) else protocol


def _undisturbed(ready: Preparation, protocol: Protocol, trainer: Trainer, graph: Graph, last: int) -> list[Curve]:
    """The losses of undisturbed runs up to an iteration."""
    run = ready.runs[0]
    seeds = [Seed(ready.spec.seed).child("undisturbed", number) for number in range(REPETITIONS)]
    setups = [
        replace(
            run.setup,
            protocol=protocol,
            graph=graph,
            seed=seed,
            stop=Stop(iterations=last),
            evaluate=Evaluate(every=EVERY),
            keep_trace=False,
        )
        for seed in seeds
    ]
    curves: dict[int, Curve] = {}
    for m in Engine(trainer, setups, [run.initial] * len(setups)).advance(1.0).measurements:
        curves.setdefault(m.run, []).append((m.op.iteration, m.train_loss))
    return list(curves.values())


TOLERANCE = 1.1  # of the undisturbed run's loss
BEHIND = 0.5  # of the iterations, at most, where the loss has no floor: halves of a split network train all walks twice
KEPT = 0.9  # of each half's updates, in the model


class Half(NamedTuple):
    """One side of a partition."""

    updates: int  # that were made there while it lasted
    kept: int  # of these, are in the model after all has settled

    @property
    def share(self) -> float:
        """1 where nothing was made."""
        return self.kept / self.updates if self.updates else 1.0


@dataclass(frozen=True)
class Verdict:
    """What one round of chaos has shown."""

    seed: int
    algorithm: str
    walks_wanted: int  # R; 0 for gossip
    faults: tuple[str, ...] = ()  # in words, as they happened
    gone: tuple[int, ...] = ()  # nodes that were killed or left for good, and for whom nobody came
    aggregators_killed: int = 0
    stuck: tuple[str, ...] = ()  # nodes that had to be ended by force, or ended with an error when asked to leave
    idle: tuple[int, ...] = ()  # nodes that are left and did nothing in the end
    silent: tuple[str, ...] = ()  # nodes that are left and did not answer in the end
    aggregating: tuple[str, ...] = ()  # nodes that said in the end that they aggregate
    refused: tuple[str, ...] = ()  # joins and leaves that did not succeed, in words
    unsound: tuple[str, ...] = ()  # nodes with a model that is not finite
    iterations: int = 0
    mixings: int = 0
    counted: float = 0.0  # the largest weight of an update in an aggregate, or its part of a term's visits
    twice: int = 0  # halves of exchanges that were applied twice
    uneven: int = 0  # means of gradients on their way, in the end, in which a node counts more or less than another
    halves: tuple[Half, ...] = ()  # of partitions, two each
    walks: int = 0  # that are there in the end
    copies: int = 0  # beyond one of each
    loss: Comparison = field(default_factory=Comparison)
    detection: tuple[float, ...] = ()  # from the kill of an aggregator to the first suspicion, in heartbeats
    recovery: tuple[float, ...] = ()  # from the kill of an aggregator to the next one's first mixing, in heartbeats
    replacement: tuple[float, ...] = ()  # from a lost walk's last sign to its restart, in mean return times
    seconds: float = 0.0
    broke: str = ""  # why there is no verdict

    def failures(self) -> list[str]:
        """What did not hold, in words; empty where everything did."""
        if self.broke:
            return [f"broke off: {self.broke}"]
        failed = list(self.refused)
        if self.stuck:
            failed.append(f"did not leave: {' '.join(self.stuck)}")
        if self.idle:
            failed.append(f"did nothing in the end: {' '.join(map(str, self.idle))}")
        if self.silent:
            failed.append(f"did not answer: {' '.join(self.silent)}")
        if self.walks_wanted and len(self.aggregating) != 1:
            failed.append(f"aggregate: {' '.join(self.aggregating) or 'nobody'}")
        if self.unsound:
            failed.append(f"not finite: {' '.join(self.unsound)}")
        if self.counted > 1.001 or self.twice:
            failed.append(f"counted twice: {self.counted:.2f} of an update, {self.twice} exchanges")
        if self.uneven:
            failed.append(f"{self.uneven} means of gradients do not count all nodes alike")
        failed += [f"{h.kept} of {h.updates} updates of a half are in the model" for h in self.halves if h.share < KEPT]
        if self.walks != self.walks_wanted or self.copies:
            failed.append(f"{self.walks} walks and {self.copies} copies, not {self.walks_wanted}")
        if self.loss.behind is not None and self.loss.behind > BEHIND:
            failed.append(f"the loss is {self.loss.behind:.0%} of the iterations behind that of an undisturbed run")
        elif self.loss.behind is None and not self.loss.ratio <= TOLERANCE:
            failed.append(f"the loss is {self.loss.ratio:.2f} times that of an undisturbed run")
        return failed

    @property
    def passed(self) -> bool:
        """Whether everything held that was checked."""
        return not self.failures()


def verdict_of(facts: Mapping[str, Any]) -> Verdict:
    """Back from what `dataclasses.asdict` made of one, through JSON."""
    said = {name: facts[name] for name in Verdict.__dataclass_fields__ if name in facts}
    said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    said["halves"] = tuple(Half(*half) for half in said.get("halves", ()))
    said["loss"] = Comparison(**said["loss"])
    return Verdict(**said)


JUDGED = "judged"  # in the event log of chaos: from here on
ROUNDING = 1e-3  # of weights that are sums
CARRIED = f"/{TokenSaga.extras[0]}/"  # in the slot of a mean of gradients that leaves with its walk

# What the ledger says of partitions: how much of what each half learned is in the model.

WORTH = 0.01  # of an update's usual weight: less than that is not in the model


@dataclass
class Partition:
    """One, as the trace tells of it."""

    side: frozenset[int]
    updates: tuple[list[int], list[int]]  # numbers of trainings that ended meanwhile, on that side and on the other
    lasts: bool = True
    halves: tuple[Half, ...] = ()  # once it has been judged


class LedgerCheck(Ledger):
    """The ledger of a round, and who was on which side of a partition when."""

    def __init__(self, protocol: Protocol, nodes: int, trainings: int) -> None:
        super().__init__(protocol, nodes, trainings)
        self.partitions: list[Partition] = []
        self.uneven = 0  # carried means of gradients, since judging began, that do not count all nodes alike
        self._trained_at = np.full(trainings, -1)  # by number of the training: the node
        self._judging = False

    def before(self, row: TraceRow) -> None:
        """Where all nodes are killed, what was learned since their checkpoints is lost, and what walks learned since
        they last came to the aggregator, too: judge what was before, in the model or with a walk.

        Where they are stopped in order nothing may be lost: walks that had not come to the aggregator by then still do.
        """
        super().before(row)
        if row.event == "restart_of_all" and row.detail == "kill":
            self.judge(
                np.maximum.reduce([self.interpreter.output.model("aggregated"), *self.interpreter.output.in_order()])
            )

    def after(self, row: TraceRow) -> None:
        """Note whose update it is."""
        super().after(row)
        if row.event == "forges":
            self.uses.liars.add(row.node)
        elif row.event in BEGINNINGS:
            self._trained_at[row.number] = row.node
        elif row.event == JUDGED:
            self._judging = True
        elif row.event == "send" and self._judging and CARRIED in row.slot:
            self._weigh_carried(self.interpreter.read(row.node, row.slot))
        if row.event == "partition":
            side = frozenset(int(word) for word in row.detail.split())
            self.partitions.append(Partition(side, ([], [])))
        elif row.event == "heal":
            self.partitions[-1].lasts = False
        elif row.event == "trained":
            for partition in self.partitions:
                if partition.lasts:
                    partition.updates[row.node not in partition.side].append(row.number)

    def _weigh_carried(self, mean: np.ndarray) -> None:
        """What a walk carries is the mean of one gradient a node: each that it has counted has the same weight."""
        numbers = np.flatnonzero(np.abs(mean) > ROUNDING)
        weights = np.bincount(self._trained_at[numbers], mean[numbers])
        counted = weights[weights != 0.0]
        if counted.size and float(np.ptp(counted)) > ROUNDING:
            self.uneven += 1

    def judge(self, model: np.ndarray | None = None) -> None:
        """Compare with a model; None: the one of now."""
        model = self.interpreter.output.model("aggregated") if model is None else model
        for partition in self.partitions:
            if not partition.halves and not partition.lasts:
                partition.halves = tuple(self._half(np.asarray(numbers, int), model) for numbers in partition.updates)

    def _half(self, numbers: np.ndarray, model: np.ndarray) -> Half:
        return Half(len(numbers), int((model[numbers] > WORTH * self.share).sum()))

    @property
    def halves(self) -> tuple[Half, ...]:
        """The halves of all partitions of the round."""
        return tuple(half for partition in self.partitions for half in partition.halves)


# -- What the trace of a round says: who took part, how many walks there are, how soon failures were mended -----------


BEGINNINGS = ("train", "differentiate")
"""Events with which a training begins."""


def taking_part(trace: list[TraceRow], start: float, end: float) -> set[int]:
    """Nodes that took somebody's model in this time: whoever is cut off, hung or forgotten does not."""
    return {row.node for row in trace if row.event == "receive" and row.slot and start < row.time < end}


def copies_of_walks(trace: list[TraceRow], start: float, end: float) -> tuple[int, int]:
    """Walks that are trained in this time, and how often two copies of one were in training at the same moment.

    Rows of a killed node may come after its `kill`, as what it received waits in a trace for who sent it: they say
    nothing until the node is back.
    """
    busy: dict[int, set[int]] = {}
    seen: set[int] = set()
    dead: set[int] = set()
    copies = 0
    for row in trace:
        if row.event in ("started", "rejoined", "kill"):
            (dead.add if row.event == "kill" else dead.discard)(row.node)
            for nodes in busy.values():
                nodes.discard(row.node)
        elif row.node in dead:
            continue
        elif row.event in BEGINNINGS:
            others = busy.setdefault(row.walk, set())
            copies += start < row.time < end and bool(others - {row.node})
            others.add(row.node)
            seen |= {row.walk} if start < row.time < end else set()
        elif row.event in ("trained", "handed_on"):
            busy.get(row.walk, set()).discard(row.node)
    return len(seen), copies


def recoveries(trace: list[TraceRow]) -> list[tuple[float, float]]:
    """Recoveries, one for each kill of the aggregator: seconds to the first suspicion, and to the first mixing of
    a later term.
    """
    mixings = [(row.time, row.node, row.walk) for row in trace if row.event == "record" and row.detail == "aggregate"]
    suspicions = [row.time for row in trace if row.event in ("suspected", "elected")]
    found = []
    for when, node in ((row.time, row.node) for row in trace if row.event == "kill"):
        before = max(((term, mixer) for time, mixer, term in mixings if time <= when), default=(0, -1))
        if before[1] != node:
            continue
        mixed = [time for time, _, term in mixings if time > when and term > before[0]]
        noticed = [time for time in suspicions if time > when]
        if mixed and noticed:
            found.append((min(noticed) - when, mixed[0] - when))
    return found


def replacements(trace: list[TraceRow]) -> list[float]:
    """Times from the last training of a lost walk to its restart, in mean return times of that aggregator.

    A walk that was trained somewhere until a moment before was not lost: it lives in the other half of a split network,
    or came back too late.
    """
    found = []
    steps = _steps(trace)
    if not steps:
        return []
    moment = 10 * median(steps)
    for restart in (row for row in trace if row.event == "restarted"):
        visits: dict[int, list[float]] = {}
        last = None
        for row in trace:
            if row.event == "trained" and row.node == restart.node:
                visits.setdefault(row.walk, []).append(row.time)
            if row.event == "trained" and row.walk == restart.walk and row.time < restart.time:
                last = row.time
        gaps = [b - a for times in visits.values() for a, b in pairwise(times)]
        if gaps and last is not None and restart.time - last > moment:
            found.append((restart.time - last) / (sum(gaps) / len(gaps)))
    return found


def _steps(trace: list[TraceRow]) -> list[float]:
    """Seconds between two trainings of the same walk."""
    times: dict[int, list[float]] = {}
    for row in trace:
        if row.event == "trained":
            times.setdefault(row.walk, []).append(row.time)
    return [b - a for walk in times.values() for a, b in pairwise(walk)]
