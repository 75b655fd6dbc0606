"""`advise`: which algorithm for a task on a graph, in Python, and what it will cost."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from typing_extensions import Unpack

from walktalk.advisor import Advice, Goal, InPython, advise_in, of_foundation
from walktalk.api.arguments import study_from_arguments
from walktalk.api.train import train
from walktalk.api.training import AdviceOptions, AdviseKeywords, Training, lists_keywords, split_keywords
from walktalk.core.errors import SpecError
from walktalk.core.old_names import renamed_keywords
from walktalk.runtimes.semantics import Stop
from walktalk.studies import NetworkLike, TaskLike

USUAL_STOP = Stop(iterations=3000)  # where nobody says how long a run may be


@renamed_keywords(told="progress")
@lists_keywords(AdviseKeywords, Training, AdviceOptions)
def advise(
    task: TaskLike, graph: NetworkLike, training: Training | None = None, **keywords: Unpack[AdviseKeywords]
) -> Advice:
    """Advise which algorithm, how many walks, which aggregator and which learning rate: by theory, then short pilots.

    How models are trained may be given as a `Training`, or keyword by keyword; candidates begin at its learning rate.

    Args:
        task: What is learned, and who has which samples: yours, one of ours, or its name.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        training: How models are trained; keywords beside it replace its fields.
    """
    how, rest = split_keywords(advise, training, keywords)
    options = AdviceOptions(**rest)
    if options.budget is not None and options.target_loss is not None:
        raise SpecError("budget and target_loss exclude each other: the lowest loss, or the cheapest way to a loss")
    goal = Goal(options.objective, options.target_loss, options.budget)
    ending = replace(how, stop=USUAL_STOP if how.stop is None else how.stop)
    base = study_from_arguments(task, "multi_walk", graph, ending, {"name": "advice"})  # candidates take its place
    situation = of_foundation(base, options.device, InPython(train, task, graph, _said(how)))
    return advise_in(situation, goal, options.algorithms, options.model_bytes, options.progress)


def _said(training: Training) -> dict[str, Any]:
    """The settings that are not the usual ones, beside those that the advice sets itself or that are luck."""
    usual = Training()
    names = [field.name for field in fields(Training) if field.name not in ("optimizer", "stop", "seed")]
    found = {name: getattr(training, name) for name in names}
    return {name: value for name, value in found.items() if value is not None and value != getattr(usual, name)}
