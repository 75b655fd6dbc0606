"""An advice in words that a person understands, and as plain data for programs."""

from __future__ import annotations

from dataclasses import asdict
from math import inf, isfinite
from typing import Any

from walktalk.advisor.advice import Advice, changes
from walktalk.advisor.finals import Finalist
from walktalk.advisor.situation import amount, unscaled
from walktalk.chains import aggregators, metropolis_hastings
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.theory import crossover_walks

COARSE = 0.2  # of the way between two evaluations: a run then stops well after it has got there
SURE = ((0.9, "high"), (0.7, "fair"), (0.0, "low"))


def begun(text: str) -> str:
    """As it begins a sentence; the rest, as in DiLoCo, stays as it is."""
    return text[:1].upper() + text[1:]


def how_sure(advice: Advice) -> str:
    """How sure the advice is, in a word: high, fair or low."""
    return next(word for limit, word in SURE if advice.sure >= limit)


def reasons(advice: Advice) -> list[str]:
    """Why, in two or three sentences."""
    return [line for line in (_measured(advice), _cost_of_an_iteration(advice), _theory(advice)) if line]


def _measured(advice: Advice) -> str:
    goal, best = advice.survey.goal, advice.best
    what = f"{best.protocol.title} with learning rate {best.lr:g}"
    others = sorted((r for r in advice.rivals if r.candidate is not best), key=lambda r: r.mean)
    if advice.missed is not None and goal.budget is not None:
        longest = amount(goal.objective, goal.budget)
        line = f"No pilot reached a loss of {advice.missed:.4g}; {what} came to "
        line += f"the lowest, {advice.loss:.3g} after {longest}"
    elif goal.budget is not None:
        spent = amount(goal.objective, goal.budget)
        line = f"{begun(what)} had the lowest loss in the pilots, {advice.loss:.3g} after {spent}"
    elif advice.reached:
        after = amount(goal.objective, advice.cost)
        line = f"{begun(what)} reached a loss of {advice.loss:.3g} first in the pilots, after {after}"
    else:
        line = f"No pilot reached a loss of {advice.loss:.3g}; {what} came closest"
    return f"{line}{_runner_up(advice, others)}."


def _runner_up(advice: Advice, others: list[Finalist]) -> str:
    if others:
        more = others[0].mean / max(min(r.mean for r in advice.rivals), 1e-300) - 1
        return f"; next was {others[0].candidate.protocol.title} at {others[0].candidate.lr:g}, {more:.0%} more"
    others_ = [c for c in advice.survey.candidates if c.algorithm != advice.best.algorithm]
    rest = [c for c in others_ if isfinite(advice.prospects.get(c.label, inf))]
    if not rest:
        return ""
    candidate = min(rest, key=lambda c: advice.prospects[c.label])
    times = advice.prospects[candidate.label] / max(advice.prospects[advice.best.label], 1e-300)
    return f"; {candidate.protocol.title} was heading for {times:.1f} times that"


def _cost_of_an_iteration(advice: Advice) -> str:
    """What makes the difference on this axis: against gossip for a walk, against a walk for anything else."""
    best, objective = advice.best, advice.survey.goal.objective
    if objective == "iterations":
        return (
            f"{_active(best.active)}; so fewer models learn more per iteration, as long as their noise and the "
            "differences between nodes allow the target."
        )
    unit = amount(objective, best.rates.of(objective))
    verb = "takes" if objective == "time" else "sends"
    walk = best.protocol.family == "walks"
    others = [c for c in advice.survey.candidates if (c.protocol.family == "walks") != walk]
    against = next((c for c in others if c.protocol.core == AsyncGossip()), others[0] if others else None)
    other = f", {amount(objective, against.rates.of(objective))} with {against.protocol.title}" if against else ""
    return f"An iteration {verb} {unit} on average here{other}."


def _active(active: int) -> str:
    if active == 1:
        return "One model gets every step, where R walks or V nodes share the steps out and average them"
    return f"Each training moves the mean of the {active} models by only 1/{active} of its step"


def _theory(advice: Advice) -> str:
    survey = advice.survey
    problem, net = survey.constants.problem, survey.network
    limit = crossover_walks(net, problem)
    data = "mostly alike" if problem.zeta2 < problem.sigma2 else "different"
    if survey.graph.directed or survey.graph.rounds is not None:  # no walk is there, or not all links at once
        return f"The nodes' data are {data} (ζ² = {problem.zeta2:.2g}, σ² = {problem.sigma2:.2g})."
    speed = "fast" if net.p > 0.3 else "slowly" if net.p < 0.1 else "moderately fast"
    line = (
        f"The nodes' data are {data} (ζ² = {problem.zeta2:.2g}, σ² = {problem.sigma2:.2g}) and the graph mixes {speed} "
        f"(p = {net.p:.2g}); by the bounds walks beat gossip per iteration "
        f"{'for any number of walks' if limit > net.nodes else f'below R = {limit:.2g}'}"
    )
    core = advice.best.protocol.core
    if isinstance(core, MultiWalk) and core.walks > 1:
        ends = aggregators(metropolis_hastings(survey.graph))
        line += (
            f", and walks come back to node {ends.best.node} soonest (H = {ends.best.h:.3g}, worst {ends.worst.h:.3g})"
        )
    return f"{line}."


