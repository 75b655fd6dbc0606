"""Short runs of all candidates, side by side in one engine; whoever is behind waits, and may be taken up again.

Cost rises in small equal ratios, and after each every active pilot is measured: a few measurements per doubling,
however long the way turns out to be. Every pilot ends in the objective's own unit, so the same share of the way is the
same cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.course import Course, Scale
from walktalk.advisor.goal import Objective
from walktalk.learning import Trainer
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup, Terms, mean_of
from walktalk.runtimes.stacked import Engine
from walktalk.seeds import Seed

RATIO = 2 ** (1 / 8)  # from one measurement to the next
FAR = 1e9  # times the first cost: no pilot gets there
NEVER = Evaluate(every=None, seconds=1e18)  # the pilots are measured from here


@dataclass(frozen=True)
class Bench:
    """What all pilots share."""

    trainer: Trainer
    setup: RunSetup  # graph, timing, bytes; protocol, seed, rate and stop are the pilot's own
    objective: Objective
    scale: Scale
    seed: Seed
    unit: float  # the cost at which pilots are measured first
    schedule_end: Callable[[Candidate], float]  # candidate -> the cost at which its learning-rate schedule ends


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
        self.courses = [Course(bench.scale, entry.lag, entry.settled) for entry in entries]
        initial = [bench.trainer.initial_row(bench.seed.child("initial", e.repetition).integer) for e in entries]
        self.engine = Engine(bench.trainer, [self._setup(entry) for entry in entries], initial)
        self.trainings = 0

    def _setup(self, entry: Entry) -> RunSetup:
        bench, candidate = self.bench, entry.candidate
        far = bench.unit * FAR
        stop = {"iterations": Stop(iterations=round(far)), "time": Stop(time=far), "bits": Stop(bits=far)}[
            bench.objective
        ]
        end, schedule = bench.schedule_end(candidate), bench.setup.schedule
        return replace(
            bench.setup,
            protocol=candidate.protocol,
            lr=candidate.lr,
            stop=stop,
            evaluate=NEVER,
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
        self.engine.advance(cost / (self.bench.unit * FAR))
        self.trainings += sum(self.engine.simulations[p].iteration for p in chosen) - before
        self._measure(chosen, cost)

    def _measure(self, chosen: list[int], cost: float) -> None:
        rows = [self._row(p, self.engine.simulations[p].output()) for p in chosen]
        rows += [self._row(p, mean_of(self.engine.simulations[p].interpreter.members.values())) for p in chosen]
        losses = self.bench.trainer.evaluate(torch.stack(rows))[0].double().cpu().tolist()
        for place, p in enumerate(chosen):
            run = self.engine.simulations[p]
            where = (run.iteration, run.agenda.now, run.bytes * 8.0)
            self.courses[p].add(cost, where, losses[place], losses[len(chosen) + place])

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
