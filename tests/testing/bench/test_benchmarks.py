"""Benchmarks say what they measure, and what they compare with does the same work."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from walktalk import graphs
from walktalk.chains import metropolis_hastings, return_time, spectrum
from walktalk.cli.app import app
from walktalk.testing.bench import BENCHMARKS, BenchResult, find_benchmark, large_networks, training
from walktalk.testing.bench.models import MODELS


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_benchmark_is_found_and_named_in_the_help(name):
    assert find_benchmark(name).__name__ == name
    assert name in CliRunner().invoke(app, ["bench", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "words"), [(["executor", "--model", "lenet"], "lenet5"), (["hop", "--model", "vit"], "executor")]
)
def test_a_model_that_is_not_there(arguments, words):
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_a_model_beside_its_limit(monkeypatch):
    """A product of [32, 784] and [784, 10], and one on the way back: nothing that enters needs a gradient."""
    assert training.operations_per_step(MODELS["logistic"].task(40)) == 2 * 2 * 32 * 784 * 10
    monkeypatch.setattr(training, "MODEL_WIDTHS", (2,))
    monkeypatch.setattr(training, "steps_per_second", lambda step, seconds, device: 100.0)
    monkeypatch.setattr(training.StackedWave, "steps_per_second", lambda wave: 300.0)
    result = find_benchmark("executor")(lambda what: None, model="logistic")
    assert (result.name, result.ratio) == ("executor logistic", 3.0)
    assert result.details["of the limit"] == pytest.approx(300.0 / result.details["limit"])


def test_on_a_busy_machine_nothing_is_measured(monkeypatch):
    """Seconds beside other work say nothing: the baselines before and behind must be alike."""
    monkeypatch.setattr(training, "MODEL_WIDTHS", (2,))
    baselines = iter((183.0, 1965.0, 100.0, 109.0))
    monkeypatch.setattr(training, "steps_per_second", lambda step, seconds, device: next(baselines))
    monkeypatch.setattr(training.StackedWave, "steps_per_second", lambda wave: 300.0)
    result = CliRunner().invoke(app, ["bench", "executor", "--model", "logistic"])
    assert result.exit_code == 2
    assert "too busy to measure on: the baseline was 183 steps/s before and 1,965 afterwards" in result.stderr
    assert find_benchmark("executor")(lambda what: None, model="logistic").baseline == pytest.approx(104.5)


def test_models_that_train_one_by_one_are_not_measured_in_wide_waves():
    widths = [training.worthwhile((1, 4, 20, 100), training.make_trainer(MODELS[name].task(40), "cpu"))
              for name in ("logistic", "lenet5")]  # fmt: skip
    assert widths == [(1, 4, 20, 100), (1, 4)]


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_has_a_gradient(name):
    task = MODELS[name].task(40)
    task.loss(task.model(task.inputs[:2]), task.targets[:2]).backward()
    assert all((p.grad is not None) == p.requires_grad for p in task.model.parameters())


def test_an_unknown_benchmark_is_refused():
    result = CliRunner().invoke(app, ["bench", "nothing"])
    assert result.exit_code == 2
    assert "allowed: simulator" in result.stderr


def test_json_is_one_object_and_nothing_else(monkeypatch):
    found = BenchResult("events", 10.0, 5.0, "events/s", "what", "against", details={"nodes": 3})
    monkeypatch.setattr(large_networks, "events", lambda say: (say("measuring"), found)[1])
    result = CliRunner().invoke(app, ["bench", "events", "--json"])
    said = json.loads(result.stdout)
    assert {"name": "events", "value": 10.0, "baseline": 5.0, "ratio": 2.0}.items() <= said.items()
    assert "measuring" in result.stderr
    table = CliRunner().invoke(app, ["bench", "events"]).stdout
    assert "ratio" in table
    assert "2.00" in table


def test_where_less_is_better_the_ratio_says_so():
    assert BenchResult("hop", 4.0, 1.0, "ms", "", "", higher_is_better=False).ratio == 0.25


def test_the_dense_way_gives_the_same_quantities():
    chain = metropolis_hastings(graphs.torus(7, 7))
    gap, moment = large_networks.dense_quantities(7)
    assert gap == pytest.approx(spectrum(chain).p)
    assert gap == pytest.approx(large_networks.closed_form_gap(7))
    assert moment == pytest.approx(return_time(chain, 0).second_moment)
