"""`wt.compare`: what is handed over in Python becomes a study like any other."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import networkx as nx
import pandas as pd
import pytest
import torch
from annotated_types import Ge, Le
from torch import nn

import walktalk as wt
from tests.support.drawing import drawing
from walktalk.core.errors import StudyError, UserError
from walktalk.records import studies_below
from walktalk.report import draw, judged_at, open_comparison, open_study, write_report
from walktalk.studies import load_spec, make_spec, run_study
from walktalk.studies.execution.workers import fork_is_safe

CYCLE = wt.graphs.cycle(4)


def own_task(shift: float = 0.0) -> wt.Task:
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(30, 5, generator=generator) + shift, torch.arange(30) % 3) for _ in range(4)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    return wt.tasks.torch(model, nn.functional.cross_entropy, parts, test=parts[0], name="hospital")


def small(task, algorithms, graph=CYCLE, **given):
    return wt.compare(task, algorithms, graph, **{"stop": 40, "evaluate": 20, "device": "cpu", **given})


@dataclass(frozen=True)
class Sharing(wt.AsyncGossip):
    """A person's own, that leaves bounds to its types."""

    share: Annotated[float, Ge(0), Le(1)] = 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "mine"
    with drawing():
        return small(own_task(), [wt.MultiWalk(walks=[1, 2]), wt.AsyncGossip()], repetitions=2, out=out)


def test_the_folder_is_a_studys(folder):
    there = {path.name for path in folder.folder.iterdir()}
    assert {"spec.yaml", "history.csv", "summary.json", "figures", "report.html", "runs"} <= there
    assert list(folder.history["algorithm"].unique()) == ["multi_walk-1", "multi_walk-2", "async_gossip-pairwise"]
    assert len(folder.history) == 3 * 2 * 3  # algorithms, repetitions, evaluations
    assert json.loads((folder.folder / "summary.json").read_text()) == folder.summary
    assert {path.stem for path in (folder.folder / "figures").iterdir()} >= {"curves-bits", "network", "partition"}
    page = (folder.folder / "report.html").read_text()
    assert "learning hospital on 4 nodes" in page
    assert "walktalk run" not in page  # it could not be pasted: the data is not in the specification


def test_the_commands_take_the_folder(folder):
    study = open_study(folder.folder)
    assert study.graph == CYCLE
    assert write_report(folder.folder).is_file()
    assert draw(folder.folder, "network")
    (listed,) = studies_below(folder.folder.parent)
    assert (listed.task, listed.nodes, listed.finished, listed.done) == ("hospital", 4, True, 6)
    with pytest.raises(UserError, match=r"'hospital' was given in Python.*name that as module:function"):
        run_study(load_spec(folder.folder / "spec.yaml"))


def test_two_of_them_can_be_compared(folder, tmp_path):
    other = small(own_task(), [wt.AsyncGossip()], out=tmp_path / "other", stop=20)
    assert not open_comparison([folder.folder, other.folder]).warning


def test_a_run_of_it_is_a_run(folder):
    run = folder.run("multi_walk-2", 1)
    alone = folder.history.query("algorithm == 'multi_walk-2' and repetition == 1")
    assert list(run.history["train_loss"]) == list(alone["train_loss"])
    assert (run.trace["event"] == "trained").sum() == 40
    with pytest.raises(StudyError, match=r"no run 7 of 'multi_walk2'.*did you mean 'multi_walk-2'"):
        folder.run("multi_walk2", 7)


def test_a_finished_one_is_refused_overwritten_or_taken_up(folder):
    given = {"repetitions": 2, "out": folder.folder}
    algorithms = [wt.MultiWalk(walks=[1, 2]), wt.AsyncGossip()]
    with pytest.raises(StudyError, match=r"holds the finished results.*another folder, or overwrite=True") as caught:
        small(own_task(), algorithms, **given)
    assert "--" not in str(caught.value)  # no options of the command line: this is Python
    with pytest.raises(StudyError, match="another folder, or overwrite=True"):
        folder.save(folder.folder)
    again = small(own_task(), algorithms, **given, resume=True)
    pd.testing.assert_frame_equal(again.history, folder.history)
    with pytest.raises(StudyError, match=r"output folder of another study.*digest"):
        small(own_task(shift=1.0), algorithms, **given, resume=True)


def test_in_memory_it_has_the_same_numbers_and_a_page(folder, tmp_path):
    result = small(own_task(), [wt.MultiWalk(walks=[1, 2]), wt.AsyncGossip()], repetitions=2)
    pd.testing.assert_frame_equal(result.history, folder.history)
    assert result.folder is None
    with pytest.raises(StudyError, match="say where its page goes"):
        result.report()
    page = result.report(tmp_path / "page.html").read_text()
    assert "learning hospital" in page
    assert 'href="history.csv"' not in page  # a page alone links to nothing
    saved = result.save(tmp_path / "saved")
    assert (saved / "history.csv").read_bytes() == (folder.folder / "history.csv").read_bytes()
    runs = "runs/multi_walk-2/1"
    assert (saved / runs / "trace.parquet").is_file()
    assert open_study(saved).finished


