"""Each algorithm's own learning rate: found beyond the grid's edge, too, and kept for the very study it is for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.reproduction import paper
from walktalk.reproduction.paper import tune
from walktalk.reproduction.paper.tune import FARTHEST, better_half, in_words, tuned, with_choices
from walktalk.studies import dump_spec, load_spec, make_spec

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
    rates = {"multi_walk-1": 16.0, "multi_walk-2": 1 / 8, "async_gossip-pairwise": FARTHEST}
    assert found == {name: {"lr": lr} for name, lr in rates.items()}
    assert tried[0] == {0.25, 0.5, 1.0, 2.0, 4.0}
    assert tried[1:5] == [{8.0, 1 / 8}, {16.0, 1 / 16}, {32.0}, {64.0}]  # only who is at an edge goes on
    assert [len(of) for of in rounds[0]["losses"].values()] == [8, 7, 9]
    said = in_words(with_choices(spec, found))
    assert said.startswith("multi_walk-1 16, multi_walk-2 0.125, async_gossip-pairwise 64; ")
    assert "; async_gossip-pairwise: at the edge" in said


def test_tuned_runs_are_kept_apart(tmp_path):
    said: list[str] = []
    (run,) = paper.run_figure(
        paper.figure("fig8"), "smoke", tmp_path, device="cpu", changes=TINY, tune="lr", say=said.append
    )
    assert run.folder == tmp_path / "fig8-tuned" / "erdos_renyi"
    assert (tmp_path / "fig8-tuned" / "erdos_renyi.rates.json").is_file()
    assert not (tmp_path / "fig8").exists()
    line, speed = said
    assert "steps of a model in" in speed
    assert line.startswith("Erdős–Rényi (0.3), learning rates: multi_walk-1 ")
    for algorithm in run.spec.algorithms:
        assert f"{algorithm.title} {algorithm.lr:g}" in line


# -- where the optimizer's state lives --------------------------------------------------------------------------------

WALK, GOSSIP = "multi_walk-1", "async_gossip-pairwise"


def short_runs_deceive(tried: list[dict[str, list[float]]]):
    """In place of trial runs: in short ones a state at the nodes looks best, at full length one with the walk is."""
    full = {f"{WALK}, visit": 0.5, f"{WALK}, node": 0.9, f"{WALK}, walk": 0.2, f"{GOSSIP}, visit": 0.4}

    def trial(spec, rates, share, device, progress):
        tried.append(rates)
        assert spec.evaluate.model == ("mean" if share < 1 else "aggregated")
        state = {name: 0.0 if "node" in name else 1.0 for name in rates} if share < 1 else full
        return {name: {lr: state.get(name, 0.3) + abs(lr - 1) for lr in of} for name, of in rates.items()}

    return trial


def test_what_lives_best_where_is_decided_at_full_length(monkeypatch, tmp_path):
    """Two rates for each place: a walk's state has three, that of gossip two."""
    content = {**SPEC, "optimizer": {"lr": 1.0}, "algorithms": [{"name": "multi_walk"}, {"name": "async_gossip"}]}
    spec, record, tried = make_spec(content), tmp_path / "rates.json", []
    monkeypatch.setattr(tune, "trial", short_runs_deceive(tried))
    chosen = tuned(spec, record, tuning="best")
    assert {name: len(of) for name, of in tried[-1].items()} == {
        **{f"{WALK}, {state}": 2 for state in ("visit", "node", "walk")},
        **{f"{GOSSIP}, {state}": 2 for state in ("visit", "node")},
    }
    assert [(a.title, a.lr, a.optimizer_state) for a in chosen.algorithms] == [(WALK, 1, "walk"), (GOSSIP, 1, "node")]
    assert in_words(chosen) == f"{WALK} 1 (walk), {GOSSIP} 1 (node)"
    asked = len(tried)
    assert dump_spec(tuned(spec, record, tuning="best")) == dump_spec(chosen)
    assert len(tried) == asked  # from the file


def test_without_a_momentum_there_is_no_state_to_place():
    """And one that travels would carry what privacy protects."""
    private = {"name": "multi_walk", "privacy": {"noise": 1.0}}
    plain = make_spec({**SPEC, "algorithms": [{"name": "multi_walk"}]})
    assert tune.states_of(plain, plain.algorithms[0]) == ["visit"]
    guarded = make_spec({**SPEC, "optimizer": {"momentum": 0.9}, "algorithms": [private]})
    assert tune.states_of(guarded, guarded.algorithms[0]) == ["visit", "node"]