def notes(advice: Advice) -> list[str]:
    """What a person should know before relying on it."""
    survey = advice.survey
    found = [*survey.graph.notes, *_about_privacy(advice), *_about_the_goal(advice), *_about_the_rates(advice)]
    rates = sorted({one.candidate.lr for one in advice.tried if one.candidate.algorithm == advice.best.algorithm})
    if advice.best.lr in (rates[0], rates[-1]) and len(rates) > 1:
        end = "largest" if advice.best.lr == rates[-1] else "smallest"
        found.append(f"{advice.best.lr:g} is the {end} learning rate that was tried; a further one may be better still")
    every = survey.situation.setup.evaluate.every
    if survey.goal.budget is None and every is not None and every > COARSE * advice.predictions["iterations"].value:
        found.append(
            f"a run looks at its loss every {every:,} iterations only, and stops at the first look that shows the "
            f"target; with evaluate.every={max(1, every // 10)} it may stop sooner"
        )
    return found


def _about_privacy(advice: Advice) -> list[str]:
    """What is told of the data, where somebody asked for protection; or that the advised one gives none."""
    privacy, named = advice.best.protocol.privacy, [one.privacy for one in advice.survey.situation.named]
    if privacy is not None and advice.epsilon is not None:
        return [f"the node that trains most spends ε = {advice.epsilon:.3g} at δ = {privacy.delta:g} in such a run"]
    if privacy is None and any(named):
        return [
            "nothing protects the nodes' data in what is advised; name private algorithms alone to choose among such"
        ]
    return []


def _about_the_goal(advice: Advice) -> list[str]:
    """Whether what was asked for is what the numbers are about."""
    survey, found = advice.survey, []
    if advice.missed is not None and survey.goal.budget is not None:
        longest, high = amount(survey.goal.objective, survey.goal.budget), advice.predictions["loss"].high
        found.append(
            f"the target of {advice.missed:.4g} was not reached; the numbers are of a run of {longest}, which ends at "
            f"{high:.3g} or below; take such a target, or a longer stop"
        )
    elif not advice.reached:
        found.append("the target was not reached within the study's stop; costs are extrapolated, and may be far off")
    if survey.lowered:
        found.append(
            f"no target was given; {survey.target:.4g} is where pilots had gained nine tenths of all that they gained "
            "within the study's stop"
        )
    if late := advice.finalist.late:
        found.append(
            f"{len(late)} of {len(advice.finalist.ends)} runs were not there after "
            f"{amount(survey.goal.objective, min(late))} and were not waited for"
        )
    return found


def _about_the_rates(advice: Advice) -> list[str]:
    """Whether the study's own learning rate, or the size of the data, stands in the way."""
    situation, found = advice.survey.situation, []
    if advice.diverged:
        found.append(f"with learning rates from {situation.optimizer.lr:g} on every pilot diverged")
    if word := unscaled(situation.task):
        found.append(word.removeprefix("; "))
    return found


def as_json(advice: Advice) -> dict[str, Any]:
    """Everything, as plain data.

    Args:
        advice: What `advise` gave.
    """
    survey, best, goal = advice.survey, advice.best, advice.survey.goal
    protocol, settings = best.protocol, best.protocol.settings
    return {
        "algorithm": protocol.name,
        "walks": settings.get("walks"),
        "aggregator": settings.get("aggregator"),
        "settings": settings,
        "learning_rate": best.lr,
        "label": best.label,
        "objective": goal.objective,
        "target_loss": survey.target if goal.budget is None else advice.missed,
        "budget": goal.budget,
        "expected": expected(advice),
        "set": changes(advice),
        "why": reasons(advice),
        "notes": notes(advice),
        "confidence": {"within_10_percent_of_the_best": advice.sure, "words": how_sure(advice)},
        "reached": advice.reached,
        "rivals": [
            {"label": r.candidate.label, "value": finite(r.mean), "repetitions": len(r.values), "reached": r.arrived}
            for r in sorted(advice.rivals, key=lambda r: r.mean)
        ],
        "candidates": {label: finite(value) for label, value in advice.prospects.items()},
        "network": {
            "graph": survey.graph.name,
            "nodes": survey.network.nodes,
            "p": survey.network.p,
            "p_prime": survey.network.p_prime,
            "aggregator": asdict(survey.network.returning),
        },
        "constants": {
            key: asdict(getattr(survey.constants, key)) for key in ("F", "L", "sigma2", "zeta2", "zeta2_mean")
        },
        "epsilon": advice.epsilon,
        "trainings": advice.trainings,
    }


def finite(value: float) -> float | None:
    """A value for JSON, which has no infinity: None in its place."""
    return value if isfinite(value) else None


def expected(advice: Advice) -> dict[str, Any]:
    """Iterations, seconds, bits and loss, each with its interval."""
    predictions = {**advice.predictions, "bytes": advice.predictions["bits"].times(1 / 8)}
    found: dict[str, Any] = {
        name: {key: finite(value) for key, value in asdict(one).items()} for name, one in predictions.items()
    }
    if advice.survey.goal.budget is None:
        found["loss"] = {"value": advice.loss}
    return found