def test_named_things_give_the_bytes_of_the_specification(tmp_path):
    spec = make_spec(
        {
            "name": "named",
            "seed": 3,
            "repetitions": 2,
            "network": {"topology": "erdos_renyi", "nodes": 5, "p": 0.6},
            "task": {"name": "quadratic", "dimension": 6},
            "algorithms": [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}],
            "optimizer": {"name": "adam", "lr": 0.02},
            "stop": {"iterations": 60},
            "evaluate": {"every": 30},
        }
    )
    run_study(spec, tmp_path / "yaml" / "named", device="cpu")
    wt.compare(
        {"name": "quadratic", "dimension": 6},
        ["async_gossip", wt.MultiWalk(walks=2)][::-1],
        {"topology": "erdos_renyi", "nodes": 5, "p": 0.6},
        seed=3,
        repetitions=2,
        optimizer=wt.Adam(lr=0.02),
        stop=60,
        evaluate=30,
        out=tmp_path / "python" / "named",
        device="cpu",
    )
    for name in ("history.csv", "spec.yaml"):
        assert (tmp_path / "yaml/named" / name).read_bytes() == (tmp_path / "python/named" / name).read_bytes()


def test_train_is_one_run_of_it():
    both = small(own_task(), [wt.MultiWalk(walks=2), wt.AsyncGossip()])
    alone = wt.train(own_task(), wt.AsyncGossip(), CYCLE, stop=40, evaluate=20, device="cpu")
    of_both = both.run("async_gossip-pairwise")
    pd.testing.assert_frame_equal(alone.history, of_both.history)
    assert torch.equal(alone.row, of_both.row)


def test_graphs_of_networkx_keep_their_names_and_come_back_from_the_folder(tmp_path):
    graph = nx.relabel_nodes(nx.path_graph(4), dict(enumerate(["ca", "ia", "ks", "nv"])))
    result = small(own_task(), wt.AsyncGossip(), graph, out=tmp_path / "named")
    assert open_study(result.folder).graph.names == ("ca", "ia", "ks", "nv")


def test_a_graph_that_cannot_be_written_down_is_drawn_all_the_same(tmp_path):
    graph = wt.graphs.with_sites(CYCLE, "us-five-sites")
    result = small(own_task(), wt.AsyncGossip(), graph, out=tmp_path / "sites")
    assert open_study(result.folder, result.base).graph is graph
    with pytest.raises(UserError, match="was given in Python"):
        _ = open_study(result.folder).graph
    assert write_report(result.folder).is_file()


class Mine(wt.AsyncGossip):
    """One of somebody's own, known to nobody."""


def test_a_protocol_that_only_this_process_has(tmp_path):
    class Local(wt.AsyncGossip):
        """Nobody can import this."""

    result = small(own_task(), [Mine(), Local()], out=tmp_path / "own")
    assert len(result.summary["algorithms"]) == 2
    assert open_study(result.folder).algorithms.keys() == result.summary["algorithms"].keys()


def test_what_must_travel_says_what_it_needs(monkeypatch, tmp_path):
    needs = "was given as an object, which cannot travel.*give its name instead, task='module:function'"
    with pytest.raises(UserError, match=needs):
        small(own_task(), wt.AsyncGossip(), out=tmp_path / "x", workers="ray")
    monkeypatch.setattr("walktalk.studies.execution.run.fork_is_safe", lambda: False)
    with pytest.raises(UserError, match=needs):
        small(own_task(), wt.AsyncGossip(), out=tmp_path / "x", workers=2)
    with pytest.raises(UserError, match=r"on peers every node is a process.*'hospital'.*task='module:function'"):
        small(own_task(), wt.AsyncGossip(), out=tmp_path / "x", engine="peers")
    with pytest.raises(UserError, match="say where with out="):
        small("digits", wt.AsyncGossip(), engine="peers")
    assert not (tmp_path / "x").exists()


def test_forked_workers_give_the_same_bytes(folder, tmp_path):
    if not fork_is_safe():
        pytest.skip("this process has other threads or a GPU, and cannot be forked")
    result = small(
        own_task(), [wt.MultiWalk(walks=[1, 2]), wt.AsyncGossip()], repetitions=2, out=tmp_path / "mine", workers=2
    )
    assert (result.folder / "history.csv").read_bytes() == (folder.folder / "history.csv").read_bytes()


