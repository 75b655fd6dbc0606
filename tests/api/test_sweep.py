"""Sweeps: a list where one value belongs is several studies, in one table that sorts and filters."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import walktalk as wt
from walktalk.cli import app
from walktalk.core.errors import SpecError, UserError
from walktalk.studies import load_specs, make_specs

TINY = {
    "name": "tiny",
    "repetitions": 2,
    "network": {"topology": "cycle", "nodes": 4},
    "task": {"name": "quadratic", "dimension": 4},
    "training": {"local_steps": 1, "batch_size": 4},
    "optimizer": {"lr": 0.05, "momentum": 0.0},
    "algorithms": [{"name": "multi_walk", "walks": [1, 2]}],
    "stop": {"iterations": 40},
    "evaluate": {"every": 20},
}


EIGHT = ("nodes 8, alpha 0.1", "nodes 8, alpha 1")


def walktalk(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> wt.Sweep:
    folder = tmp_path_factory.mktemp("sweeps") / "tiny"
    return wt.sweep(TINY, {"optimizer.lr": [0.02, 0.1], "network.topology": ["cycle", "complete"]}, out=folder)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["optimizer.lr=[0.02, 0.1]"], ["lr 0.02", "lr 0.1"]),
        (["seed=[0,1]"], ["seed 0", "seed 1"]),
        (
            ["task.alpha=[0.1, 1.0]", "network.nodes=[6, 8]"],
            [f"nodes {n}, alpha {a}" for n in (6, 8) for a in (0.1, 1)],
        ),
        (["optimizer.name=[sgd, adam]"], ["optimizer sgd", "optimizer adam"]),
        (["schedule.decay_at=[0.5, 0.7]"], ["smoke"]),  # one list, as that key has
        (["schedule.decay_at=[[0.5], [0.7]]"], ["decay_at 0.5", "decay_at 0.7"]),
        (["optimizer.lr=0.1"], ["smoke"]),
    ],
)
def test_a_list_where_one_value_belongs_is_several_studies(overrides: list[str], names: list[str]) -> None:
    assert list(load_specs("smoke", overrides)) == names


def test_each_topology_has_its_own_keys() -> None:
    network = {"topology": ["cycle", "erdos_renyi"], "nodes": 8, "p": 0.4}
    specs = make_specs({"network": network})
    assert [spec.network.parameters for spec in specs.values()] == [{}, {"p": 0.4}]
    assert [spec.name for spec in specs.values()] == ["topology-cycle", "topology-erdos_renyi"]


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"optimizer.lr": [0.1, -1]}, r"optimizer.lr: -1 is not possible; allowed: a number above 0.* \(where lr -1\)"),
        ({"optimizer.lr": 0.1}, "over.optimizer.lr: 0.1 is not possible; allowed: a list of values"),
        ({"optimizer.lr": []}, "allowed: a list of at least one value"),
        ({"optimizer.lr": [0.1, 0.1]}, "lr 0.1 is there twice"),
        ({"optimizer.rate": [0.1, 0.2]}, "rate: is an unknown key"),
        ({"seed": range(2000)}, "2,000 studies are too many for a sweep; allowed: 1,000"),
    ],
)
def test_what_cannot_be_swept_is_one_line(over: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        make_specs(TINY, over)


def test_every_combination_has_its_rows(swept: wt.Sweep) -> None:
    assert len(swept.results) == 4
    assert list(swept.table.columns[:2]) == ["network.topology", "optimizer.lr"]
    assert len(swept.table) == 4 * 2  # algorithms of each
    alone = wt.run_study(swept.specs["lr 0.02, topology complete"])
    assert alone.history.equals(swept.results["lr 0.02, topology complete"].history)


def test_the_table_sorts_and_filters(swept: wt.Sweep) -> None:
    losses = swept.rows(sort="-loss")["final_loss"].tolist()
    assert losses == sorted(losses, reverse=True)
    assert set(swept.rows(where="topology=cycle")["network.topology"]) == {"cycle"}
    assert set(swept.rows(where=["lr<0.05", "topology!=cycle"])["optimizer.lr"]) == {0.02}
    assert list(swept.rows(columns=["lr", "loss"]).columns) == ["optimizer.lr", "final_loss", "final_loss_std"]
    with pytest.raises(SpecError, match="column: 'lrr' is not possible; allowed: network"):
        swept.rows(sort="lrr")
    with pytest.raises(SpecError, match="where: 'lr~3' is not possible; allowed: key=value"):
        swept.rows(where="lr~3")
    assert len(repr(swept)) < 5000


def test_a_sweep_goes_on_where_it_was_stopped(swept: wt.Sweep) -> None:
    assert swept.folder is not None
    before = {path: path.read_bytes() for path in swept.folder.rglob("history.csv")}
    over = {"optimizer.lr": [0.02, 0.1], "network.topology": ["cycle", "complete"]}
    again = wt.sweep(TINY, over, out=swept.folder, resume=True)
    assert {path: path.read_bytes() for path in swept.folder.rglob("history.csv")} == before
    assert again.table.equals(swept.table)
    with pytest.raises(SpecError, match="resume is about a folder"):
        wt.sweep(TINY, over, resume=True)


def test_the_command_line_sweeps_too(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("run", "smoke", "--set", "optimizer.lr=[0.02,0.1]", "--set", "stop.iterations=24", "--out", out)
    code, said, errors = walktalk(*words)
    assert code == 0, errors
    assert "2 studies" in said
    assert {path.name for path in out.iterdir()} == {"lr-0.02", "lr-0.1", "report.html"}
    assert (out / "lr-0.1" / "report.html").is_file()
    code, said, errors = walktalk("table", out, "--form", "csv", "--sort", "-loss", "--where", "lr<0.05")
    assert code == 0, errors
    head, *rows = said.splitlines()
    assert head.startswith("optimizer.lr,algorithm")
    assert len(rows) == 3
    assert all(row.startswith("0.02,") for row in rows)
    assert walktalk("table", *sorted(out.iterdir()), "--form", "csv")[1].splitlines()[0] == head  # as out/* does
    code, said, _ = walktalk("table", out, "--form", "markdown", "--columns", "lr,loss")
    assert said.splitlines()[0] == "| Lr | Loss |"
    code, _, errors = walktalk("table", out, "--target", "0.5")
    assert (code, errors.startswith("error: --target has no meaning for a table of many studies")) == (2, True)


def test_what_a_sweep_cannot_do_is_one_line(tmp_path: Path) -> None:
    code, _, errors = walktalk("run", "smoke", "--set", "seed=[0,1]", "--engine", "peers", "--out", tmp_path / "x")
    assert code == 2
    assert "--engine peers is for one study, but a list makes a sweep of 2" in errors
