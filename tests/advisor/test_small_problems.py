"""Somebody's own data at a few sites: what cannot be reached is not extrapolated, and what is cheap is measured."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest
import torch

import walktalk as wt
from walktalk.advisor import Goal, advise_study, as_json, of_study, survey
from walktalk.advisor.finals import confidence
from walktalk.advisor.learning_curve import LearningCurve, Scale, Seen
from walktalk.advisor.situation import World, algorithms, unscaled
from walktalk.advisor.survey import affordable
from walktalk.core.seeds import Seed
from walktalk.learning import Trainer
from walktalk.protocols import MultiWalk, private
from walktalk.studies import make_spec


def sites(size: float = 1.0, noise: float = 1.0, rows: int = 60) -> wt.Task:
    """Four sites, ten columns, classes that nobody can tell for sure."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(4 * rows, 10, generator=generator)
    plane = torch.randn(10, generator=generator)
    targets = (inputs @ plane + 3 * noise * torch.randn(4 * rows, generator=generator) > 0).long()
    parts = [(size * inputs[k::4], targets[k::4]) for k in range(4)]
    torch.manual_seed(0)
    return wt.tasks.torch(torch.nn.Linear(10, 2), torch.nn.functional.cross_entropy, parts)


HOW: dict[str, Any] = {"stop": 80, "evaluate": wt.Evaluate(every=5), "batch_size": 8, "local_steps": 2}


def test_without_a_target_one_is_taken_that_pilots_have_shown() -> None:
    """The lowest loss that seems possible is out of reach of this stop; nothing is extrapolated to it."""
    advice = wt.advise(sites(), wt.graphs.complete(4), objective="iterations", **HOW)
    assert advice.reached
    assert advice.high < 10 * advice.low
    assert advice.high < 200
    assert advice.run(seed=5).history["train_loss"].iloc[-1] <= advice.survey.target
    notes = " ".join(as_json(advice)["notes"])
    assert ("no target was given" in notes) is advice.survey.lowered


def test_a_target_out_of_reach_is_answered_by_how_low_a_run_gets() -> None:
    advice = wt.advise(sites(), wt.graphs.complete(4), objective="iterations", target_loss=0.01, **HOW)
    assert not advice.reached
    assert advice.missed == 0.01
    assert advice.survey.goal.budget == 80
    assert 0.01 < advice.low <= advice.loss <= advice.high < 3 * advice.low
    found = as_json(advice)
    assert found["target_loss"] == 0.01
    assert found["expected"]["iterations"]["value"] == 80
    assert "the target of 0.01 was not reached" in found["notes"][0]
    assert "out of reach" in repr(advice)


def test_where_the_stop_is_too_early_and_trainings_are_cheap_pilots_go_on() -> None:
    goal = {"objective": "iterations", "target_loss": 0.4, "optimizer": wt.SGD(lr=0.003)}
    advice = wt.advise(sites(noise=0.1), wt.graphs.complete(4), **goal, **{**HOW, "stop": 12})
    assert advice.reached
    assert advice.survey.longest > 12


def test_where_every_pilot_diverges_smaller_rates_are_taken_and_the_size_of_columns_is_told() -> None:
    task = sites(size=40.0)
    advice = wt.advise(
        task, wt.graphs.complete(4), objective="iterations", budget=40.0, optimizer=wt.SGD(lr=3.0), **HOW
    )
    assert advice.diverged
    assert advice.best.lr < 3.0
    notes = as_json(advice)["notes"]
    assert "with learning rates from 3 on every pilot diverged" in notes
    assert any("input columns are of size" in note for note in notes)
    assert unscaled(sites()) == ""
    assert unscaled(wt.tasks.digits(nodes=4)) == ""  # corners of pictures are nearly empty


def test_a_course_may_get_another_target() -> None:
    curve = LearningCurve(Scale(2.0, 0.0, 0.1))
    for k, loss in enumerate((1.5, 1.0, 0.8, 0.7)):
        curve.evaluated(Seen(10.0 * k, k, 8.0 * k, loss), "iterations")
    assert curve.arrived is None
    assert curve.lately == 0.7
    curve.aim(Scale(2.0, 0.0, 0.9), "iterations")
    assert curve.arrived == 20.0
    curve.aim(Scale(2.0, 0.0, 0.1), "iterations")
    assert curve.arrived is None


