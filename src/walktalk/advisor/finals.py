"""The closest candidates again, with other randomness, one repetition after the other, until one is clearly ahead.

The learning rates of a single walk are told apart badly by one pilot; many models at once hardly differ from run to
run. So repetitions go on only where they can still change the advice. The one that is advised then runs a few times
more: what is said about a run to come is taken from runs that had no part in its being chosen by the race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log, sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from walktalk.advisor.learning_curve import LearningCurve, Seen
from walktalk.advisor.pilots import Pilots, Tried
from walktalk.advisor.situation import Candidate
from walktalk.advisor.survey import Survey

# How sure it is that nobody else is much better, from the repetitions of each.

WITHIN = 1.1  # "as good as": within 10 % of the best
LEAST_COMPARED_SPREAD = 0.05  # of one repetition's cost, relative: two that agree by luck prove nothing
ASSUMED_SPREAD = 0.15  # the relative spread that is assumed where nothing was repeated
ASSUMED_FREEDOM = 5.0  # degrees of freedom that such an assumption counts for


def confidence(best: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """The probability that no other is really more than 10 % better, with Student's errors of the log means.

    Args:
        best: Costs, or losses, of the one that is advised, by repetition.
        others: Those of every other; one without any takes no part.
    """
    spread, freedom = log_spread([best, *others])
    sure, mean = 1.0, float(np.mean(best)) if len(best) else 0.0
    for other in others:
        theirs = float(np.mean(other)) if len(other) else np.inf
        if mean > 0 and isfinite(theirs):
            gap = log(WITHIN * theirs / mean)
            sure *= float(stdtr(freedom, gap / (spread * sqrt(1 / len(best) + 1 / len(other)))))
    return sure


def log_spread(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The relative spread of one repetition, pooled over all, and its degrees of freedom."""
    logs = [np.log(np.maximum(of, 1e-300)) for of in values if len(of) > 1]
    freedom = sum(len(of) - 1 for of in logs)
    if not freedom:
        return ASSUMED_SPREAD, ASSUMED_FREEDOM
    squares = sum(float(((of - of.mean()) ** 2).sum()) for of in logs)
    return max(LEAST_COMPARED_SPREAD, sqrt(squares / freedom)), max(float(freedom), 2.0)


# What runs that were made say about one to come: its expected value, and between which it will lie 95 times of 100.
#
# Costs and losses differ by factors, so their logarithms are taken as normal: the interval is Student's for one more
# value beside n that were seen, and at least as wide as what was seen.

COVERS = 0.95  # of runs to come
LEAST_SPREAD = 0.02  # of one run, relative: some that agree by luck prove nothing
SPREAD_OF_ONE_RUN = 0.3  # the relative spread that is assumed where nothing was repeated
GUESSED = 4.0  # times wider where no run has got there


@dataclass(frozen=True)
class Prediction:
    """A number of a run to come."""

    value: float  # on average
    low: float  # 95 % of runs lie between this
    high: float  # and this

    def times(self, factor: float) -> Prediction:
        """The prediction in another unit, both ends of its interval too."""
        return Prediction(self.value * factor, self.low * factor, self.high * factor)


def predict(seen: Sequence[float], guessed: bool = False) -> Prediction:
    """Predict one more run from what runs with other randomness have shown.

    Args:
        seen: Their costs, or their losses.
        guessed: Whether none has really got there, and these are extrapolations.
    """
    values = np.array([value for value in seen if np.isfinite(value)], dtype=float)
    if len(values) == 0:
        return Prediction(inf, 0.0, inf)
    logs = bool((values > 0).all())  # a loss may be negative
    x = np.log(values) if logs else values
    scale = 1.0 if logs else max(float(np.abs(values).mean()), 1e-12)
    n = len(x)
    spread = SPREAD_OF_ONE_RUN * scale if n == 1 else max(float(x.std(ddof=1)), LEAST_SPREAD * scale)
    reach = float(stdtrit(max(n - 1, 1) if n > 1 else 5, 0.5 + COVERS / 2)) * spread * sqrt(1 + 1 / n)
    reach *= GUESSED if guessed else 1.0
    low, high = float(x.mean()) - reach, float(x.mean()) + reach
    if logs:
        low, high = exp(low), exp(min(high, 700.0))
    mean = float(values.mean())
    return Prediction(mean, min(low, float(values.min())), max(high, float(values.max())))


