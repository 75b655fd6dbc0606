"""Mistakes show before anything is trained or tuned, in all panels and figures; useless options are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.reproduction import paper
from walktalk.reproduction.paper.run import rough_duration, trainings
from walktalk.studies import nested, prepare
from walktalk.studies.execution.runner import estimated_trainings

SHORT = ("--repetitions", "1", "--iterations", "10", "--device", "cpu")


def paper_run(*words: object):
    return CliRunner().invoke(app, ["paper", "run", *map(str, words)])


def refused(*words: object) -> str:
    """The one line of an error; no traceback, exit code 2."""
    result = paper_run(*words)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def trained(monkeypatch) -> list[object]:
    """Which studies were run; none is."""
    ran: list[object] = []
    for name in ("run.run_studies", "tune.run_study"):
        monkeypatch.setattr(f"walktalk.reproduction.paper.{name}", lambda *given, **more: ran.append(given))
    return ran


@pytest.mark.parametrize("tune", [(), ("--tune", "lr")])
def test_a_split_that_leaves_nodes_without_samples(tune, tmp_path, trained):
    """1,437 samples are enough for 200 nodes where α = 10, and not where α = 0.1, in the last panel."""
    line = refused("fig5", *SHORT, "--set", "network.nodes=200", *tune, "--out", tmp_path / "out")
    assert "task." in line
    assert not trained
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["fig4", "all"])
def test_another_studys_folder_in_the_last_panel(name, tmp_path, trained):
    last = tmp_path / "fig4" / "erdos_renyi"
    last.mkdir(parents=True)
    (last / "spec.yaml").write_text("name: another\n")
    assert "is the output folder of another study" in refused(name, *SHORT, "--out", tmp_path)
    (last / "spec.yaml").rename(last / "letters.txt")
    assert "is not a study's folder: it holds 'letters.txt'" in refused(name, *SHORT, "--out", tmp_path)
    assert not trained


def test_a_folder_that_cannot_be_made(tmp_path, trained):
    (tmp_path / "fig9").write_text("")
    assert "cannot be made" in refused("all", *SHORT, "--out", tmp_path)
    if os.geteuid() != 0:  # who is root may write everywhere
        (tmp_path / "mine").mkdir(mode=0o500)
        assert "cannot be written to" in refused("fig4", *SHORT, "--out", tmp_path / "mine")
    assert not trained


def test_data_that_is_missing_for_one_figure_of_all(tmp_path, monkeypatch, trained):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / "nothing"))
    assert "walktalk data get cifar10" in refused("all", "--scale", "paper", "--out", tmp_path / "out")
    assert not trained


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("tables", "--set", "foo=bar"), "--set foo"),
        (("tables", "--iterations", "5", "--tune", "lr"), "--iterations"),
        (("tables", "--tune", "lr"), "--tune"),
        (("fig3", "--tune", "lr"), "--tune"),
        (("fig3", "--repetitions", "3"), "--repetitions"),
        (("fig3", "--set", "optimizer.lr=1"), "--set optimizer.lr"),
        (("fig3", "--optimizer-state", "node"), "--optimizer-state"),
        (("fig3", "--set", "network.p=1"), "--set network.p"),
    ],
)
def test_options_that_mean_nothing(words, named, tmp_path):
    line = refused(*words, "--out", tmp_path)
    assert f"{named} has no meaning for {words[0]}" in line


def test_a_split_depends_on_a_few_keys(tmp_path):
    given = ("--set", "seed=3", "--set", "network.nodes=10")
    result = paper_run("fig3", *given, "--out", tmp_path)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--repetitions", "2", "--set", "repetitions=1"), "--repetitions and --set repetitions"),
        (("--iterations", "2", "--set", "stop={iterations: 3}"), "--iterations and --set stop.iterations"),
        (("--optimizer-state", "node", "--set", "training.optimizer_state=walk"), "--set training.optimizer_state"),
        (("--optimizer-state", "node", "--set", "training=3"), "--set training"),
    ],
)
def test_contradictions(words, named, tmp_path):
    line = refused("fig4", *words, "--out", tmp_path)
    assert named in line
    assert "contradict each other" in line


# -- Ctrl-C, and the paper's scale on a CPU ---------------------------------------------------------------------------


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def stopped(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("walktalk.reproduction.paper.run.run_studies", stopped)
    result = paper_run("fig8", *SHORT, "--out", tmp_path)
    assert result.exit_code == 130
    assert result.stderr.strip() == "stopped; what is done is kept: the same command goes on from there"


def test_the_papers_scale_on_a_cpu_is_warned_of(tmp_path, monkeypatch):
    one, changes = paper.figure("fig4"), nested(["task.name=digits", "stop.iterations=10", "repetitions=2"])
    monkeypatch.setattr("walktalk.reproduction.paper.run.run_studies", lambda *given, **more: 0)
    said: list[str] = []
    paper.run_figure(one, "paper", Path(tmp_path), device="cpu", changes=changes, say=said.append)
    line, speed = said
    assert "steps of a model in" in speed
    assert "made for a GPU: 300 iterations are left, about 1 minutes on this CPU; --scale smoke takes minutes" in line
    paper.run_figure(one, "smoke", Path(tmp_path), device="cpu", changes=changes, say=said.append)
    assert not any("made for a GPU" in line for line in said[2:])


@pytest.mark.parametrize("name", ["fig4", "fig9"])
def test_how_much_is_left_is_as_when_it_is_run(name):
    spec = next(iter(paper.panel_specs(paper.figure(name), "smoke").values()))
    assert trainings(spec) == pytest.approx(estimated_trainings(prepare(spec, "cpu").runs), abs=1)


def test_lengths_of_time():
    assert [rough_duration(s) for s in (5, 600, 3 * 3600, 90_000, 20 * 86_400)] == [
        "1 minutes",
        "10 minutes",
        "3 hours",
        "25 hours",
        "20 days",
    ]
