"""Short runs of all candidates, side by side in one engine; whoever is behind waits, and may be taken up again.

Cost rises in small equal ratios, and after each every active pilot is measured: a few measurements per doubling,
however long the way turns out to be. Between them it is evaluated as a run of the study is, so its arrival is that of
a run. Every pilot ends in the objective's own unit, so the same share of the way is the same cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf, isfinite
from typing import TypeAlias

import torch

from walktalk.advisor.learning_curve import NOTHING_YET, LearningCurve, Scale, Seen
from walktalk.advisor.situation import Candidate, Objective
from walktalk.core.seeds import Seed
from walktalk.learning import Trainer
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import RunSetup, Terms, mean_of
from walktalk.runtimes.stacked import Engine, Measurement

RATIO = 2 ** (1 / 8)  # from one measurement to the next
UNREACHABLE = 1e9  # times the first cost: no pilot gets there


@dataclass(frozen=True)
class Bench:
    """What all pilots share: trainer, graph and timing, objective, seed, and where each ends."""

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
        return self.budget if self.budget is not None else self.unit * UNREACHABLE


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
        self.curves = [LearningCurve(bench.scale, entry.lag, entry.settled, bench.budget is None) for entry in entries]
        initial = [bench.trainer.initial_row(bench.seed.child("initial", e.repetition).integer) for e in entries]
        self.engine = Engine(bench.trainer, [self._setup(entry) for entry in entries], initial)
        self.trainings = 0

    def aim(self, scale: Scale) -> None:
        """Set another target loss for all pilots."""
        self.bench = replace(self.bench, scale=scale)
        for curve in self.curves:
            curve.aim(scale, self.bench.objective)

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
        chosen = [p for p in pilots if self.curves[p].at < cost]
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
        self.curves[measurement.run].evaluated(seen, self.bench.objective)

    def _measure(self, chosen: list[int], cost: float) -> None:
        rows = [self._row(p, self.engine.simulations[p].output()) for p in chosen]
        rows += [self._row(p, mean_of(self.engine.simulations[p].interpreter.output.members.values())) for p in chosen]
        losses = self._losses(rows, [*chosen, *chosen])
        for place, p in enumerate(chosen):
            self.curves[p].add(cost, losses[place], losses[len(chosen) + place])

    def _losses(self, rows: list[torch.Tensor], pilots: list[int]) -> list[float]:
        """Training losses of models of these pilots; of private parts, with those of each pilot's own nodes."""
        trainer = self.bench.trainer
        if trainer.private is None:
            found: list[float] = trainer.evaluate(torch.stack(rows))[0].double().cpu().tolist()
            return found
        pairs = zip(rows, pilots, strict=True)
        return [float(trainer.evaluate(row[None], self._states(pilot))[0]) for row, pilot in pairs]

    def _states(self, pilot: int) -> torch.Tensor:
        """The states of a pilot's nodes, in which their private parts are."""
        engine = self.engine
        numbers = engine.simulations[pilot].recording.states()
        return engine.executor.read_states([engine.planner.rows.get((pilot, -1 - number), -1) for number in numbers])

    def _row(self, pilot: int, terms: Terms) -> torch.Tensor:
        return self.engine.executor.blend([(self.engine.planner.rows[pilot, value], weight) for value, weight in terms])

    def climb(self, pilots: Iterable[int], upto: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Bring these pilots to a cost in small ratios; those that arrive or diverge on the way stay where they are."""
        going = [p for p in pilots if self.curves[p].at < upto]
        while going and not stop():
            at = min(self.curves[p].at for p in going)
            following = min(upto, max(at * RATIO, self.bench.unit))
            # Pilots further ahead wait until the others have come up to them.
            self.advance([p for p in going if self.curves[p].at < following], following)
            curves = self.curves
            going = [p for p in going if curves[p].arrived is None and not curves[p].lost and curves[p].at < upto]


def stop_at(objective: Objective, cost: float) -> Stop:
    """The end of a run that may cost so much of the objective."""
    if objective == "iterations":
        return Stop(iterations=max(1, int(cost)))
    return Stop(time=cost) if objective == "time" else Stop(bits=cost)


# Which pilot goes on: the one that promises most, until nobody who waits could still be better.
#
# First those that theory does not rule out go together until the leader has said something. Then, again and again,
# the few with the best prospects are taken a step further; the others wait where they are, or have not even started.
# A leader that stalls loses its prospects and those who waited are taken up, so an early start that leads nowhere is
# found out.

PLAUSIBLE = 6.0  # times the best promise of theory: the others need not start until the better ones have failed
SAID = 0.06  # of the whole way in progress: the leader has said something
OPENING = 1.3  # from one cost to the next while all go together
STEP = 1.35  # from one cost to the next in the race
CLOSE = 1.15  # prospects within this of the best are taken further together
WORTH = 0.93  # of what is certain: who promises less than 7 % better is not worth the trainings
WORTH_FINISHING = (
    10.0  # times the best prospect: those that promise less are not run to the end even where that is cheap
)
AT_ONCE = 6  # at most so many
RACE_SHARE = 0.7  # of a progress bar; the finalists have the rest
STALLED = 0.35  # of its mean pace so far: the least that is expected of a pilot, so that nobody waits for ever


@dataclass(eq=False)
class Tried:
    """A candidate, its pilot, and where that was heading."""

    candidate: Candidate
    curve: LearningCurve
    prospect: float  # the cost at which it will arrive, or its loss above the lowest when the budget is spent


Report: TypeAlias = Callable[[str, float], None]  # what is being done, and the share of all that is done


@dataclass(frozen=True)
class Limits:
    """How many trainings, and what cost of one pilot, are spent before the search is given up."""

    trainings: float = inf  # of all pilots together
    cost: float = inf  # of one pilot


class Race:
    """The first repetition of every candidate, against each other."""

    def __init__(self, pilots: Pilots, limits: Limits, budget: float | None, told: Report, known: float = inf) -> None:
        self.pilots = pilots
        self.limits = limits
        self.budget = budget  # then the lowest loss at that cost wins; else the first at the target
        self.told = told
        self.known = known  # the prospect of who was best before: who does not promise less is left
        self.opened = pilots.bench.unit  # the cost up to which the plausible ones went together

    def run(self) -> None:
        """Race until no pilot promises more than is certain: afterwards `prospects` are what they will be."""
        self.open()
        while chosen := self.choose():
            ahead = self.pilots.entries[chosen[0]].candidate.label
            self.told(f"{len(self.pilots.curves)} pilots, {len(chosen)} go on, ahead: {ahead}", RACE_SHARE * self.way())
            # Together up to the nearest of their next stops: those of about the same cost share waves.
            self.pilots.climb(chosen, min(self.end(), *(self.next_stop(p) for p in chosen)))

    def complete(self, trainings: float) -> None:
        """Whoever may still be near to where the first arrived, or to the budget, as many as take no more trainings.

        A pilot that was left early for another that was lucky is misjudged; where runs are cheap they are made.
        """
        objective, end, prospects = self.pilots.bench.objective, self.end(), self.prospects()
        upto = WORTH_FINISHING * min(prospects, default=inf)
        found = [p for p, curve in enumerate(self.pilots.curves) if prospects[p] <= upto and not curve.lost]
        entries = self.pilots.entries
        found.sort(key=lambda p: prospects[p])
        needed = [(end - self.pilots.curves[p].at) / entries[p].candidate.rates.of(objective) for p in found]
        found = [p for p, together in zip(found, accumulate(needed), strict=True) if together <= trainings]
        if found:
            self.told(f"{len(found)} pilots to the end", RACE_SHARE)
            self.pilots.climb(found, end)

    def candidates(self) -> list[Tried]:
        """Every candidate, and where it is heading."""
        entries = zip(self.pilots.entries, self.pilots.curves, self.prospects(), strict=True)
        return [Tried(entry.candidate, curve, prospect) for entry, curve, prospect in entries]

    def next_stop(self, pilot: int) -> float:
        """A step further; but before a pilot means anything, there is no use in looking at it."""
        curve = self.pilots.curves[pilot]
        return max(curve.at * STEP, self.opened, min(curve.settled, 0.5 * self.end()))

    def end(self) -> float:
        """No pilot needs to go beyond: the budget, or where the first arrived."""
        if self.budget is not None:
            return self.budget
        arrived = [c.arrived for c in self.pilots.curves if c.arrived is not None]
        return min([self.limits.cost, self.known, *arrived])

    def open(self) -> None:
        """The plausible ones together until the leader has said something."""
        pilots, goal = self.pilots, self.pilots.bench.scale.goal
        while self.opened < self.end() and pilots.trainings < self.limits.trainings:
            chosen = self.plausible()
            self.told(f"{len(chosen)} pilots together", RACE_SHARE * self.way())
            pilots.climb(chosen, self.opened)
            if any(len(c.cost) > 2 and not c.lost and c.progress > SAID * goal for c in pilots.curves):
                return
            self.opened *= OPENING

    def plausible(self) -> list[int]:
        """Those whose cost by theory, up to a common factor, is near the least of all that have not diverged.

        Where neither the sum of all models is kept by mixing nor every update counts once, there is no such theory:
        these start with the others.
        """
        objective = self.pilots.bench.objective
        promise = {
            p: entry.candidate.active / entry.candidate.lr * entry.candidate.rates.of(objective)
            for p, entry in enumerate(self.pilots.entries)
            if not self.pilots.curves[p].lost
        }
        least = min(promise.values(), default=inf)
        protocols = [entry.candidate.protocol for entry in self.pilots.entries]
        return [p for p, cost in promise.items() if cost <= PLAUSIBLE * least or not protocols[p].conserves]

    def way(self) -> float:
        """How far the leader is, from 0 to 1."""
        curves = [c for c in self.pilots.curves if len(c.cost) > 2 and not c.lost]
        if self.budget is not None:
            return max((c.at for c in curves), default=0.0) / self.budget
        return min(1.0, max((c.progress for c in curves), default=0.0) / self.pilots.bench.scale.goal)

    def choose(self) -> list[int]:
        """The pilots to take further: those with the best prospects, while these are better than what is certain."""
        if self.pilots.trainings >= self.limits.trainings:
            return []
        end = self.end()
        prospects = self.prospects()
        certain = min([self.known, *(prospects[p] for p, _ in enumerate(prospects) if self.done(p, end))])
        waiting = [p for p, prospect in enumerate(prospects) if not self.done(p, end) and prospect < WORTH * certain]
        waiting = [p for p in waiting if not self.pilots.curves[p].lost and isfinite(prospects[p])]
        waiting.sort(key=lambda p: prospects[p])
        return [p for p in waiting[:AT_ONCE] if prospects[p] <= CLOSE * prospects[waiting[0]]]

    def done(self, pilot: int, end: float) -> bool:
        curve = self.pilots.curves[pilot]
        return curve.arrived is not None or curve.at >= end

    def prospects(self) -> list[float]:
        """The cost at which each pilot will arrive, or its loss above the lowest when the budget is spent."""
        found = [self.prospect(p) for p in range(len(self.pilots.entries))]
        spoken = [p for p, c in enumerate(self.pilots.curves) if not c.silent and isfinite(found[p])]
        if not spoken:
            return found
        leader = min(spoken, key=lambda p: found[p])
        for p, curve in enumerate(self.pilots.curves):
            if curve.silent and not curve.lost and self.budget is None:
                promise = carried_over(found[leader], self.pilots.entries[leader], self.pilots.entries[p], self)
                found[p] = max(curve.at, promise)
        return found

    def prospect(self, pilot: int) -> float:
        return prospect_of(self.pilots.curves[pilot], self.budget)


def prospect_of(curve: LearningCurve, budget: float | None) -> float:
    """The cost at which a pilot will arrive, or its loss above the lowest when the budget is spent."""
    if budget is not None:
        return curve.scale.excess(curve.expected_loss(budget))
    if curve.arrived is not None or curve.lost or len(curve.cost) < 3:
        return curve.expected_cost()
    progress, here, pace = curve.pace()
    least = STALLED * max(progress, NOTHING_YET) / here
    return max(curve.at, here + (curve.scale.goal - progress) / least) if pace < least else curve.expected_cost()


def carried_over(cost: float, leader: Entry, entry: Entry, race: Race) -> float:
    """What a pilot that has said nothing yet may cost, by theory, when the leader costs so much.

    To first order the mean of all models moves by (learning rate)/(active models) times the gradient in every
    iteration, whatever the algorithm; then it takes the lag until the aggregator knows.
    """
    objective = race.pilots.bench.objective
    a, b = leader.candidate, entry.candidate
    iterations = cost / a.rates.of(objective) * (b.active / a.active) * (a.lr / b.lr)
    return iterations * b.rates.of(objective) + entry.lag
