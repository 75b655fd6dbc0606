"""Short runs of all candidates, side by side in one engine; whoever is behind waits, and may be taken up again.

Cost rises in small equal ratios, and after each every active pilot is measured: a few measurements per doubling,
however long the way turns out to be. Between them it is evaluated as a run of the study is, so its arrival is that of
a run. Every pilot ends in the objective's own unit, so the same share of the way is the same cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.course import Course, Scale, Seen
from walktalk.advisor.goal import Objective
from walktalk.learning import Trainer
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.simulator import RunSetup, Terms, mean_of
from walktalk.runtimes.stacked import Engine, Measurement
from walktalk.seeds import Seed

RATIO = 2 ** (1 / 8)  # from one measurement to the next
FAR = 1e9  # times the first cost: no pilot gets there


@dataclass(frozen=True)
class Bench:
    """What all pilots share."""

    trainer: Trainer
    setup: RunSetup  # graph, timing, bytes, evaluations; protocol, seed, rate and stop are the pilot's own
    objective: Objective
    scale: Scale
    seed: Seed
    unit: float  # the cost at which pilots are measured first
    schedule_end: Callable[[Candidate], float]  # candidate -> the cost at which its learning-rate schedule ends
    budget: float | None = None  # where every pilot ends as a run with that budget does

    @property
    def far(self) -> float:
        """The cost at which a pilot ends: the budget, or one that nobody reaches."""
        return self.budget if self.budget is not None else self.unit * FAR


@dataclass(frozen=True)
class Entry:
    """One pilot: a candidate and a repetition."""

    candidate: Candidate
    repetition: int
    lag: float = 0.0  # cost by which the aggregated model is behind
    settled: float = 0.0  # cost before which it says little


class Pilots:
    """All pilots in one engine."""

    def __init__(self, bench: Bench, entries: Sequence[Entry]) -> None:
        self.bench = bench
        self.entries = list(entries)
        self.courses = [Course(bench.scale, entry.lag, entry.settled, bench.budget is None) for entry in entries]
        initial = [bench.trainer.initial_row(bench.seed.child("initial", e.repetition).integer) for e in entries]
        self.engine = Engine(bench.trainer, [self._setup(entry) for entry in entries], initial)
        self.trainings = 0

    def aim(self, scale: Scale) -> None:
        """Another target for all of them."""
        self.bench = replace(self.bench, scale=scale)
        for course in self.courses:
            course.aim(scale, self.bench.objective)

    def _setup(self, entry: Entry) -> RunSetup:
        bench, candidate = self.bench, entry.candidate
        far = bench.far
        end, schedule = bench.schedule_end(candidate), bench.setup.schedule
        return replace(
            bench.setup,
            protocol=candidate.protocol,
            lr=candidate.lr,
            stop=stop_at(bench.objective, far),
            keep_trace=False,
            # The same paths and batches at every learning rate: so the rates are compared, not the luck.
            seed=bench.seed.child(candidate.algorithm, entry.repetition),
            schedule=lambda progress: schedule(min(1.0, progress * far / end)),
        )

    def advance(self, pilots: Iterable[int], cost: float) -> None:
        """Bring these pilots to this cost, and measure them."""
        chosen = [p for p in pilots if self.courses[p].at < cost]
        if not chosen:
            return
        self.engine.active = dict.fromkeys(chosen)
        before = sum(self.engine.simulations[p].iteration for p in chosen)
        advance = self.engine.advance(cost / self.bench.far)
        self.trainings += sum(self.engine.simulations[p].iteration for p in chosen) - before
        for measurement in advance.measurements:
            self._keep(measurement)
        self._measure(chosen, cost)

    def _keep(self, measurement: Measurement) -> None:
        """An evaluation that a run of the study has."""
        op = measurement.op
        seen = Seen(op.iteration, op.time, op.bits, measurement.train_loss)
        self.courses[measurement.run].evaluated(seen, self.bench.objective)

    def _measure(self, chosen: list[int], cost: float) -> None:
        rows = [self._row(p, self.engine.simulations[p].output()) for p in chosen]
        rows += [self._row(p, mean_of(self.engine.simulations[p].interpreter.members.values())) for p in chosen]
        losses = self.bench.trainer.evaluate(torch.stack(rows))[0].double().cpu().tolist()
        for place, p in enumerate(chosen):
            self.courses[p].add(cost, losses[place], losses[len(chosen) + place])

    def _row(self, pilot: int, terms: Terms) -> torch.Tensor:
        return self.engine.executor.blend([(self.engine.planner.rows[pilot, value], weight) for value, weight in terms])

    def climb(self, pilots: Iterable[int], upto: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Bring these pilots to a cost in small ratios; those that arrive or diverge on the way stay where they are."""
        going = [p for p in pilots if self.courses[p].at < upto]
        while going and not stop():
            at = min(self.courses[p].at for p in going)
            following = min(upto, max(at * RATIO, self.bench.unit))
            # Pilots further ahead wait until the others have come up to them.
            self.advance([p for p in going if self.courses[p].at < following], following)
            courses = self.courses
            going = [p for p in going if courses[p].arrived is None and not courses[p].lost and courses[p].at < upto]


def stop_at(objective: Objective, cost: float) -> Stop:
    """The end of a run that may cost so much of the objective."""
    if objective == "iterations":
        return Stop(iterations=max(1, int(cost)))
    return Stop(time=cost) if objective == "time" else Stop(bits=cost)