RIVALS, AMPLE_RIVALS = 3, 6  # at most so many, and the neighbours in learning rate of a noisy leader; if affordable
A_ROUND = 0.2  # of what may be spent: what one repetition of that many may take
NOISY = 4  # models or fewer: one pilot says little about its learning rate
NEAR = 1.5  # prospects within this of the best
MISJUDGED = 2.5  # the same of its neighbours in learning rate, where many models hardly differ from run to run
STILL_NEAR = 1.2  # mean values within this of the best
UNDECIDED = 1.15  # mean values within this of the best are worth more than the usual repetitions
USUAL, MOST = 2, 8  # repetitions beside the first pilot; while they are affordable
WIDE = 1.5  # upper over lower end: such an interval is worth more runs, if they are cheap
LEAST, ENOUGH, AMPLE = 4, 8, 16  # runs from which an interval is read: with 8 it is 28 % too wide, with 16 an eighth
SETTLED = 0.9  # so sure that nobody is 10 % better: then nobody is looked at any longer
PATIENCE = 1.15  # times the best cost: a repetition that takes longer is not waited for
WAIT = 4.0  # times the mean cost: how long one is waited for that tells what a run costs
HOPELESS = 10.0  # times what was spent on it: what a repetition without any prospect counts as


@dataclass(eq=False)
class Finalist:
    """A candidate that is measured to the end."""

    candidate: Candidate
    values: list[float] = field(default_factory=list)  # cost at the target, or loss at the budget, by repetition
    ends: list[Seen] = field(default_factory=list)  # where repetitions ended that had no part in the race
    left: list[int] = field(default_factory=list)  # repetitions that were not waited for: another was ahead
    late: list[float] = field(default_factory=list)  # costs after which runs were not waited for any longer
    arrived: bool = False  # whether any of them really reached the target
    confirmed: bool = False  # whether `values` are those of runs that were all waited for

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else inf


