"""A learning rate at the edge of those tried is not taken for the best."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from walktalk.advisor import Goal, advise_study, make_survey, of_study
from walktalk.advisor.advise import beyond
from walktalk.advisor.learning_curve import LearningCurve
from walktalk.advisor.pilots import Tried
from walktalk.studies import StudySpec, make_spec


def study(lr: float) -> StudySpec:
    """A quadratic whose noise is small: large rates are the best, up to 1 over the curvature."""
    content: dict[str, Any] = {
        "network": {"topology": "complete", "nodes": 4},
        "task": {"name": "quadratic", "noise": 0.01, "heterogeneity": 0.01, "dimension": 4, "convexity": 0.5},
        "training": {"batch_size": 4, "local_steps": 1},
        "optimizer": {"lr": lr, "momentum": 0.0, "nesterov": False},
        "algorithms": [{"name": "async_gossip"}],
        "stop": {"iterations": 2000},
        "evaluate": {"every": 1},
    }
    return make_spec(content)


def test_rates_beyond_those_tried_are_searched_until_one_is_worse() -> None:
    """Asked with a rate that is 30 times too small, it comes to one that is larger than the largest first tried."""
    advice = advise_study(study(0.01), Goal("iterations"), device="cpu")
    assert advice.best.lr > 0.031
    rates = [one.candidate.lr for one in advice.tried if one.candidate.protocol == advice.best.protocol]
    assert max(rates) > advice.best.lr  # the next one was tried, and was no better


def test_which_rate_comes_next() -> None:
    survey = make_survey(of_study(study(0.1), "cpu"), Goal("iterations"))
    one = survey.candidates[0]
    tried = [Tried(replace(one, lr=lr), LearningCurve(survey.bench.scale), inf) for lr in (0.03, 0.1, 0.3)]
    assert beyond(tried[2].candidate, tried) == 0.9
    assert beyond(tried[0].candidate, tried) == 0.01
    assert beyond(tried[1].candidate, tried) is None
