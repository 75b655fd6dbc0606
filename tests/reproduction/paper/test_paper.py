"""The paper's studies: what each compares, at both scales, and that each comes to its figure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.records import read_history
from walktalk.reproduction import paper
from walktalk.reproduction.paper import drawing
from walktalk.reproduction.paper.figures import settings
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import dump_spec, make_spec, nested, prepare

TINY = {"repetitions": 2, "stop": {"iterations": 40}, "evaluate": {"every": 10}}
TRAINED = [one for one in paper.FIGURES.values() if one.runs]


def command(*words: str):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("scale", paper.SCALES)
@pytest.mark.parametrize("name", [one.name for one in TRAINED])
def test_every_panel_is_a_whole_study(name, scale):
    specs = paper.panel_specs(paper.figure(name), scale)
    assert len(specs) == len(paper.figure(name).panels)
    for spec in specs.values():
        assert spec.network.nodes == 20
        assert len({spec.name for spec in specs.values()}) == len(specs)
        assert dump_spec(spec)  # can be written down


def test_settings_are_those_of_table_5():
    for spec in paper.panel_specs(paper.figure("fig5"), "paper").values():
        assert spec.task.name == "cifar10"
        assert (spec.training.batch_size, spec.training.local_steps, spec.repetitions) == (32, 5, 10)
        optimizer = spec.optimizer
        assert (optimizer.lr, optimizer.momentum, optimizer.nesterov, optimizer.weight_decay) == (0.05, 0.9, True, 1e-4)
        assert spec.schedule.warmup == pytest.approx(2 / 15, abs=1e-3)  # 2 of 15 minutes
        assert (list(spec.schedule.decay_at), spec.schedule.factor) == ([0.75, 0.9], 0.1)
        walks = [a.model_extra["walks"] for a in spec.algorithms if a.name == "multi_walk"]
        assert walks == [1, 2, 4, 15]
    alphas = [panel.alpha for panel in paper.figure("fig5").panels]
    assert alphas == [10, 10, 1, 1, 0.1, 0.1]


def test_settings_are_those_of_table_6():
    (spec,) = paper.panel_specs(paper.figure("fig8"), "paper").values()
    assert (spec.task.name, spec.task.settings["model"]) == ("mnli", "facebook/opt-125m")
    assert (spec.training.batch_size, spec.training.local_steps) == (16, 1)
    assert (spec.optimizer.name, spec.optimizer.lr, spec.optimizer.weight_decay) == ("adam", 1e-4, 1e-4)


def test_alpha_one_tenth_runs_twice_as_long():
    """30 minutes in place of 15."""
    specs = paper.panel_specs(paper.figure("fig6"), "paper")
    assert specs["cycle-alpha0.1"].stop.iterations == 2 * specs["cycle-alpha1"].stop.iterations


@pytest.mark.parametrize("name", ["fig4", "fig8"])
def test_a_figure_from_its_runs(name, tmp_path):
    one = paper.figure(name)
    files = drawing.make(one, "smoke", tmp_path, device="cpu", changes=TINY)
    assert [path.name for path in files] == [f"{name}.png", f"{name}.svg"]
    for panel in one.panels:
        history = read_history(tmp_path / one.runs / panel.name / "history.csv")
        assert history["repetition"].nunique() == 2
        assert history["iteration"].max() == 40
    text = files[1].read_text()
    assert all(f"<!-- ({letter}) " in text for letter in "ab")  # the letters of the panels


def test_figures_5_to_7_share_their_runs(tmp_path):
    tiny = {"repetitions": 1, "stop": {"iterations": 10}, "evaluate": {"every": 5}}
    drawing.make(paper.figure("fig5"), "smoke", tmp_path, device="cpu", changes=tiny)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("history.csv")}
    assert len(written) > 6
    for name in ("fig6", "fig7"):
        drawing.make(paper.figure(name), "smoke", tmp_path, device="cpu", changes=tiny)
        assert (tmp_path / f"{name}.png").is_file()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("history.csv")} == written


def test_other_settings_are_not_mixed_up_with_what_is_there(tmp_path):
    one, tiny = paper.figure("fig8"), {"repetitions": 1, "stop": {"iterations": 10}, "evaluate": {"every": 5}}
    drawing.make(one, "smoke", tmp_path, device="cpu", changes=tiny)
    with pytest.raises(Exception, match="output folder of another study"):
        drawing.make(one, "smoke", tmp_path, device="cpu", changes={**tiny, "repetitions": 2})


def test_figure_3_and_the_tables(tmp_path):
    assert (drawing.make(paper.figure("fig3"), "smoke", tmp_path)[0]).stat().st_size > 10_000
    (path,) = drawing.make(paper.figure("tables"), "smoke", tmp_path)
    text = path.read_text()
    assert [int(n) for n in re.findall(r"^## Table (\d)", text, re.M)] == [1, 2, 3, 4, 5, 6]


def test_the_settings_files_are_whole_studies_themselves():
    for base in ("image", "language"):
        for scale in paper.SCALES:
            assert make_spec(settings(base, scale)).name == base


# -- the command line -------------------------------------------------------------------------------------------------


def test_list():
    result = command("paper", "list")
    assert result.exit_code == 0
    for name in paper.FIGURES:
        assert name in result.output


def test_run(tmp_path):
    result = command(
        "paper", "run", "fig8", "--out", str(tmp_path), "--repetitions", "1", "--iterations", "50", "--device", "cpu"
    )
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.split()[0]).name == "fig8.png"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fig44",), "did you mean 'fig4'"),
        (("fig4", "--scale", "huge"), "allowed: smoke, paper"),
        (("fig8", "--optimizer-state", "cloud"), "optimizer_state"),
    ],
)
def test_mistakes(words, said, tmp_path):
    result = command("paper", "run", *words, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_paper_scale_without_its_data(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / "nothing"))
    result = command("paper", "run", "fig4", "--scale", "paper", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "walktalk data get cifar10" in result.output


def test_an_unknown_figure():
    with pytest.raises(SpecError, match="there is no study 'fig1' of the paper"):
        paper.figure("fig1")


def test_figure_9_kills_whom_the_nodes_elect():
    """The second to die is named ahead, so that gossip loses it too: it must be the one that was elected."""
    changes = {"repetitions": 1, "algorithms": [{"name": "multi_walk", "walks": 15}]}
    (spec,) = paper.panel_specs(paper.figure("fig9"), "smoke", changes).values()
    first, second = (fault.node for fault in spec.faults)
    assert (first, [fault.at for fault in spec.faults]) == (0, [300.0, 600.0])
    (run,) = prepare(spec, "cpu").runs
    trace = Simulation(replace(run.setup, keep_schedule=False)).advance().trace  # what is learned changes nothing of it
    taken = [row for row in trace if row.event == "record" and row.detail == "aggregate"]
    reigns = [{row.node for row in taken if a <= row.time < b} for a, b in ((0, 300), (300, 600), (600, 900))]
    assert reigns[:2] == [{first}, {second}]
    assert len(reigns[2]) == 1
    assert reigns[2].isdisjoint({first, second})


def test_keys_of_a_figures_studies_can_be_set(tmp_path):
    """A language model of one's own, a folder with its data: what cannot be had here is named, and nothing is left."""
    given = ("--scale", "paper", "--set", "task.folder=nowhere", "--set", "timing.stragglers.share=0.1")
    out = command("paper", "run", "fig8", *given, "--out", str(tmp_path / "out"))
    assert out.exit_code == 2
    assert "nowhere" in out.output
    assert not (tmp_path / "out").exists()
    (spec,) = paper.panel_specs(paper.figure("fig8"), "paper", nested(given[3::2])).values()
    assert spec.task.settings["folder"] == "nowhere"
    assert spec.timing.stragglers.share == 0.1
    assert spec.timing.compute == 0.2  # beside it nothing changed
    with pytest.raises(SpecError, match="has a value already"):
        nested(["task=1", "task.model=2"])
