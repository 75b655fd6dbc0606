"""Site by site: what a study says of its models at every site."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import walktalk as wt
from walktalk.api.callbacks import by_run_and_site
from walktalk.learning import Trainer
from walktalk.records import StudyFolder
from walktalk.report import open_study, page_parts
from walktalk.studies import make_spec, read_sites, run_study
from walktalk.studies.results import sites

SMALL = {
    "name": "small",
    "network": {"topology": "cycle", "nodes": 5},
    "task": {"name": "quadratic"},
    "algorithms": [{"name": "multi_walk", "walks": 2}, {"name": "async_gossip"}],
    "repetitions": 2,
    "stop": {"iterations": 40},
    "evaluate": {"every": 20},
}


def hospitals(metrics=None):
    torch.manual_seed(0)
    risk = torch.randn(6)

    def hospital(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        patients = torch.randn(count, 6)
        return patients, (patients @ risk > 0).long()

    sizes = {"lyon": 60, "brest": 12, "lille": 30}
    parts, tests = ({name: hospital(size) for name, size in sizes.items()} for _ in range(2))
    model = torch.nn.Linear(6, 2)
    return wt.tasks.torch(model, torch.nn.functional.cross_entropy, parts, test=tests, metrics=metrics or {})


def test_a_study_says_how_good_its_models_are_at_every_site(tmp_path):
    study = wt.compare(
        hospitals(),
        [wt.MultiWalk(walks=2), wt.AsyncGossip()],
        wt.graphs.complete(3),
        stop=60,
        evaluate=20,
        out=tmp_path,
    )
    table = read_sites(StudyFolder(tmp_path).sites)
    assert list(table["node"].unique()) == ["lyon", "brest", "lille"]
    for label, part in table.groupby("algorithm"):
        last = study.history[study.history["algorithm"] == label].iloc[-1]
        assert np.average(part["train_loss"], weights=part["samples"]) == pytest.approx(last["train_loss"], rel=1e-4)
        assert np.average(part["test_accuracy"], weights=part["samples"]) == pytest.approx(last["test_accuracy"])
    run = study.runs[0]
    mine = table.query("algorithm == @run.record.label").set_index("node")["train_loss"]
    assert list(mine) == pytest.approx(list(run.by_node["train_loss"]), rel=1e-5)


def test_it_is_that_of_the_first_repetition_the_same_every_time_and_gone_with_its_models(tmp_path):
    spec, folder = make_spec(SMALL), StudyFolder(tmp_path / "out")
    result = run_study(spec, folder.path, workers=1)
    assert len(result.sites) == 2 * 5
    first = folder.sites.read_bytes()
    run_study(spec, folder.path, workers=2, overwrite=True)
    assert folder.sites.read_bytes() == first
    alone = make_spec({**SMALL, "algorithms": SMALL["algorithms"][:1]})
    run_study(alone, folder.path, workers=1, overwrite=True)
    assert set(read_sites(folder.sites)["algorithm"]) == {"multi_walk-2"}


def test_of_very_many_sites_or_with_a_metric_that_a_small_one_cannot_have_there_is_no_table(monkeypatch):
    spec = make_spec(SMALL)
    monkeypatch.setattr(sites, "MOST", 4)
    assert run_study(spec).sites is None
    monkeypatch.undo()

    def needs_many(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        if len(targets) < 20:
            raise ValueError("too few")
        return 1.0

    task = hospitals({"needs_many": needs_many})
    study = wt.compare(task, [wt.AsyncGossip()], wt.graphs.complete(3), stop=20, evaluate=10)
    assert study.history["needs_many"].eq(1.0).all()  # it ends as ever


def test_nothing_is_measured_where_nobody_has_the_data(monkeypatch):
    monkeypatch.setattr(Trainer, "by_node", lambda self, row: pytest.fail("nobody asked"))
    assert sites.measured_by_site(None, []) == []


def test_every_nodes_and_walks_own_model_on_every_sites_data(tmp_path):
    """The matrix: how good each is, by hand on those samples; on the page, in the folder and for trackers."""
    algorithms = [wt.MultiWalk(walks=2), "local_dsgd"]
    how = {"stop": 30, "evaluate": wt.Evaluate(every=30, members=True), "repetitions": 2, "out": tmp_path}
    study = wt.compare(hospitals(), algorithms, wt.graphs.complete(3), **how)
    whole, own = read_sites(StudyFolder(tmp_path).sites), read_sites(StudyFolder(tmp_path).models)
    assert list(whole["node"]) == ["lyon", "brest", "lille"] * 2
    assert list(own.groupby("algorithm", sort=False)["model"].unique().map(list)) == [
        ["walk 1", "walk 2"],
        ["lyon", "brest", "lille"],
    ]
    trainer, record = study.result.trainer, study.runs[-2].record
    assert (record.label, record.repetition) == ("local_dsgd", 0)
    task = trainer.task
    for (model, node), row in own[own["algorithm"] == "local_dsgd"].set_index(["model", "node"]).iterrows():
        module = trainer.module(record.members[task.names.index(model)])
        part = task.parts[task.names.index(node)]
        loss = torch.nn.functional.cross_entropy(module(task.inputs[part]), task.targets[part])
        assert row["train_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert not study.runs[-1].record.members  # of the first repetition alone
    page = page_parts(open_study(tmp_path)).sections["sites"]
    assert "Every model on every site" in page
    assert ">walk 2<" in page
    rows = [row for table in (study.sites, study.models) for row in table.to_dict("records")]
    values = dict(value for _, of in by_run_and_site(rows) for value in of.items())
    assert {"site/lyon/train_loss", "site/lyon/walk 2/train_loss", "site/brest/lille/test_accuracy"} <= values.keys()