NOTEBOOK = """
import walktalk as wt
from walktalk.core.errors import UserError
from walktalk.studies import make_spec, run_study
from walktalk.studies.execution import run, workers

@wt.register
def typed_in(nodes: int) -> wt.Task:
    return wt.tasks.digits(nodes=nodes)

spec = make_spec({"task": {"name": "typed_in"}, "stop": {"iterations": 5}})
run.fork_is_safe = workers.fork_is_safe = lambda: False  # as where there is a GPU, or another system
try:
    run_study(spec, "out", workers=2, device="cpu")
except UserError as error:
    print(error)
"""


def test_what_was_typed_into_a_notebook_cannot_be_found_by_other_processes(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    (words,) = ended.stdout.strip().splitlines()
    assert words.startswith("task.name: typed_in is defined in this notebook or prompt, so worker processes cannot")
    assert words.endswith("put it into a file and name it as module:typed_in")


def test_the_table_is_numbers_and_latex(folder):
    assert list(folder.table.index) == ["multi_walk-1", "multi_walk-2", "async_gossip-pairwise"]
    first = folder.history.query("algorithm == 'multi_walk-1'").groupby("repetition")["train_loss"].last()
    assert folder.table.loc["multi_walk-1", "final_loss"] == pytest.approx(first.mean())
    assert folder.latex().count(r"\\") == 5  # head, three rows, and what the numbers are
    assert r"\begin{tabular}{lrrrrrr}" in folder.latex()
    assert "Test loss" in folder.latex()
    assert folder.table["final_test_loss"].notna().all()


def test_columns_target_and_significance_of_the_table_can_be_chosen(folder):
    chosen = folder.latex(["time", "test_loss"]).splitlines()
    assert r"Algorithm & Time & Test loss \\" in chosen
    high = float(folder.history["train_loss"].max()) - 1e-3
    assert f"to training loss {high:.3g}" in folder.latex(target=high)
    assert "not reached" in folder.latex(target=-1.0)
    chances = [one["chance"] for one in folder.summary["winners"].values() if one and one.get("chance")]
    marked = [folder.latex(significance=level).count(r"\textbf") for level in (1e-9, 1 - 1e-12)]
    assert marked[0] >= sum(chance > 0.5 for chance in chances) > 0
    assert marked[0] >= marked[1]  # of two repetitions no more is sure once all verdicts are read together
    one = {"algorithm": "a", "value": 1.0, "next": "b", "clear": False, "chance": 0.9}
    for level, clear in ((0.79, True), (0.81, False)):
        assert judged_at({"winners": {"time": one}}, level)["winners"]["time"]["clear"] is clear
    for call, line in [
        (lambda: folder.latex(["tim"]), "columns: 'tim' is not possible; allowed: loss, .*; did you mean 'time'?"),
        (lambda: folder.latex("time"), "columns: 'time' is not possible; allowed: a list of loss"),
        (lambda: folder.latex(significance=2), "significance: 2 is not possible; allowed: a number above 0, below 1"),
    ]:
        with pytest.raises(UserError, match=line):
            call()


def test_what_a_study_gives_back_is_one_line_at_a_prompt(folder):
    assert len(repr(folder.result)) < 200
    assert "3 algorithms" in repr(folder.result)
    assert len(repr(folder.result.runs[0])) < 500


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"algorithms": wt.MultiWalk(walks="two")}, "algorithms.0.walks: 'two' is not possible"),
        ({"algorithms": [wt.AsyncGossip(), Sharing(share=2)]}, "algorithms.1.share: 2 is not possible; allowed: a"),
        ({"algorithms": "D-PSGD"}, "did you mean 'sync_gossip'?"),
        ({"algorithms": "FedAvg"}, "did you mean 'fedavg'?"),
        ({"graph": "ring"}, "did you mean 'cycle'?"),
        ({"graph": [(0, 1), (1, 2)]}, "wt.Graph.from_edges"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)}, "functools.partial(torch.optim.SGD, lr=…)"),
    ],
)
def test_what_people_try_first_is_told_what_to_do(given, said):
    asked = {"algorithms": wt.MultiWalk(), "graph": CYCLE, **given}
    with pytest.raises(UserError) as told:
        small(own_task(), **asked)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_an_axis_that_is_none_is_told_which_there_are(folder):
    with pytest.raises(
        UserError, match="x: 'iterations' is not possible; allowed: iteration, time, bits; did you mean"
    ):
        folder.plot("iterations")


def test_what_a_prompt_shows_is_short():
    assert (
        repr(own_task())
        == "Task(hospital: Sequential with 57 parameters, 4 nodes with 30 samples each, 30 test samples)"
    )
    assert "Graph" in dir(wt.graphs)
    assert "cycle" in dir(wt.graphs)
    assert "registry" not in dir(wt.graphs)
    assert "torch" in dir(wt.tasks)
    assert "own_model" not in dir(wt.tasks)
