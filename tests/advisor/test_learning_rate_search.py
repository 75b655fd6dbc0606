"""A learning rate at the edge of those tried is not taken for the best."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from walktalk.advisor import Goal, Survey, advise_study, make_survey, of_study
from walktalk.advisor.advise import LearningRateSearch, beyond, its_share, silent
from walktalk.advisor.finals import Finals
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


def survey_of(rate: float = 0.1) -> Survey:
    return make_survey(of_study(study(rate), "cpu"), Goal("iterations"))


def tried_as(survey: Survey, prospects: dict[str, tuple[float, float, float]]) -> list[Tried]:
    """Pilots of the algorithms whose labels begin so, heading for these at 0.3, 1 and 3 times the rate."""
    found = []
    for label, each in prospects.items():
        three = [one for one in survey.candidates if one.algorithm.startswith(label)]
        found += [
            Tried(one, LearningCurve(survey.bench.scale), prospect) for one, prospect in zip(three, each, strict=True)
        ]
    return found


def test_the_rates_of_every_algorithm_that_may_come_to_the_front_are_followed() -> None:
    """Also of those that are behind: another rate may make three times good. Who is further behind is left."""
    survey = survey_of()
    tried = tried_as(
        survey,
        {
            "multi_walk-1": (300.0, 100.0, 200.0),  # between two that are worse
            "multi_walk-2": (900.0, 500.0, 250.0),  # best at the largest
            "multi_walk-4": (280.0, 300.0, 900.0),  # best at the smallest
            "async_gossip": (3000.0, 900.0, 301.0),  # too far behind
        },
    )
    chosen = LearningRateSearch(survey, tried, silent).open_ends()
    assert [(one.algorithm.split("-at")[0], one.lr) for one in chosen] == [
        ("multi_walk-2", 0.9),
        ("multi_walk-4", 0.01),
    ]


def test_an_advice_takes_a_tenth_of_what_running_all_of_them_three_times_would() -> None:
    """Each to its end, or until it costs three times the best."""
    survey = survey_of()
    tried = tried_as(survey, {"multi_walk-1": (200.0, 100.0, inf), "multi_walk-2": (1000.0, 250.0, 300.0)})
    assert its_share(survey, tried) == 0.1 * 3 * (200 + 100 + 300 + 300 + 250 + 300)


def test_who_was_kept_out_by_anothers_luck_is_let_in() -> None:
    """Its pilot promises less than what the one that looked best is now known to cost."""
    survey = survey_of()
    tried = tried_as(survey, {"multi_walk-1": (18.0, 300.0, 5.0), "multi_walk-2": (90.0, 80.0, 70.0)})
    finals = Finals(survey, tried, inf)
    assert [one.candidate.lr for one in finals.finalists] == [0.3, 0.1]  # the best and the rate next to it
    assert not finals.admit(10.0)
    assert finals.admit(25.0)
    assert [one.candidate.lr for one in finals.finalists] == [0.3, 0.1, 0.03]
    assert finals.finalists[2].values
