"""Studies that share data and training go through one engine, with the records that each would have alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.studies.test_groups import SPEC
from tests.support.folders import assert_same_folder

from walktalk.records import RunFolder
from walktalk.studies import Runner, make_spec, prepare, run_study
from walktalk.studies.execution import runner as runner_module
from walktalk.studies.execution.process import Interrupted
from walktalk.studies.execution.run import run_at_once, run_studies, sharing

SHORT = {**SPEC, "repetitions": 1, "stop": {"iterations": 60}, "algorithms": [{"name": "multi_walk", "walks": [1, 3]}]}


def study(**changes):
    return make_spec({**SHORT, **changes})


def test_only_what_the_models_and_data_depend_on_keeps_studies_apart():
    cycle, ring = study(), study(name="other", training={"optimizer_state": "walk"})
    complete = study(network={"topology": "complete", "nodes": 6})
    larger = study(network={"topology": "complete", "nodes": 7})
    batch, seed = study(training={"batch_size": 7}), study(seed=5)
    studies = {Path(str(k)): one for k, one in enumerate((cycle, ring, complete, larger, batch, seed))}
    assert sharing(studies) == [[Path("0"), Path("1"), Path("2")], [Path("3")], [Path("4")], [Path("5")]]


def test_how_often_a_slow_machine_cuts_a_run_shows_nowhere(tmp_path, monkeypatch):
    """The last checkpoint said to which share of the run the last stretch went, and it may end before all of it."""
    run_study(study(), tmp_path / "fast", device="cpu", workers=1)
    monkeypatch.setattr(runner_module, "SECONDS_A_STRETCH", 1e-9)
    run_study(study(), tmp_path / "slow", device="cpu", workers=1)
    assert_same_folder(tmp_path / "slow", tmp_path / "fast")


def test_studies_at_once_write_what_each_writes_alone(tmp_path):
    specs = {"cycle": study(), "complete": study(network={"topology": "complete", "nodes": 6})}
    for name, spec in specs.items():
        run_study(spec, tmp_path / "alone" / name, device="cpu", workers=1)
    run_at_once({tmp_path / "both" / name: spec for name, spec in specs.items()}, device="cpu")
    assert_same_folder(tmp_path / "alone", tmp_path / "both")


def test_on_a_cpu_they_come_one_after_another(tmp_path):
    told = []
    specs = {tmp_path / "a": study(), tmp_path / "b": study(name="b")}
    run_studies(specs, device="cpu", report=lambda folders, progress: told.append(tuple(folders)))
    assert list(dict.fromkeys(told)) == [(tmp_path / "a",), (tmp_path / "b",)]
    assert all((folder / "summary.json").is_file() for folder in specs)


@pytest.fixture
def short_stretches(monkeypatch):
    monkeypatch.setattr(runner_module, "trainings_a_stretch", lambda width: 16)


@pytest.mark.usefixtures("short_stretches")
def test_planning_ahead_changes_nothing():
    ready = prepare(study(), "cpu")
    plain, ahead = (Runner(ready.trainer, ready.runs, ahead=ahead).run() for ahead in (False, True))
    assert [record.history for record in plain] == [record.history for record in ahead]
    assert [record.trace for record in plain] == [record.trace for record in ahead]


@pytest.mark.usefixtures("short_stretches")
def test_a_run_that_is_planned_ahead_stops_and_goes_on(tmp_path):
    """Its simulations are a stretch ahead of its models; what is saved is of one moment."""
    ready = prepare(study(), "cpu")
    folders = [RunFolder(tmp_path / str(index)) for index in range(len(ready.runs))]
    asked = []

    def ask(progress):
        if progress.done >= 30 and not asked:
            asked.append(signal.raise_signal(signal.SIGINT))

    with pytest.raises(Interrupted):
        Runner(ready.trainer, ready.runs, folders, report=ask, ahead=True).run()
    again = Runner(ready.trainer, ready.runs, folders, ahead=True)
    assert again.resume()
    assert 0 < again.trainings < again.reporter.total
    expected = Runner(ready.trainer, ready.runs).run()
    assert [record.history for record in again.run()] == [record.history for record in expected]