class Finals:
    """Repeats the closest candidates with other randomness until one is clearly ahead."""

    def __init__(self, survey: Survey, tried: list[Tried], allowed: float) -> None:
        """
        - `survey`: what is known.
        - `tried`: every candidate that was in the race.
        - `allowed`: trainings that repetitions may take, but for the fewest without which nothing can be said.
        """
        self.survey, self.tried, self.trainings, self.repetitions = survey, tried, 0, 0
        self.allowed = allowed
        self.expected = min((one.prospect for one in tried if isfinite(one.prospect)), default=inf)
        chosen = choose(tried)
        leader = min(chosen, key=lambda one: one.prospect).candidate
        run = self.iterations(leader, self.expected)
        self.kept = (ENOUGH - USUAL) * run  # of what is allowed, for the runs that tell what the advised one costs
        if AMPLE_RIVALS * run <= A_ROUND * allowed:
            chosen = choose(tried, AMPLE_RIVALS)
        self.finalists = [self.finalist(one) for one in chosen]

    def iterations(self, candidate: Candidate, cost: float) -> float:
        """How many a run of it has that costs so much, or the budget."""
        goal = self.survey.goal
        spent = cost if goal.budget is None else goal.budget
        return spent / max(candidate.rates.of(goal.objective), 1e-300)

    def finalist(self, one: Tried) -> Finalist:
        """The candidate with what its pilot has shown; a pilot that was left waiting may only have had bad luck."""
        made, budget = Finalist(one.candidate), self.survey.goal.budget
        if budget is not None and one.curve.at >= budget:
            made.values.append(one.curve.final_loss)
        elif budget is None and one.curve.arrived is not None:
            made.values.append(one.curve.arrived)
            made.arrived = True
        return made

    def run(self) -> Finalist:
        """Repeat until it is decided; the one that is advised."""
        while self.repetitions < MOST and (alive := self.alive(self.repetitions + 1)):
            self.repeat(alive)
        return self.advised()

    def run_with(self, more: Tried) -> Finalist:
        """Compare one candidate more, once the others have been run."""
        if more.prospect <= NEAR * self.expected:
            self.finalists.append(self.finalist(more))
        return self.advised()

    def advised(self) -> Finalist:
        """The one with the least mean, its runs all waited for."""
        while True:
            best = min(self.finalists, key=lambda finalist: finalist.mean)
            if best.confirmed:
                return best
            hoped = best.mean
            self.confirm(best)
            spent = self.trainings > self.allowed
            if self.admit(best.mean / WITHIN, 1, 1) if spent else self.admit(best.mean):
                continue
            next_best = min((one.mean for one in self.finalists if one is not best), default=inf)
            if best.mean <= WITHIN * next_best or (spent and best.mean <= STILL_NEAR * hoped):
                return best  # else it was luck, as with a rate at which one run in eight never gets there

    def admit(self, most: float, count: int = RIVALS, repetitions: int = USUAL) -> bool:
        """Whether there are others that promise less than the best is now known to cost; they are repeated.

        Who looked best by luck has kept them out.

        Args:
            most: Who promises less is let in.
            count: So many of them, those that promise the least.
            repetitions: So often they run at first.
        """
        floor = 0.0 if self.survey.goal.budget is None else self.survey.bench.scale.floor
        there = {one.candidate for one in self.finalists}
        waiting = [one for one in self.tried if one.candidate not in there and floor + one.prospect < most]
        made = [self.finalist(one) for one in sorted(waiting, key=lambda one: one.prospect)[:count]]
        self.finalists += made
        for _ in range(repetitions if made else 0):
            self.repeat(made)
        return bool(made)

    def alive(self, repetition: int) -> list[Finalist]:
        """Who runs again; nobody when the matter is settled."""
        best = min(finalist.mean for finalist in self.finalists)
        close = UNDECIDED if repetition > USUAL else STILL_NEAR
        near = [f for f in self.finalists if not f.values or f.mean <= close * best]
        spent = self.trainings > self.allowed - self.kept
        if repetition > USUAL and (len(near) < 2 or spent or self.settled()):
            return []
        if len(near) == 1 and near[0].values:
            enough = 2 if near[0].candidate.active <= NOISY else 1
            return [] if len(near[0].values) >= enough else near
        return near

    def confidence(self, best: Finalist) -> float:
        """How sure it is that no other finalist is much better than this one."""
        return confidence(best.values, [other.values for other in self.finalists if other is not best])

    def settled(self) -> bool:
        """Whether more repetitions would only tell apart those that are as good as each other."""
        return self.confidence(min(self.finalists, key=lambda finalist: finalist.mean)) >= SETTLED

    def repeat(self, alive: list[Finalist]) -> None:
        """One more repetition of each."""
        self.repetitions += 1
        pilots = Pilots(self.survey.bench, [self.survey.entry(one.candidate, self.repetitions) for one in alive])
        if self.survey.goal.budget is not None:
            pilots.climb(range(len(alive)), self.survey.goal.budget)
        else:
            self.to_the_first(pilots)
        self.trainings += pilots.trainings
        for finalist, curve in zip(alive, pilots.curves, strict=True):
            self.add(finalist, curve)

    def add(self, finalist: Finalist, curve: LearningCurve) -> None:
        """Add what one more repetition of this finalist has shown."""
        if self.survey.goal.budget is not None:
            finalist.values.append(curve.final_loss)
            finalist.ends.append(curve.seen[-1])
            return
        finalist.values.append(min(max(curve.expected_cost(), curve.at), HOPELESS * curve.at))
        if curve.arrival is not None:
            finalist.arrived = True
            finalist.ends.append(curve.arrival)
        else:
            finalist.left.append(self.repetitions)

    def to_the_first(self, pilots: Pilots) -> None:
        """Until the first arrives, and a little longer for those that may be close behind."""
        everyone, upto = range(len(pilots.entries)), 0.3 * min(self.expected, self.survey.longest)
        upto = upto or self.survey.bench.unit  # a pilot may begin at the target by luck: its cost is nothing
        while upto < 2 * self.survey.longest:
            pilots.climb(everyone, upto)
            first = min((c.arrived for c in pilots.curves if c.arrived is not None), default=inf)
            if isfinite(first):
                known = min(finalist.mean for finalist in self.finalists)
                pilots.climb(everyone, PATIENCE * max(first, known if isfinite(known) else 0.0))
                return
            upto *= 1.1

    def confirm(self, best: Finalist) -> None:
        """Runs of the advised one, all waited for, until there are enough to tell what a run costs.

        Repetitions that were left because another was ahead are made again with the same randomness, to their end: else
        only the quick ones would count.
        """
        goal, again = self.survey.goal, best.left
        best.confirmed = True
        if goal.budget is None and not best.arrived:
            return  # nothing but extrapolations: more of them would not make it sure
        last, run = self.repetitions, self.iterations(best.candidate, best.mean)
        left = max(LEAST - len(best.ends), int((self.allowed - self.trainings) / max(run, 1.0)))
        new = range(last + 1, last + 1 + max(0, min(ENOUGH - len(best.ends), left) - len(again)))
        self.to_the_end(best, [*again, *new])
        affordable = (AMPLE - ENOUGH) * run <= self.allowed - self.trainings
        found = predict(best.values)
        if affordable and found.high > WIDE * found.low > 0:
            last += len(new)
            self.to_the_end(best, list(range(last + 1, last + 1 + max(0, AMPLE - len(best.ends)))))

    def to_the_end(self, best: Finalist, repetitions: list[int]) -> None:
        """These runs of the advised one, all waited for."""
        goal, survey = self.survey.goal, self.survey
        if repetitions:
            pilots = Pilots(survey.bench, [survey.entry(best.candidate, repetition) for repetition in repetitions])
            upto = goal.budget if goal.budget is not None else min(WAIT * best.mean, 2 * survey.longest)
            pilots.climb(range(len(pilots.entries)), upto)
            self.trainings += pilots.trainings
            best.late += [] if goal.budget is not None else [c.at for c in pilots.curves if c.arrival is None]
            best.ends += [self.end_of(curve) for curve in pilots.curves]
        best.values = [end.of(goal.objective if goal.budget is None else "loss") for end in best.ends]

    def end_of(self, curve: LearningCurve) -> Seen:
        """Where a run ends, or would by its pace where it was waited for in vain."""
        if self.survey.goal.budget is not None:
            return curve.seen[-1]
        if curve.arrival is not None:
            return curve.arrival
        last, objective = curve.seen[-1], self.survey.goal.objective
        more = min(max(curve.expected_cost(), curve.at), HOPELESS * curve.at) / max(last.of(objective), 1e-300)
        return Seen(last.iterations * more, last.time * more, last.bits * more, inf)


def choose(tried: list[Tried], rivals: int = RIVALS) -> list[Tried]:
    """The best few, and the best one's neighbours in learning rate, which one run may misjudge.

    Args:
        tried: All candidates, and where they were heading.
        rivals: At most so many, and those neighbours.
    """
    order = sorted((one for one in tried if isfinite(one.prospect)), key=lambda one: one.prospect)
    if not order:
        return tried[:1]
    best = order[0]
    found = [one for one in order[:rivals] if one.prospect <= NEAR * best.prospect]
    same = [one for one in tried if one.candidate.protocol == best.candidate.protocol]
    same.sort(key=lambda one: one.candidate.lr)
    place = same.index(best)
    near = MISJUDGED if best.candidate.active > NOISY else inf
    found += [one for one in same[max(0, place - 1) : place + 2] if one.prospect <= near * best.prospect]
    return list(dict.fromkeys(found))
