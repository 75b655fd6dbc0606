"""Each algorithm's own learning rate: found beyond the grid's edge, too, and kept for the very study it is for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from walktalk import paper
from walktalk.cli.app import app
from walktalk.paper import tune
from walktalk.paper.tune import FARTHEST, better_half, rates_in_words, tuned, with_rates
from walktalk.studies import dump_spec, make_spec

SPEC = {
    "network": {"topology": "cycle", "nodes": 6},
    "task": {"name": "digits"},
    "repetitions": 3,
    "optimizer": {"lr": 20.0, "momentum": 0.0},
    "stop": {"iterations": 200},  # far too high: it diverges
    "algorithms": [{"name": "multi_walk", "walks": [1, 2]}, {"name": "async_gossip"}],
}
TINY = {"repetitions": 1, "stop": {"iterations": 16}, "evaluate": {"every": 8}}


def test_each_algorithm_gets_the_rate_that_suits_it(tmp_path):
    spec, record = make_spec(SPEC), tmp_path / "rates.json"
    chosen = tuned(spec, record, device="cpu")
    assert [a.title for a in chosen.algorithms] == [a.title for a in spec.algorithms]
    assert all(a.lr is not None and a.lr < 20.0 for a in chosen.algorithms)
    assert chosen.stop == spec.stop
    assert dump_spec(tuned(spec, record, device="cpu")) == dump_spec(chosen)  # from the file
    assert better_half({0.1: 1.0, 0.2: float("nan"), 0.4: 0.5}) == [0.4, 0.1]


def test_a_rate_that_diverges_has_no_loss():
    spec = make_spec({**SPEC, **TINY, "algorithms": [{"name": "async_gossip"}]})
    (losses,) = tune.trial(spec, {"async_gossip-pairwise": [0.05, 1e12]}, 1.0, "cpu", None).values()
    assert losses[0.05] < 3
    assert not losses[1e12] < float("inf")  # not that of the last evaluation that was a number
    assert better_half(losses) == [0.05]


def losses_around(best: dict[str, float], tried: list[set[float]]):
    """In place of trial runs: the further a candidate is from the best, the worse."""

    def trial(spec, rates, share, device, progress):
        tried.append({lr for candidates in rates.values() for lr in candidates})
        return {name: {lr: abs(lr / best[name] - 1) for lr in of} for name, of in rates.items()}

    return trial


def test_the_grid_goes_on_where_the_best_is_at_its_edge(monkeypatch):
    spec = make_spec({**SPEC, "optimizer": {"lr": 1.0}})
    best, tried = {"multi_walk-1": 16.0, "multi_walk-2": 1 / 8, "async_gossip-pairwise": 1000.0}, []
    monkeypatch.setattr(tune, "trial", losses_around(best, tried))
    found, rounds = tune.found(spec)
    assert found == {"multi_walk-1": 16.0, "multi_walk-2": 1 / 8, "async_gossip-pairwise": FARTHEST}
    assert tried[0] == {0.25, 0.5, 1.0, 2.0, 4.0}
    assert tried[1:5] == [{8.0, 1 / 8}, {16.0, 1 / 16}, {32.0}, {64.0}]  # only who is at an edge goes on
    assert [len(of) for of in rounds[0]["losses"].values()] == [8, 7, 9]
    said = rates_in_words(with_rates(spec, found))
    assert said.startswith("multi_walk-1 16, multi_walk-2 0.125, async_gossip-pairwise 64; ")
    assert "; async_gossip-pairwise: at the edge" in said


def test_tuned_runs_are_kept_apart(tmp_path):
    said: list[str] = []
    (run,) = paper.run_figure(
        paper.figure("fig8"), "smoke", tmp_path, device="cpu", changes=TINY, tune=True, say=said.append
    )
    assert run.folder == tmp_path / "fig8-tuned" / "erdos_renyi"
    assert (tmp_path / "fig8-tuned" / "erdos_renyi.rates.json").is_file()
    assert not (tmp_path / "fig8").exists()
    line, speed = said
    assert "steps of a model in" in speed
    assert line.startswith("Erdős–Rényi (0.3), learning rates: multi_walk-1 ")
    for algorithm in run.spec.algorithms:
        assert f"{algorithm.title} {algorithm.lr:g}" in line


# -- what is there already --------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path):
    """Rates of another study: with another optimizer."""
    (spec,) = paper.panel_specs(paper.figure("fig8"), "smoke", {**TINY, "optimizer": {"lr": 0.5}}).values()
    path = tmp_path / "fig8-tuned" / "erdos_renyi.rates.json"
    tuned(spec, path, device="cpu")
    return path


@pytest.mark.parametrize(
    "more", [{}, {"algorithms": [{"name": "multi_walk", "walks": 3}]}, {"training": {"optimizer_state": "walk"}}]
)
def test_rates_of_other_settings_are_not_taken(more, record, tmp_path):
    said: list[str] = []
    (run,) = paper.run_figure(
        paper.figure("fig8"), "smoke", tmp_path, device="cpu", changes={**TINY, **more}, tune=True, say=said.append
    )
    assert "is of other settings" in said[0]
    best = {algorithm.title: algorithm.lr for algorithm in run.spec.algorithms}
    assert json.loads(record.read_text())["best"] == best
    kept = json.loads((tmp_path / "fig8-tuned" / "erdos_renyi.rates.1.json").read_text())  # hours of somebody's time
    assert kept["spec"]["optimizer"]["lr"] == 0.5
    assert all(lr is not None and lr <= FARTHEST * 2e-3 for lr in best.values())  # around the preset's rate again


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"best": 3, "spec": SPEC}', '{"best": {"multi_walk-1": "x"}, "spec": SPEC}']
)
def test_a_damaged_record_is_one_line(text, record, tmp_path):
    spec = json.dumps(json.loads(record.read_text())["spec"])
    record.write_text(text.replace("SPEC", spec))
    result = CliRunner().invoke(
        app,
        [
            "paper",
            "run",
            "fig8",
            "--tune",
            "lr",
            "--out",
            str(tmp_path),
            "--repetitions",
            "1",
            "--iterations",
            "16",
            "--set",
            "evaluate.every=8",
            "--set",
            "optimizer.lr=0.5",
        ],
    )
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert "erdos_renyi.rates.json is damaged; delete it" in line


def test_a_study_goes_on_with_the_rates_it_was_begun_with(tmp_path):
    one = paper.figure("fig8")
    (first,) = paper.run_figure(one, "smoke", tmp_path, device="cpu", changes=TINY, tune=True)
    first.rates.unlink()
    written = (first.folder / "history.csv").stat().st_mtime_ns
    (again,) = paper.run_figure(one, "smoke", tmp_path, device="cpu", changes=TINY, tune=True)
    assert dump_spec(again.spec) == dump_spec(first.spec)
    assert (first.folder / "history.csv").stat().st_mtime_ns == written
