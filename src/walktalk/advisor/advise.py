"""From a situation and a goal to an advice: pilots race, learning rates are searched, finals decide.

The goal is one that pilots can reach: what they have shown decides, not what a short descent promised.

Without a target the advisor asks for a tenth of the excess over the lowest loss that seems possible. On few samples
that floor may lie far below all that a run gets to, and an extrapolation to it says nothing. Then the target is set by
the lowest loss that pilots came to within the study's stop. A person's own target is not touched: where the stop comes
too early for it and trainings are cheap, pilots go on; and if that does not help either, the question that can be
answered is how low a run gets within the stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any

from walktalk.advisor.advice import Advice
from walktalk.advisor.finals import Finals
from walktalk.advisor.learning_curve import Scale
from walktalk.advisor.pilots import RACE_SHARE, Limits, Pilots, Race, Report, Tried
from walktalk.advisor.situation import Candidate, Goal, Situation, of_study, rounded, unscaled
from walktalk.advisor.survey import OF_THE_WAY, Survey, make_survey, rounded_loss
from walktalk.core.errors import SpecError
from walktalk.core.old_names import renamed_keywords
from walktalk.studies import StudySpec

MOST_TRAININGS = 40.0  # times the iterations of the study's stop, all pilots together
FREE = 0.5  # of the trainings that nobody minds: for pilots; the rest is for repetitions
SHARE = 0.1  # of what running every candidate three times to the end would take: what an advice may take of that
THREE_TIMES, TO_THE_END = 3.0, 3.0  # runs of each; times the best cost, where whoever has not arrived would be given up
OF_ITS_SHARE = 0.4  # for first pilots; the rest is for other rates and for repetitions
IN_TIME = 0.5  # of the longest run: a target that the first pilot reaches later, others may not reach at all
BEYOND = 8.0  # times the longest run: so far pilots go for a target that they have not reached by then
BELOW = 0.05  # of what was gained: how much lower the loss may still get than anything that pilots have shown


def hold_race(survey: Survey, say: Report) -> tuple[Survey, Pilots, Race]:
    """The first repetition of every candidate, until it is known where each was heading; and the goal they had.

    Args:
        survey: What is known before.
        say: Called with a line now and then.
    """
    goal, stop = survey.goal, survey.situation.stop
    pilots = Pilots(survey.bench, [survey.entry(candidate, 0) for candidate in survey.candidates])
    fastest = min(candidate.rates.of(goal.objective) for candidate in survey.candidates)
    most = max(MOST_TRAININGS * (stop.iterations or survey.longest / fastest), survey.affordable)
    race = Race(pilots, Limits(most, survey.longest), goal.budget, say)
    race.run()
    if goal.budget is None and goal.target_loss is None:
        survey = within_reach(survey, race)
    elif goal.budget is None:
        survey = further(survey, race)
    most = min(FREE * survey.affordable, OF_ITS_SHARE * its_share(survey, race.candidates()))
    race.complete(most - pilots.trainings)
    return survey, pilots, race


def first_arrival(pilots: Pilots) -> float:
    """The cost at which the first pilot was there; infinity where none was."""
    return min((curve.arrived for curve in pilots.curves if curve.arrived is not None), default=inf)


def within_reach(survey: Survey, race: Race) -> Survey:
    """The survey with a target that pilots have shown, where ours is reached late or not at all; they then go on."""
    pilots, old = race.pilots, survey.bench.scale
    lowest = min((curve.lately for curve in pilots.curves if not curve.lost), default=inf)
    if first_arrival(pilots) <= IN_TIME * survey.longest or not lowest < old.start:
        return survey
    gained = old.start - lowest
    target = rounded_loss(lowest + OF_THE_WAY * gained)
    if not old.target < target < old.start:
        return survey
    pilots.aim(Scale(old.start, lowest - BELOW * gained, target))
    race.run()
    return replace(survey, bench=pilots.bench, lowered=True)


def further(survey: Survey, race: Race) -> Survey:
    """The survey with longer runs, where the stop is too early for the target and trainings are cheap."""
    pilots, longest = race.pilots, survey.longest
    while (
        not isfinite(first_arrival(pilots))
        and not all(curve.lost for curve in pilots.curves)
        and survey.situation.constant_rate  # a schedule says how long a run is
        and pilots.trainings < survey.affordable
        and 2 * longest <= BEYOND * survey.longest
    ):
        longest *= 2
        race.limits = replace(race.limits, cost=longest)
        race.run()
    return replace(survey, longest=longest) if isfinite(first_arrival(pilots)) else survey


def without_target(survey: Survey) -> Survey:
    """The question that can be answered where no pilot got to the target: the lowest loss within the longest run."""
    goal = Goal(survey.goal.objective, budget=survey.longest)
    end = survey.longest
    bench = replace(survey.bench, budget=end, schedule_end=lambda candidate: end)
    return replace(survey, goal=goal, bench=bench)


def its_share(survey: Survey, tried: Sequence[Tried]) -> float:
    """How many trainings an advice may take: a tenth of three runs of every candidate to the target, or to the budget.

    Args:
        survey: What is known.
        tried: Every candidate, and where it is heading.
    """
    goal = survey.goal
    best = min((one.prospect for one in tried if isfinite(one.prospect)), default=survey.longest)
    whole = 0.0
    for one in tried:
        end = min(one.prospect, TO_THE_END * best) if goal.budget is None else goal.budget
        cost = one.curve.at if one.curve.lost else max(end, one.curve.at)
        whole += cost / max(one.candidate.rates.of(goal.objective), 1e-300)
    return SHARE * THREE_TIMES * whole


# A learning rate at the edge of those tried may not be the best: larger ones, or smaller ones, are tried until one is
# not better than the one before. So it is for every algorithm that may still come to the front by it, not for the
# leader alone: whose best rate lies within those tried is ahead of all whose best rate does not.

FACTOR = 3.0  # from one rate to the next
STEPS = 5  # at most: 243 times the study's own rate
AGAIN = 2.0  # times the cost of arriving
NEARLY = 1.2  # times the prospect of who was best before: who does not promise that is not looked at so closely
GAINS = 3.0  # times less, at most, is what the next rate costs: to first order a model moves by rate times gradient


class LearningRateSearch:
    """Tries learning rates beyond the largest or smallest, for as long as each is better than the one before."""

    def __init__(self, survey: Survey, tried: list[Tried], say: Report) -> None:
        """
        - `survey`: what is known.
        - `tried`: all candidates so far; new ones are added.
        - `say`: called with a line now and then.
        """
        self.survey, self.tried, self.say = survey, tried, say
        self.trainings = 0

    def search(self) -> None:
        """Pilots beyond the edge of every algorithm that may be best there, in rounds, until there is none."""
        for _ in range(STEPS):
            chosen = self.open_ends()
            if not chosen:
                return
            self.run(chosen)

    def open_ends(self) -> list[Candidate]:
        """The next rate of every algorithm whose best one is at the edge, and which may come to the front by it."""
        best = min(one.prospect for one in self.tried)
        found = []
        for protocol in dict.fromkeys(one.candidate.protocol for one in self.tried):
            leader = min(
                (one for one in self.tried if one.candidate.protocol == protocol),
                key=lambda one: (one.prospect, one.candidate.lr),
            )
            near = self.survey.goal.budget is not None or leader.prospect <= GAINS * best
            rate = beyond(leader.candidate, self.tried)
            if rate is not None and isfinite(best) and (near or leader.curve.lost):
                found.append(replace(leader.candidate, lr=rate))
        return found

    def run(self, candidates: list[Candidate]) -> list[Tried]:
        """A pilot of each, as far as it may still be the best, or to the budget.

        Args:
            candidates: With rates that nobody has tried.
        """
        goal, survey = self.survey.goal, self.survey
        known = min((one.prospect for one in self.tried), default=inf)
        names = ", ".join(f"{one.algorithm} {one.lr:g}" for one in candidates)
        self.say(f"beyond the edge of the learning rates: {names}", RACE_SHARE)
        pilots = Pilots(survey.bench, [survey.entry(one, 0) for one in candidates])
        race = Race(pilots, Limits(cost=survey.longest), goal.budget, self.say, known)
        race.run()
        prospects = race.prospects()
        found = []
        for place, candidate in enumerate(candidates):
            by_luck = prospects[place] <= NEARLY * known and arrived_by_luck(pilots, place)
            found.append(Tried(candidate, pilots.curves[place], inf if by_luck else prospects[place]))
        self.trainings += pilots.trainings
        self.tried += found
        return found

    def step(self, leader: Candidate) -> Tried | None:
        """A pilot with the next rate of the one that is ahead; None where its rate is between two others."""
        rate = beyond(leader, self.tried)
        return None if rate is None else self.run([replace(leader, lr=rate)])[0]


def arrived_by_luck(pilots: Pilots, pilot: int = 0) -> bool:
    """Whether a pilot that has arrived is lost when it has gone as far again: then its rate is too large to be advised.

    A large rate throws models about, and sooner or later an evaluation finds one that is good for a moment. Where it
    only comes late in some runs, repetitions show it.
    """
    curve = pilots.curves[pilot]
    if curve.arrived is None:
        return False
    pilots.advance([pilot], AGAIN * max(curve.arrived, curve.at))
    return curve.lost


def beyond(leader: Candidate, tried: list[Tried]) -> float | None:
    """The next rate beyond those tried of the leader's algorithm; None where it is between two that are worse."""
    rates = [one.candidate.lr for one in tried if one.candidate.protocol == leader.protocol]
    if leader.lr == max(rates):
        return rounded(leader.lr * FACTOR)
    return rounded(leader.lr / FACTOR) if leader.lr == min(rates) else None


