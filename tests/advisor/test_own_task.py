"""`wt.advise` on things that a person has in Python: a task, a networkx graph, a protocol of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch

import walktalk as wt
from walktalk.core.errors import SpecError

SITES = ("north", "east", "south", "west")


def own_task() -> wt.Task:
    """Which side of a plane, at four sites that see different parts of it."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 6, generator=generator)
    targets = (inputs @ torch.arange(1.0, 7.0) > 0).long()
    order = inputs[:, 0].argsort()
    parts = {name: (inputs[part], targets[part]) for name, part in zip(SITES, order.chunk(4), strict=True)}
    return wt.tasks.torch(torch.nn.Linear(6, 2), torch.nn.functional.cross_entropy, parts)


def ring() -> nx.Graph:
    return nx.cycle_graph(SITES)


@pytest.fixture(scope="module")
def advice() -> wt.Advice:
    return wt.advise(
        own_task(), ring(), objective="iterations", target_loss=0.25, batch_size=8, evaluate=wt.Evaluate(every=5)
    )


def test_a_task_of_ones_own_on_a_networkx_graph(advice: wt.Advice) -> None:
    assert len(repr(advice)) < 160
    assert "learning rate" in repr(advice)
    assert advice.ranking["advised"].tolist() == [True] + [False] * (len(advice.ranking) - 1)
    top = advice.ranking.iloc[0]
    assert top["low"] <= top["expected"] <= top["high"]
    assert set(advice.predictions) == {"iterations", "time", "bits", "loss"}
    shown = advice._repr_html_()
    assert "<table" in shown
    assert "wt.train" in shown


def test_its_code_carries_it_out_and_reaches_the_target(advice: wt.Advice) -> None:
    names: dict[str, Any] = {"task": own_task(), "graph": ring()}
    exec(advice.code, names)
    assert names["run"].history["train_loss"].iloc[-1] <= 0.25
    again = advice.run(seed=3)
    assert again.history["train_loss"].iloc[-1] <= 0.25
    assert again.history["train_loss"].iloc[:-1].min() > 0.25  # it stops at the first evaluation that shows it


def test_a_choice_of_algorithms() -> None:
    among = ["local_dsgd", wt.AsyncGossip()]
    found = wt.advise(own_task(), ring(), objective="time", budget=40.0, algorithms=among, batch_size=8)
    assert {one.candidate.protocol.name for one in found.tried} == {"local_dsgd", "async_gossip"}
    assert found.predictions["time"].value == 40.0
    with pytest.raises(SpecError, match="local_dsg"):
        wt.advise(own_task(), ring(), algorithms=["local_dsg"])
    with pytest.raises(SpecError, match="star"):
        wt.advise(own_task(), ring(), algorithms=["fedavg"])


def test_a_budget_and_a_target_exclude_each_other() -> None:
    with pytest.raises(SpecError, match="exclude each other"):
        wt.advise(own_task(), ring(), budget=3.0, target_loss=0.1)


MODULE = """
import torch
import walktalk as wt

def hospital(nodes: int = 4, seed: int = 0, size: int = 40) -> wt.Task:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(nodes * size, 5, generator=generator)
    targets = (inputs.sum(1) > 0).long()
    parts = [(inputs[k * size : (k + 1) * size], targets[k * size : (k + 1) * size]) for k in range(nodes)]
    return wt.tasks.torch(torch.nn.Linear(5, 2), torch.nn.functional.cross_entropy, parts)
"""
STUDY = """
network: {topology: cycle, nodes: 4}
task: {name: "hospital_tasks:hospital", size: 30}
training: {batch_size: 8, local_steps: 1}
algorithms: [{name: async_gossip}]
stop: {iterations: 600}
evaluate: {every: 5}
"""


@pytest.mark.parametrize("more", [["--objective", "bits"], ["--objective", "iterations", "--budget", "80"]])
def test_the_command_line_with_a_task_of_ones_own_and_what_it_prints(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pasted, the printed command runs, also after the study itself, and stops at the target, or spends the budget."""
    import shlex

    import pandas as pd
    import yaml
    from typer.testing import CliRunner

    from walktalk.cli.app import app

    (tmp_path / "hospital_tasks.py").write_text(MODULE)
    (tmp_path / "study.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert CliRunner().invoke(app, ["run", "study.yaml", "--set", "stop.iterations=4"]).exit_code == 0
    plain = CliRunner().invoke(app, ["advise", "study.yaml", *more])
    assert plain.exit_code == 0, plain.output
    printed = [line.removeprefix("Run it: ") for line in plain.stdout.splitlines() if line.startswith("Run it: ")]
    parts = shlex.split(printed[0])
    assert parts[0] == "walktalk"
    ran = CliRunner().invoke(app, parts[1:])
    assert ran.exit_code == 0, ran.output
    last = pd.read_csv(tmp_path / parts[parts.index("--out") + 1] / "history.csv").iloc[-1]
    stop = yaml.safe_load(parts[-1].removeprefix("stop="))
    if "--budget" in more:
        assert last["iteration"] == stop["iterations"] == 80
    else:
        assert last["train_loss"] <= stop["target_loss"]