def test_each_at_its_best_by_the_command(tmp_path):
    """Real runs, in a folder and a figure of their own."""
    given = ["paper", "run", "fig4", "--panel", "cycle", "--tune", "best", "--out", str(tmp_path), "--repetitions", "1"]
    given += ["--iterations", "16", "--set", "evaluate.every=8", "--set", "network.nodes=6"]
    given += ["--set", "algorithms=[{name: multi_walk}, {name: async_gossip}]"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    assert "learning rates and places of the state: multi_walk-1 " in result.stderr
    assert (tmp_path / "fig4-cycle-best.png").is_file()
    (first, second) = load_spec(tmp_path / "fig4-best" / "cycle" / "spec.yaml").algorithms
    assert first.optimizer_state in ("visit", "node", "walk")
    assert second.optimizer_state in ("visit", "node")


@pytest.mark.parametrize(
    ("name", "tuning", "line"),
    [
        ("fig4", "everything", "--tune: 'everything' is not possible; allowed: lr, best"),
        ("family", "best", "--tune best: family has plain SGD, which keeps no state"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(name, tuning, line):
    result = CliRunner().invoke(app, ["paper", "run", name, "--tune", tuning])
    assert result.exit_code == 2
    assert line in result.stderr


# -- what is there already --------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path):
    """Rates of another study: with another optimizer."""
    (spec,) = paper.panel_specs(paper.figure("fig8"), "smoke", {**TINY, "optimizer": {"lr": 0.5}}).values()
    path = tmp_path / "fig8-tuned" / "erdos_renyi.rates.json"
    tuned(spec, path, device="cpu")
    return path


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"algorithms": [{"name": "multi_walk", "walks": 3}]}, marks=pytest.mark.slow),
        pytest.param({"training": {"optimizer_state": "walk"}}, marks=pytest.mark.slow),
    ],
)
def test_rates_of_other_settings_are_not_taken(more, record, tmp_path):
    said: list[str] = []
    (run,) = paper.run_figure(
        paper.figure("fig8"), "smoke", tmp_path, device="cpu", changes={**TINY, **more}, tune="lr", say=said.append
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
    (first,) = paper.run_figure(one, "smoke", tmp_path, device="cpu", changes=TINY, tune="lr")
    first.rates.unlink()
    written = (first.folder / "history.csv").stat().st_mtime_ns
    (again,) = paper.run_figure(one, "smoke", tmp_path, device="cpu", changes=TINY, tune="lr")
    assert dump_spec(again.spec) == dump_spec(first.spec)
    assert (first.folder / "history.csv").stat().st_mtime_ns == written


def test_the_tuned_have_the_same_names_in_figures():
    spec = make_spec({**SPEC, "algorithms": [{"name": "multi_walk"}, {"name": "async_gossip", "label": "Mine"}]})
    chosen = with_choices(spec, {a.title: {"lr": 0.5, "optimizer_state": "node"} for a in spec.algorithms})
    titles = [[one.title for one in said.described.values()] for said in (spec, chosen)]
    assert titles == [["one walk", "Mine"]] * 2


# -- who goes astray --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("course", "astray"),
    [
        ([2.3, 1.0, 0.5, 0.4, 0.3], False),
        ([2.3, 1.0, 0.5, 0.4, 0.45], False),  # noise
        ([2.3, 1.9, 1.5, 1.8, 2.2], True),
        ([2.3, 2.4, 2.5, 2.6, 2.7], True),
        ([2.3, 2.3, 2.3], False),  # learns nothing, and loses nothing
        ([2.3, 1.0, float("nan")], False),  # that is no number, which is worse, and is left so
    ],
)
def test_who_loses_again_what_was_gained_goes_astray(course, astray):
    assert tune.goes_astray(course) is astray


def late_astray(upto: float, tried: list[tuple[float, dict[str, list[float]]]]):
    """In place of trial runs: in short ones the larger rate is better; at full length those above `upto` go astray."""

    def trial(spec, rates, share, device, progress):
        tried.append((share, {name: sorted(of) for name, of in rates.items()}))
        inf = float("inf")
        return {name: {lr: inf if share == 1 and lr > upto else 1 / lr for lr in of} for name, of in rates.items()}

    return trial


@pytest.mark.parametrize(("upto", "chosen", "runs"), [(64.0, 64.0, 1), (16.0, 16.0, 2), (1.0, 1.0, 4)])
def test_the_best_of_short_runs_is_confirmed_at_full_length_and_gives_way_where_it_goes_astray(
    upto, chosen, runs, monkeypatch
):
    spec = make_spec({**SPEC, "optimizer": {"lr": 1.0}, "algorithms": [{"name": "async_gossip"}]})
    tried: list[tuple[float, dict[str, list[float]]]] = []
    monkeypatch.setattr(tune, "trial", late_astray(upto, tried))
    found, rounds = tune.found(spec)
    assert found == {"async_gossip-pairwise": {"lr": chosen}}
    full = [rates["async_gossip-pairwise"] for share, rates in tried if share == 1]
    assert len(full) == runs
    assert full[:2] == [[64.0], [8.0, 16.0, 32.0]][:runs]
    assert [one["share"] for one in rounds] == [1 / 8, 1 / 4, *[1.0] * runs]


def test_where_every_rate_goes_astray_the_search_ends_at_the_lowest(monkeypatch):
    spec = make_spec({**SPEC, "optimizer": {"lr": 1.0}, "algorithms": [{"name": "async_gossip"}]})
    monkeypatch.setattr(tune, "trial", late_astray(0.0, []))
    assert tune.found(spec)[0] == {"async_gossip-pairwise": {"lr": 1 / FARTHEST}}


def test_a_run_of_full_length_that_ends_above_the_short_one_is_held_against_lower_rates(monkeypatch):
    """As BTPP's: at the quarter it stands at 1.39, in the end at 1.61, with a rate that is too large."""
    spec = make_spec({**SPEC, "optimizer": {"lr": 1.0}, "algorithms": [{"name": "async_gossip"}]})
    full = {4.0: 1.6, 2.0: 1.7, 1.0: 1.2, 0.5: 1.4}

    def trial(spec, rates, share, device, progress):
        return {name: {lr: full[lr] if share == 1 else abs(lr - 4) for lr in of} for name, of in rates.items()}

    monkeypatch.setattr(tune, "trial", trial)
    assert tune.found(spec)[0] == {"async_gossip-pairwise": {"lr": 1.0}}