SMALLER = (1.0, 1 / 27, 1 / 729, 1 / 19683)  # of the study's learning rate, until not all pilots diverge
CAUTION = 0.95  # a pilot that was left waiting may have been the best after all


@renamed_keywords(told="progress")
def advise_study(
    spec: StudySpec,
    goal: Goal | None = None,
    *,
    algorithms: str | Sequence[Any] | None = None,
    device: str = "auto",
    model_bytes: int | None = None,
    progress: Report | None = None,
) -> Advice:
    """Advise which algorithm, how many walks, which aggregator, which learning rate: by theory, then by short pilots.

    Args:
        spec: The study: graph, task, timing, learning rate, stop and evaluations.
        goal: What to save, and how far to get; time to a tenth of the excess loss if left out.
        algorithms: What to choose among: "all", or a list of names; walks, gossip and what the study names if left out.
        device: `auto`, `cpu` or `cuda`, for the pilots.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        progress: Called now and then with what is being done, and the share of all that is done.
    """
    return advise_in(of_study(spec, device), goal or Goal(), algorithms, model_bytes, progress)


def advise_in(
    situation: Situation,
    goal: Goal,
    algorithms: str | Sequence[Any] | None = None,
    model_bytes: int | None = None,
    progress: Report | None = None,
) -> Advice:
    """Advise in any situation, as `of_study` or `of_foundation` make one; the arguments are those of `advise_study`."""
    say = progress or silent
    say("looking at the task and the network", 0.0)
    diverged, rates = 0, list[float]()
    for smaller in SMALLER:
        try:
            survey = make_survey(situation, goal, wanted=algorithms, model_bytes=model_bytes, smaller=smaller)
            advice = advise_on(survey, say)
        except AllDiverged as error:
            diverged, rates = diverged + error.trainings, [*rates, *error.rates]
            say("all diverged; smaller learning rates", 0.0)
        else:
            return replace(advice, trainings=advice.trainings + diverged, diverged=smaller < 1.0)
    raise SpecError(
        f"optimizer.lr: {situation.optimizer.lr:g} is too large; every pilot diverged, with rates of {min(rates):g} "
        f"to {max(rates):g}; take a much smaller one and ask again{unscaled(situation.task)}"
    )


