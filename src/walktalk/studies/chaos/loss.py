"""Is the model as good as that of an undisturbed run which lacks the same data?

Both are judged on all the data of the nodes that are left, over the same iterations, as the mean of many measurements:
a single one fluctuates, because the latest walk has just trained on one node's data. The undisturbed run has the nodes
that are left, from the start, the graph between them as it is in the end, and the aggregator of the end; it is repeated
with other random walks, and its mean is what the disturbed run is held against. The simulator does it: a run on real
peers, replayed, gives the same model to 1e-4 (`tests/peers/test_replay.py`), so the two differ in nothing but in who
moved where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import NamedTuple

from torch import Tensor

from walktalk.graphs import Graph
from walktalk.learning import Extras, Trainer
from walktalk.protocols import AGGREGATE, MultiWalk, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.peers import ReplaySetup, replay
from walktalk.runtimes.stacked import Engine
from walktalk.seeds import Seed
from walktalk.studies.building import Preparation, build_trainer

EVERY = 20  # iterations between two measurements
REPETITIONS = 5  # of the undisturbed run


class Left(NamedTuple):
    """What a storm leaves of a network."""

    data: list[int]  # by node: whose data it has, ascending
    graph: Graph  # between them


@dataclass(frozen=True)
class Comparison:
    """Two losses."""

    disturbed: float = math.nan
    undisturbed: float = math.nan  # mean over repetitions
    spread: float = math.nan  # standard deviation between repetitions
    measurements: int = 0  # of each

    @property
    def ratio(self) -> float:
        """Above 1 where the disturbed run is worse."""
        return self.disturbed / self.undisturbed


class Judged:
    """Trains on everybody's data, is measured on that of some."""

    def __init__(self, pupil: Trainer, judge: Trainer) -> None:
        self.pupil, self.judge = pupil, judge
        self.device, self.width, self.state_width = pupil.device, pupil.width, pupil.state_width
        self.parameters, self.local_steps = pupil.parameters, pupil.local_steps

    def train(
        self,
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None = None,
        extras: Extras | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        return self.pupil.train(rows, parts, keys, lr, state, extras)

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
    protocol = _aggregating_at(run.setup.protocol, place)
    reference = _undisturbed(ready, protocol, judge, left.graph, (first, last))
    return Comparison(fmean(m.train_loss for m in judged), fmean(reference), pstdev(reference), len(judged))


def _aggregating_at(protocol: Protocol, node: int) -> Protocol:
    """The aggregate has just been trained on the aggregator's own data, so whose that is matters: the same in both."""
    return replace(protocol, aggregator=node) if isinstance(protocol, MultiWalk) else protocol


def _undisturbed(
    ready: Preparation, protocol: Protocol, trainer: Trainer, graph: Graph, window: tuple[int, int]
) -> list[float]:
    run, (first, last) = ready.runs[0], window
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
    losses: dict[int, list[float]] = {}
    for m in Engine(trainer, setups, [run.initial] * len(setups)).advance(1.0).measurements:
        if m.op.iteration >= first:
            losses.setdefault(m.run, []).append(m.train_loss)
    return [fmean(values) for values in losses.values()]
