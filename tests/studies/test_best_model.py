"""The best model of a run is kept beside the last one: by samples that every node holds out, or by the test set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import walktalk as wt
from walktalk.core.errors import SpecError, StudyError, UserError
from walktalk.records import StudyFolder
from walktalk.studies import build_task, make_spec, run_study
from walktalk.studies.planning import build_trainer, held_out

TASK = wt.tasks.digits(nodes=4, alpha=0.3)
GRAPH = wt.graphs.complete(4)
# So large a rate that the loss goes up and down: the last model is not the best.
WILD = {"optimizer": wt.SGD(lr=0.5, momentum=0.9), "stop": 60, "evaluate": 4, "local_steps": 1}


def train(algorithm, **keywords):
    return wt.train(TASK, algorithm, GRAPH, **{**WILD, **keywords})


def spec(**evaluate):
    return make_spec(
        {
            "network": {"topology": "complete", "nodes": 4},
            "repetitions": 2,
            "optimizer": {"lr": 0.5},
            "training": {"local_steps": 1},
            "algorithms": [{"name": "multi_walk", "walks": 2}, {"name": "fedavg"}],
            "stop": {"iterations": 40},
            "evaluate": {"every": 4, **evaluate},
        }
    )


@pytest.mark.parametrize("algorithm", ["multi_walk", "async_gossip", "fedavg"])
@pytest.mark.parametrize("measure", ["test_accuracy", "test_loss", "train_loss"])
def test_the_best_is_the_best_of_all_that_was_measured(algorithm, measure):
    run = train(algorithm, evaluate=wt.Evaluate(every=4, best=measure))
    both = run.history[[measure, f"mean_{measure}"]]
    wanted = both.to_numpy().max() if measure == "test_accuracy" else both.to_numpy().min()
    assert run.best.value == pytest.approx(wanted)
    row = run.history.set_index("iteration").loc[run.best.iteration]
    assert wanted in (pytest.approx(row[measure]), pytest.approx(row[f"mean_{measure}"]))
    vector = torch.from_numpy(run.record.best.row)[None]
    assert float(run.trainer.measure(vector)[measure][0]) == pytest.approx(wanted, rel=1e-5)
    assert all(torch.isfinite(tensor).all() for tensor in run.best.model.state_dict().values())


def test_every_node_holds_out_its_own_share():
    task = build_task(spec())
    kept, validation = held_out(task, 0.1)
    assert sorted([*np.concatenate(kept.parts), *np.concatenate(validation)]) == sorted(np.concatenate(task.parts))
    for before, after, own in zip(task.parts, kept.parts, validation, strict=True):
        gone = set(before) - set(after)
        assert len(gone) == max(1, round(0.1 * len(before)))
        assert gone == set(own)
    assert held_out(task, None) == (task, None)


def test_by_validation_nothing_of_it_is_trained_on():
    run = train("multi_walk", evaluate=wt.Evaluate(every=4, validation=0.2))
    assert run.best.measure == "valid_loss"
    assert {"valid_loss", "valid_accuracy", "mean_valid_loss"} <= set(run.history.columns)
    assert run.best.value == pytest.approx(run.history[["valid_loss", "mean_valid_loss"]].to_numpy().min())
    trained = set(run.trainer.data.sampler.samples.tolist())
    validation = np.concatenate(held_out(TASK, 0.2)[1])
    assert trained.isdisjoint(validation)
    assert len(trained) + len(validation) == sum(map(len, TASK.parts))


def test_keeping_the_best_changes_nothing_else():
    plain, kept = train("multi_walk"), train("multi_walk", evaluate=wt.Evaluate(every=4, best="test_loss"))
    assert plain.history.equals(kept.history)
    assert torch.equal(plain.row, kept.row)


def test_without_a_word_the_best_goes_by_the_training_loss_and_not_by_the_test_set():
    run = train("multi_walk")
    assert run.best.measure == "train_loss"
    assert run.best.value == pytest.approx(run.history[["train_loss", "mean_train_loss"]].to_numpy().min())
    wild = train("multi_walk", optimizer=wt.SGD(lr=1e30), stop=4, evaluate=wt.Evaluate(every=4, best="test_loss"))
    bare = replace(wild, record=replace(wild.record, best=None))
    with pytest.raises(StudyError, match=r"best: there is none: no loss that was measured is finite"):
        _ = bare.best


def test_the_folder_has_both_also_after_workers_and_a_resumed_run(tmp_path):
    wanted = spec(validation=0.1)
    here = run_study(wanted, tmp_path / "one", workers=1)
    several = run_study(wanted, tmp_path / "two", workers=2)
    for record, other in zip(here.runs, several.runs, strict=True):
        assert (record.best.iteration, record.best.value) == (other.best.iteration, other.best.value)
        place = StudyFolder(tmp_path / "two").run(record.label, record.repetition)
        best, last = load_file(place.best), load_file(place.model)
        assert best.keys() == last.keys()
        flat = here.trainer.module(torch.from_numpy(record.best.row)).state_dict()
        assert all(torch.equal(best[name], flat[name]) for name in flat)
    again = run_study(wanted, tmp_path / "one", resume=True)
    assert [run.best.value for run in again.runs] == [run.best.value for run in here.runs]
    assert [run.best.iteration for run in again.runs] == [run.best.iteration for run in here.runs]


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("multi_walk", "the aggregator's copy"),
        ("async_gossip", "the mean of all nodes"),
        ("fedavg", "the server's model"),
    ],
)
def test_a_run_says_which_model_it_gives(algorithm, words):
    run = train(algorithm, stop=12)
    assert run.model_is == words
    assert words in repr(run)


@pytest.mark.parametrize(
    ("evaluate", "line"),
    [
        ({"validation": 1.0}, "evaluate.validation: 1.0 is not possible; allowed: a number above 0, below 1"),
        ({"best": "valid_loss"}, "evaluate.best: valid_loss needs samples to validate on; give validation: 0.1"),
        ({"best": "luck"}, "evaluate.best: 'luck' is not possible; allowed: valid_loss"),
    ],
)
def test_what_is_not_possible_is_one_line(evaluate, line):
    with pytest.raises(SpecError, match=line):
        spec(**evaluate)


def test_too_little_data_and_no_test_set_are_one_line():
    pairs = torch.utils.data.TensorDataset(torch.randn(1, 2), torch.zeros(1, 1))
    small = wt.tasks.torch(torch.nn.Linear(2, 1), torch.nn.MSELoss(), [pairs, pairs])
    with pytest.raises(UserError, match=r"evaluate.validation: 0.5 leaves node 0 nothing to train on; it has 1"):
        build_trainer(spec(validation=0.5), small)
    with pytest.raises(UserError, match=r"evaluate.best: test_loss needs test samples, and the task has none"):
        build_trainer(spec(best="test_loss"), small)
