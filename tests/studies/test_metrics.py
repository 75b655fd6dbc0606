"""What is measured: the test loss always, metrics of one's own, every member on request, and a word on an old copy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.learning import plain
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import ModelError
from walktalk.protocols import FedAvg
from walktalk.records import RUN_COLUMNS, HistoryRow, history_text, read_history
from walktalk.studies import load_spec, run_study
from walktalk.studies.results import word_on_aggregate

X, Y = plain.images(60, 4), plain.classes(60, count=3)
PARTS = {"a": (X[:20], Y[:20]), "b": (X[20:40], Y[20:40]), "c": (X[40:], Y[40:])}


def share_of_zeros(outputs, targets):
    return (outputs.argmax(1) == 0).float().mean()


def task(**given) -> wt.Task:
    torch.manual_seed(0)
    return wt.tasks.torch(nn.Linear(4, 3), functional.cross_entropy, PARTS, **{"test": (X[:30], Y[:30]), **given})


def train(task, protocol=None, iterations=30, **given) -> wt.Run:
    stop, protocol = wt.Stop(iterations=iterations), protocol or wt.AsyncGossip()
    return wt.train(task, protocol, wt.graphs.complete(3), stop=stop, device="cpu", **given)


def test_loss_and_own_metrics_are_those_of_the_model():
    run = train(task(metrics={"zeros": share_of_zeros, "count": lambda outputs, targets: len(targets)}))
    last, outputs = run.history.iloc[-1], run.model(X[:30]).detach()
    assert last["test_loss"] == pytest.approx(float(functional.cross_entropy(outputs, Y[:30])), rel=1e-5)
    assert last["test_accuracy"] == pytest.approx(float((outputs.argmax(1) == Y[:30]).float().mean()))
    assert last["zeros"] == pytest.approx(float(share_of_zeros(outputs, Y[:30])))
    assert last["count"] == 30
    assert list(run.history.columns[-6:]) == [
        "test_loss",
        "mean_test_loss",
        "count",
        "zeros",
        "mean_count",
        "mean_zeros",
    ]


def test_a_regression_has_a_test_loss_and_no_accuracy():
    parts = [(X[:30], X[:30, :2] * 2), (X[30:], X[30:, :2] * 2), (X, X[:, :2] * 2)]
    run = train(wt.tasks.torch(nn.Linear(4, 2), functional.mse_loss, parts, (X, X[:, :2] * 2)), iterations=200)
    assert run.history["test_accuracy"].isna().all()
    assert run.history["test_loss"].iloc[-1] < 0.1 * run.history["test_loss"].iloc[0]


def test_a_metric_that_fails_is_named():
    def broken(outputs, targets):
        raise ValueError("no")

    with pytest.raises(ModelError, match="metrics: broken fails on the test samples: no"):
        train(task(metrics={"broken": broken}))
    with pytest.raises(ModelError, match="metrics: 'a,b' cannot be a metric's name"):
        task(metrics={"a,b": share_of_zeros})
    with pytest.raises(ModelError, match="metrics: f1 should be a function"):
        task(metrics={"f1": 0.5})


def test_every_members_own_model_on_request():
    run = train(task(), evaluate=wt.Evaluate(every=10, members=True))
    last = run.history.iloc[-1]
    assert last["each_test_accuracy_worst"] <= last["each_test_accuracy_mean"]
    assert last["each_test_loss_worst"] >= last["each_test_loss_mean"]
    assert run.history["each_test_loss_std"].iloc[0] == 0  # all start alike
    assert last["each_test_loss_std"] > 0
    assert not [name for name in train(task()).history.columns if name.startswith("each_")]


def test_the_model_on_every_nodes_own_data():
    tests = {name: (x[:5], y[:5]) for name, (x, y) in PARTS.items()}
    run = train(task(test=tests))
    for name, (x, y) in PARTS.items():
        line, outputs = run.by_node.loc[name], run.model(x).detach()
        assert line["samples"] == 20
        assert line["train_loss"] == pytest.approx(float(functional.cross_entropy(outputs, y)), rel=1e-4)
        assert line["test_loss"] == pytest.approx(float(functional.cross_entropy(outputs[:5], y[:5])), rel=1e-4)


def test_a_studys_columns_stay_and_metrics_that_are_asked_for_come_behind(tmp_path):
    row = HistoryRow("a", 0, 1, 1.0, 8, 0.5, 0.5, 0.0)
    usual = row._replace(further={"test_loss": 0.25, "mean_test_loss": 0.5})
    assert history_text([usual]) == history_text([row])
    assert history_text([usual], RUN_COLUMNS).splitlines()[0].endswith("mean_test_accuracy,test_loss,mean_test_loss")
    asked = row._replace(further={"test_loss": 0.25, "f1": 0.75})
    assert history_text([asked, row]).splitlines()[1:] == [
        history_text([row]).splitlines()[1] + end for end in (",0.75", ",")
    ]
    (tmp_path / "history.csv").write_text(history_text([asked, row]))
    assert read_history(tmp_path / "history.csv")["f1"].iloc[0] == 0.75


def test_a_study_has_its_test_loss_in_the_summary_and_in_its_runs(tmp_path):
    overrides = ["repetitions=1", "stop.iterations=40", "evaluate.members=true"]
    result = run_study(load_spec("smoke", overrides), tmp_path / "out", device="cpu", workers=1)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    numbers = next(iter(summary["algorithms"].values()))
    assert np.isfinite(numbers["final_test_loss"]["mean"])
    assert np.isfinite(numbers["final_each_test_accuracy_worst"]["mean"])
    assert "each_test_accuracy_worst" in result.history.columns
    assert "test_loss" not in result.history.columns
    own = next((tmp_path / "out" / "runs").rglob("history.csv"))
    assert "test_loss" in read_history(own).columns


def test_a_word_when_the_aggregators_copy_was_never_trained_or_is_old():
    far, path = wt.MultiWalk(walks=1, aggregator=2), wt.graphs.path(3)  # the walk begins at node 0, two hops away
    with pytest.warns(UserWarning, match="no walk has come to the aggregator, so its copy was never trained"):
        wt.train(task(), far, path, stop=wt.Stop(iterations=1), device="cpu")
    fine = train(task(), wt.MultiWalk(walks=2), iterations=60).record
    assert word_on_aggregate(fine) is None
    fine.aggregated_at = 20
    assert "is old: no walk has come there in the last 40 of 60 iterations" in word_on_aggregate(fine)
    assert train(task()).record.aggregated_at is None


def test_a_server_is_spoken_of_as_one():
    """Two of three nodes have trained: the first round is not over."""
    with pytest.warns(UserWarning, match="the server has taken in nothing yet.*mean of the nodes' models") as words:
        wt.train(task(), FedAvg(), wt.graphs.star(3), stop=wt.Stop(iterations=2), device="cpu")
    assert not any("walk" in str(word.message).removeprefix("walktalk") for word in words)


def test_a_word_where_the_copy_has_missed_much_of_what_the_walks_have_learned():
    record = train(task(), wt.MultiWalk(walks=2), iterations=60).record
    record.aggregated_at = 58  # not old
    first = record.history[0]
    for loss, said in ((0.4, True), (0.12, False)):
        of_mean = 0.1 * first.mean_train_loss
        record.history[-1] = record.history[-1]._replace(
            train_loss=loss * first.mean_train_loss, mean_train_loss=of_mean
        )
        word = word_on_aggregate(record)
        assert (word is not None and "the aggregator's copy is behind the walks" in word) is said


def test_the_mean_is_advised_only_where_it_is_better():
    old = train(task(), wt.MultiWalk(walks=2), iterations=60).record
    old.aggregated_at = 20
    for mean, advised in ((0.1, True), (9.9, False)):
        old.history[-1] = old.history[-1]._replace(train_loss=1.0, mean_train_loss=mean)
        assert ("measure the mean" in word_on_aggregate(old)) is advised
