"""The section `objective`: what may stand there, what is usual, and that the loss shown is what is minimized."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import SpecError
from walktalk.report import results_table
from walktalk.studies.spec import make_spec, spec_mapping

SIZES, CENTRES = (1000, 10, 10, 10), (0.0, 1.0, 1.0, 1.0)
OPTIMUM = 30 / 1030


class Place(nn.Module):
    """A number."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.at.expand(len(inputs), 1)


def four_sites(names: tuple[str, ...] = ()) -> wt.Task:
    parts = [(torch.zeros(n, 1), torch.full((n, 1), at)) for n, at in zip(SIZES, CENTRES, strict=True)]
    own: Any = dict(zip(names, parts, strict=True)) if names else parts
    return wt.tasks.torch(Place(), functional.mse_loss, own)


def end(algorithm: Any, objective: Any = None, task: wt.Task | None = None, **more: Any) -> Any:
    settings = {"optimizer": wt.SGD(lr=0.01, momentum=0.0), "stop": 1600, "evaluate": 400, **more}
    graph = wt.graphs.complete(4)
    return wt.train(task or four_sites(), algorithm, graph, objective=objective, **settings)


@pytest.mark.parametrize(
    "algorithm", ["multi_walk", "async_gossip", "sync_gossip", "local_dsgd", "sgp", "digest", "token_saga", "fedavg"]
)
def test_one_large_site_and_three_small_ones(algorithm: str) -> None:
    """The optimum over all data is 0.029. Where sites are counted alike most end at 0.75, a walk where it has been."""
    run = end(algorithm)
    assert float(run.model.at.detach()) == pytest.approx(OPTIMUM, abs=0.04)


def test_the_loss_is_that_of_the_objective() -> None:
    for objective, shares in (
        ("samples", [size / sum(SIZES) for size in SIZES]),
        ("sites", [0.25] * 4),
        ({"weights": {0: 1, 1: 2, 2: 3, 3: 4}}, [0.1, 0.2, 0.3, 0.4]),
    ):
        run = end("sync_gossip", objective, stop=40)
        place = float(run.model.at.detach())
        expected = sum(share * (place - centre) ** 2 for share, centre in zip(shares, CENTRES, strict=True))
        assert float(run.history.train_loss.iloc[-1]) == pytest.approx(expected, rel=1e-4)


def test_declared_weights_are_by_name() -> None:
    names = ("lyon", "oslo", "ulm", "bath")
    run = end("local_dsgd", {"weights": {"lyon": 1, "oslo": 1, "ulm": 2, "bath": 0.001}}, four_sites(names), stop=3000)
    assert float(run.model.at.detach()) == pytest.approx(3 / 4, abs=0.02)
    with pytest.raises(SpecError, match=r"objective.weights: node ulm has none; it has lyon, oslo, bath"):
        end("local_dsgd", {"weights": {"lyon": 1, "oslo": 1, "bath": 1}}, four_sites(names), stop=10)


def test_the_table_says_whose_loss_it_is() -> None:
    shown = wt.compare(four_sites(), "local_dsgd", wt.graphs.complete(4), objective="sites", stop=8)
    assert "The training loss is the mean over nodes, each counted alike." in results_table(shown.summary).note
    ours = wt.compare("digits", "local_dsgd", wt.graphs.complete(4), stop=8)
    assert "The training loss is" not in results_table(ours.summary).note


def test_what_is_usual() -> None:
    """The papers' tasks have the papers' objectives; a person's data are minimized over all samples."""
    assert make_spec({}).minimizes.weights == "published"
    assert make_spec({"task": {"name": "tests.studies.test_objective:four"}}).minimizes.weights == "samples"
    assert make_spec({"objective": "sites"}).minimizes.weights == "sites"
    by_data = {"task": {"name": "tests.studies.test_objective:four"}, "training": {"local_steps": {"epochs": 1}}}
    assert make_spec(by_data).minimizes.weights == "published"  # its steps weigh by samples already
    assert make_spec({**by_data, "objective": "samples"}).minimizes.weights == "samples"
    complete = spec_mapping(make_spec({"objective": {"weights": {0: 1.5, 1: 2}, "cap": 4.0}}))
    assert make_spec(complete).minimizes.weights == {"0": 1.5, "1": 2.0}


def four() -> wt.Task:
    return four_sites()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("all", r"objective.weights: 'all' is not possible; allowed: published, samples, sites, or a number for"),
        ({"weights": {"a": 0}}, r"objective.weights.a: 0(.0)? is not possible; allowed: a number above 0"),
        ({"weights": {"a": "much"}}, r"objective.weights.a: 'much' is not possible; allowed: a number above 0"),
        (
            {"weights": {}},
            r"objective.weights: \{\} is not possible; allowed: published, samples, sites, or a number for",
        ),
        ({"cap": 0}, r"objective.cap: 0 is not possible; allowed: a number above 0, at most 1e6"),
        ({"equal_pace": "yes"}, r"objective.equal_pace: 'yes' is not possible; allowed: true or false"),
        ({"weigths": "sites"}, r"objective.weigths: is an unknown key; allowed: weights, cap, equal_pace"),
    ],
)
def test_what_cannot_be_is_told(given: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make_spec({"objective": given})


def test_of_advise_it_is_what_to_save() -> None:
    """There the word was taken: a training of one's own says whose loss."""
    how = wt.Training(objective="sites", stop=50)
    assert how.settings["objective"] == "sites"
    with pytest.raises(TypeError, match="unexpected keyword argument 'objective'"):
        wt.forecast("multi_walk", wt.graphs.cycle(4), model_bytes=40, objective="sites")  # type: ignore[call-arg]