def test_what_is_cheap_is_counted_in_operations() -> None:
    small, large = (
        affordable(Trainer(wt.tasks.digits(nodes=4, hidden=hidden), batch_size=32), 32, Seed(0)) for hidden in (4, 2048)
    )
    assert 10_000 < small <= 40_000
    assert large < 0.1 * small


def test_surety_grows_with_repetitions_and_falls_with_a_rival_that_is_close() -> None:
    far = confidence([10.0, 11.0, 9.0], [[20.0, 22.0, 18.0]])
    close = confidence([10.0, 11.0, 9.0], [[9.8, 11.2, 10.0]])
    assert close < far
    assert confidence([10.0, 11.0, 9.0] * 4, [[10.8, 12.2, 10.0] * 4]) > confidence(
        [10.0, 11.0, 9.0], [[10.8, 12.2, 10.0]]
    )
    assert confidence([10.0], []) == 1.0


def test_who_asks_for_privacy_is_advised_nothing_without() -> None:
    asked = private(MultiWalk(2), noise=0.5)
    found = algorithms(World(wt.graphs.complete(4)), 1, [asked])
    assert {one.privacy for one in found} == {asked.privacy}
    assert {one.core.name for one in found} == {"multi_walk", "async_gossip"}
    mixed = algorithms(World(wt.graphs.complete(4)), 1, [asked, MultiWalk(2)])
    assert {one.privacy for one in mixed} == {None, asked.privacy}


def test_the_command_keeps_the_privacy_and_epsilon_is_told() -> None:
    pytest.importorskip("opacus")
    spec = make_spec(
        {
            "network": {"topology": "complete", "nodes": 4},
            "task": {"name": "quadratic", "noise": 0.1, "heterogeneity": 0.1, "dimension": 4, "convexity": 0.5},
            "training": {"batch_size": 4, "local_steps": 1},
            "optimizer": {"lr": 0.05, "momentum": 0.0},
            "algorithms": [{"name": "multi_walk", "privacy": {"noise": 0.2, "clip": 0.5}}],
            "stop": {"iterations": 60},
            "evaluate": {"every": 5},
        }
    )
    advice = advise_study(spec, Goal("iterations", budget=40.0), device="cpu")
    found = as_json(advice)
    (entry,) = found["set"]["algorithms"]
    assert entry["privacy"] == {"clip": 0.5, "noise": 0.2, "delta": 1e-5}
    assert advice.spec.algorithms[0].protocol().privacy == advice.best.protocol.privacy
    assert isfinite(found["epsilon"])
    assert found["epsilon"] > 0
    assert any(note.startswith("the node that trains most spends ε = ") for note in found["notes"])


def test_a_pilot_that_begins_at_the_target_ends_the_search_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost is nothing, and a repetition that begins above the target was waited for at that cost for ever."""
    monkeypatch.setattr(survey, "affordable", lambda *_: 0.0)  # as few repetitions as may be
    for seed in range(100):
        spec = make_spec(
            {
                "seed": seed,
                "network": {"topology": "complete", "nodes": 3},
                "task": {"name": "digits"},
                "algorithms": [{"name": "local_dsgd"}],
                "stop": {"iterations": 60},
                "evaluate": {"samples": 60, "every": 10},
            }
        )
        situation = of_study(spec, "cpu")
        root, trainer = situation.seed.child("advice"), situation.trainer
        models = [root, *(root.child("initial", repetition) for repetition in (0, 1))]
        rows = torch.stack([trainer.initial_row(one.integer) for one in models])
        start, first, second = trainer.evaluate(rows)[0].tolist()
        if first < start - 0.004 and second > start:
            break
    advice = advise_study(spec, Goal("iterations", target_loss=start - 0.002), algorithms="local_dsgd", device="cpu")
    assert advice.reached
    assert 0 < advice.high < 1000