def silent(text: str, share: float) -> None:
    """A report of progress that nobody listens to."""


def advise_on(survey: Survey, say: Report) -> Advice:
    """Advise for a situation that is prepared: survey, pilots, finals, prediction."""
    asked = survey.target
    survey, pilots, race = hold_race(survey, say)
    spent, missed = pilots.trainings, None
    if all(curve.lost for curve in pilots.curves):  # an extrapolation from them would be made of nothing
        raise AllDiverged(survey, spent)
    if survey.goal.budget is None and not isfinite(first_arrival(pilots)):
        say("the target is out of reach; how low a run gets instead", 0.0)
        missed = asked
        survey, pilots, race = hold_race(without_target(survey), say)
        spent += pilots.trainings
    tried = race.candidates()
    rates = LearningRateSearch(survey, list(tried), say)
    rates.search()
    allowed = its_share(survey, tried) + its_share(survey, rates.tried[len(tried) :])
    finals = Finals(survey, rates.tried, allowed - pilots.trainings - rates.trainings)
    say(f"finalists: {len(finals.finalists)}, with other randomness", RACE_SHARE)
    best = finals.run()
    for _ in range(STEPS):  # repetitions may have put one at the edge first
        further = rates.step(best.candidate)
        if further is None or (next_best := finals.run_with(further)) is best:
            break
        best = next_best
    spent += rates.trainings + finals.trainings
    reached = missed is None and (best.arrived or survey.goal.budget is not None)
    sure = finals.confidence(best) * (CAUTION if reached else 0.5)
    return Advice(survey, best, finals.finalists, rates.tried, sure, spent, missed=missed)


class AllDiverged(SpecError):
    """No pilot has kept a loss that is a number, or near one."""

    def __init__(self, survey: Survey, trainings: int) -> None:
        self.rates = [candidate.lr for candidate in survey.candidates]
        self.trainings = trainings
        super().__init__("every pilot diverged")
