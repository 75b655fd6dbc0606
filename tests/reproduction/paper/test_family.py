"""The family: who is in it and where, one figure that stays legible, one table with everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from walktalk import graphs
from walktalk.cli.app import app
from walktalk.core.errors import SpecError
from walktalk.core.plugins import REGISTRIES
from walktalk.protocols import PROTOCOLS, Described, Machine, NetworkView, Protocol, together
from walktalk.protocols.self_description import Demand
from walktalk.reproduction import paper
from walktalk.reproduction.paper import figures as family
from walktalk.reproduction.paper import tune
from walktalk.reproduction.paper.drawing import family as drawn


def test_everybody_is_there_once_on_a_graph_that_it_can_run_on():
    named = []
    for panel in paper.figure("family").panels:
        graph = graphs.build(**{**panel.network, "seed": 0})
        for entry in panel.algorithms:
            named.append(entry["name"])
            PROTOCOLS[entry["name"]](**{key: value for key, value in entry.items() if key != "name"}).check_graph(graph)
    assert set(named) == set(PROTOCOLS)
    assert sorted(named) == sorted(name for name in PROTOCOLS for _ in family.FORMS.get(name, ({},)))


def test_who_can_runs_on_the_common_graph():
    first, *others = paper.figure("family").panels
    common = graphs.build(**{**first.network, "seed": 0})
    for panel in others:
        for entry in panel.algorithms:
            with pytest.raises(SpecError):
                PROTOCOLS[entry["name"]]().check_graph(common)


@dataclass(frozen=True)
class OnStars(Protocol):
    """Runs on a star and nowhere else."""

    made_for = "star"
    demands = (Demand("a star", lambda graph: graph.edges == graph.nodes - 1, "{graph} is no star for {label}"),)

    def machine(self, network_view: NetworkView) -> Machine:
        raise NotImplementedError


def test_what_is_registered_is_what_is_run(monkeypatch):
    monkeypatch.setitem(REGISTRIES["algorithm"]._things, "on_stars", OnStars)
    panels = {panel.name: [entry["name"] for entry in panel.algorithms] for panel in paper.figure("family").panels}
    assert "on_stars" in panels["star"]


@pytest.mark.parametrize("scale", paper.SCALES)
def test_all_panels_share_data_seeds_and_settings(scale):
    specs = list(paper.panel_specs(paper.figure("family"), scale).values())
    for spec in specs[1:]:
        for key in ("seed", "repetitions", "task", "training", "optimizer", "timing", "stop", "evaluate"):
            assert getattr(spec, key) == getattr(specs[0], key), key


def invented(count: int) -> drawn.Family:
    """Curves of many algorithms, in the shape of a history."""
    kinds = ["walks"] * 3 + ["gossip"] * (count - 8) + ["server"] * 4 + ["reference"]
    says = together(Described(f"a{k}", f"a{k}", f"algorithm {k}", kind) for k, kind in enumerate(kinds))
    rows = [
        (
            label,
            repetition,
            step * 100,
            step * (1.0 + k),
            step * 1e6 * (1 + k % 5),
            2.3 / (1 + step * (k + 1) / count),
            0.5,
            0.0,
        )
        for k, label in enumerate(says)
        for repetition in range(2)
        for step in range(6)
    ]
    columns = ["algorithm", "repetition", "iteration", "time", "bits", "train_loss", "test_accuracy", "consensus"]
    members = {label: drawn.Member(one, "Star" if one.family == "server" else "Ring", one.family != "server", 0.1)
               for label, one in says.items()}  # fmt: skip
    return drawn.Family(pd.DataFrame(rows, columns=columns), members)


@pytest.mark.parametrize("count", [12, 26, 40])
def test_the_figure_stays_legible_however_many_there_are(count):
    """No panel has more than a few curves in colour, all of them different; everybody is in one row's legend, once."""
    many = invented(count)
    figure = drawn.figure(many)
    legends = [text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
    assert sorted(legends) == sorted(member.title for member in many.members.values())
    for axes in figure.axes:
        told = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
        assert 1 <= len(told) <= drawn.ROW
        assert len({line.get_color() for line in told}) == len(told)
        assert len(axes.get_lines()) == count


def test_the_table_has_everybody_and_says_which_graph():
    many = invented(26)
    table = drawn.table(many)
    assert sorted(table["label"]) == sorted(many.members)
    assert set(table.loc[table["family"] == "server", "graph"]) == {"Star"}
    assert np.isfinite(table["iteration_to_target"]).all()
    text = drawn.table_text(table)
    assert sum(line.startswith("| Algorithm") for line in text.splitlines()) == 26


def test_one_that_diverged_is_said_to_have():
    many = invented(12)
    worst = many.history["algorithm"] == "a0"
    many.history.loc[worst & (many.history["iteration"] > 200), "train_loss"] = np.nan
    assert "| Algorithm 0 | Ring | 0.1 | diverged |" in drawn.table_text(drawn.table(many))


def test_it_runs_from_the_command_line(monkeypatch, tmp_path):
    few = ({"name": "multi_walk", "walks": 4}, {"name": "sync_gossip"}, {"name": "fedavg"})
    monkeypatch.setattr(family, "members", lambda: [(one, PROTOCOLS[one["name"]]()) for one in few])
    monkeypatch.setattr(tune, "FARTHEST", 4.0)  # the grid goes on no further
    words = ["paper", "run", "family", "--out", str(tmp_path), "--iterations", "40", "--repetitions", "1"]
    done = CliRunner().invoke(app, [*words, "--set", "task.hidden=4", "--set", "evaluate.every=20"])
    assert done.exit_code == 0, done.output
    for name in ("family.png", "family.csv", "family.md", "family.html"):
        assert (tmp_path / name).stat().st_size > 0
    table = pd.read_csv(tmp_path / "family.csv")
    assert list(table["label"]) == ["multi_walk-4", "sync_gossip", "fedavg"]
    assert list(table["graph"]) == ["Erdős–Rényi (0.3)", "Erdős–Rényi (0.3)", "Star"]


def test_whoever_asks_for_the_preset_is_told_where_it_is():
    done = CliRunner().invoke(app, ["run", "family"])
    assert "walktalk paper run family" in done.output
