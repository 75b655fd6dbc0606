"""Figures under other settings: what each variant changes, and that nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from walktalk.cli.app import app
from walktalk.core.errors import ModelError, SpecError
from walktalk.learning import EvaluationSamples, Trainer, tasks
from walktalk.reproduction import paper
from walktalk.reproduction.paper import drawing
from walktalk.reproduction.paper.drawing.figures import cells_of
from walktalk.studies import build_graph, nested, spec_mapping

ALL = [(figure, one.name) for one in paper.VARIANTS.values() for figure in one.figures]


def specs_of(name: str, *variants: str, scale: paper.Scale = "paper", changes=None):
    return paper.panel_specs(paper.varied(paper.figure(name), variants, scale), scale, changes)


@pytest.mark.parametrize(("figure", "variant"), ALL)
def test_every_variant_is_another_whole_study_in_a_folder_of_its_own(figure, variant):
    one = paper.figure(figure)
    other = paper.varied(one, [variant], "paper")
    assert other.runs == f"{one.runs}-{variant}"
    before, after = paper.panel_specs(one, "paper"), paper.panel_specs(other, "paper")
    assert set(after) <= set(before)
    for name, spec in after.items():
        assert spec_mapping(spec) | {"name": ""} != spec_mapping(before[name]) | {"name": ""}
    cells = drawing.figures.cells_of(other)
    assert {cell.panel for row in cells for cell in row} == set(range(len(other.panels)))
    assert len({len(row) for row in cells}) == 1


def test_settings_that_decide_at_one_tenth():
    for variant, section, key, value in (
        ("group-norm", "task", "norm", "group"),
        ("balanced-split", "task", "split", "balanced"),
        ("batch-statistics", "training", "buffers", "batch"),
    ):
        for spec in specs_of("fig5", variant).values():
            assert spec_mapping(spec)[section][key] == value


def test_equal_time_is_the_papers_protocol():
    specs = specs_of("fig6", "equal-time")
    for name, spec in specs.items():
        longer = 2 if name.endswith("alpha0.1") else 1
        assert (spec.stop.iterations, spec.stop.time) == (None, 900.0 * longer)
        assert spec.schedule.warmup * spec.stop.time == pytest.approx(120, rel=1e-3)  # two minutes
    changed = specs_of("fig6", "equal-time", changes=nested(["timing.compute=0.05"]))
    assert {spec.timing.compute for spec in changed.values()} == {0.05}


def test_the_cycle_of_figure_2_has_ten_edges_inside_of_sites():
    (spec,) = specs_of("fig4", "figure-2-order").values()
    graph = build_graph(spec)
    edges = graph.edge_list()
    inside = [graph.sites.name_of(a) == graph.sites.name_of(b) for a, b in edges]
    assert (len(inside), sum(inside)) == (20, 10)
    assert set(graph.degrees) == {2}


def test_walks_between_and_faster_links():
    (spec,) = {tuple(a.title for a in spec.algorithms) for spec in specs_of("fig4", "walks-between").values()}
    assert len(spec) == 7
    (fast,) = specs_of("fig8", "40gbit").values()
    assert (fast.timing.bandwidth, fast.timing.node_bandwidth) == (4e10, 4e10)


def test_adapters_travel_in_place_of_the_language_model():
    (spec,), (plain,) = specs_of("fig8", "adapters", "100gbit").values(), specs_of("fig8").values()
    assert spec_mapping(spec)["task"]["adapter"]["targets"] == ["q_proj", "v_proj"]
    assert spec.optimizer.lr == pytest.approx(10 * plain.optimizer.lr)
    assert (spec.timing.bandwidth, spec.timing.compute) == (1e11, plain.timing.compute)


def test_the_data_of_survivors():
    (spec,) = specs_of("fig9", "survivors", "to-convergence", "no-failures").values()
    (failing,) = specs_of("fig9").values()
    dead = {entry.node for entry in failing.faults}
    assert set(spec.evaluate.nodes) == set(range(20)) - dead
    assert len(dead) == 2
    assert (spec.stop.time, spec.faults) == (3600.0, [])
    (longer,) = specs_of("fig9", "to-convergence").values()
    assert [entry.at for entry in longer.faults] == [1200.0, 2400.0]


def test_a_loss_on_some_nodes_data_is_theirs():
    task = tasks.digits(nodes=5, alpha=0.1)
    trainer = Trainer(task, evaluation=EvaluationSamples(nodes=[1, 3, 1]))
    assert np.array_equal(trainer.evaluator.sample, np.sort(np.concatenate([task.parts[1], task.parts[3]])))
    rows = torch.stack([trainer.initial_row(0)])
    each = {line["node"]: (line["samples"], line["train_loss"]) for line in trainer.by_node(rows[0])}
    mean = sum(each[v][0] * each[v][1] for v in (1, 3)) / sum(each[v][0] for v in (1, 3))
    assert float(trainer.evaluate(rows)[0]) == pytest.approx(mean, rel=1e-5)
    with pytest.raises(ModelError, match=r"evaluate\.nodes: there is no node 5; allowed: 0 to 4"):
        Trainer(task, evaluation=EvaluationSamples(nodes=[5]))


def test_a_variant_that_leaves_panels_out_is_drawn(tmp_path):
    words = ["--variant", "figure-2-order", "--repetitions", "1", "--iterations", "4", "--device", "cpu"]
    asked = ["paper", "run", "fig4", *words, "--out", str(tmp_path)]
    dry = CliRunner().invoke(app, [*asked, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert "Cycle of Figure 2: 5 runs of 4 iterations, about 100 model-steps" in dry.output
    assert not list(tmp_path.iterdir())
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "fig4-figure-2-order" / "cycle" / "summary.json").is_file()
    assert (tmp_path / "fig4-figure-2-order.png").is_file()
    assert "about 0 model-steps" in CliRunner().invoke(app, [*asked, "--dry-run"]).output


def test_some_panels_of_a_figure():
    one = paper.varied(paper.figure("fig5"), ["group-norm"], "paper")
    some = paper.only_panels(one, ["cycle-alpha0.1", "erdos_renyi-alpha1", "cycle-alpha1"])
    assert [panel.name for panel in some.panels] == ["erdos_renyi-alpha1", "cycle-alpha1", "cycle-alpha0.1"]
    assert some.runs == one.runs  # whoever runs all of it later has these already
    whole = paper.panel_specs(one, "paper")
    assert paper.panel_specs(some, "paper") == {panel.name: whole[panel.name] for panel in some.panels}
    assert [[cell.panel for cell in row] for row in cells_of(some)] == [[0], [1], [2]]
    rows = paper.only_panels(one, ["cycle-alpha0.1", "erdos_renyi-alpha0.1"])
    assert [[cell.panel for cell in row] for row in cells_of(rows)] == [[0, 1]]
    assert paper.only_panels(one, []) is one
    with pytest.raises(SpecError, match=r"--panel cycle is no panel of fig5; allowed: erdos_renyi-alpha10, cycle-"):
        paper.only_panels(one, ["cycle"])


@pytest.mark.parametrize(
    ("figure", "variant", "scale", "said"),
    [
        ("fig5", "25gbit", "paper", "is for fig8; fig5 has group-norm"),
        ("tables", "group-norm", "paper", "tables has none"),
        ("fig5", "group-norms", "paper", "did you mean 'group-norm'"),
        ("fig5", "group-norm", "smoke", "--scale paper --set task.samples=2000"),
    ],
)
def test_mistakes(figure, variant, scale, said):
    with pytest.raises(SpecError) as error:
        paper.varied(paper.figure(figure), [variant], scale)
    assert said in str(error.value)


def test_they_are_listed():
    said = CliRunner().invoke(app, ["paper", "variants"]).output
    assert all(name in said for name in paper.VARIANTS)
