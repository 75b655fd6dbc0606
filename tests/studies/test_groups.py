"""Memory is planned ahead: a study that does not fit is done in groups, with the same bytes; none dies half-way."""

from __future__ import annotations

import gc
import re
from dataclasses import replace

import pytest
from tests.support.folders import assert_same_folder

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.stacked import Plan
from walktalk.studies import Runner, fitting_groups, make_spec, parse_memory, planned_runs, prepare, run_study
from walktalk.studies.execution import groups as groups_module
from walktalk.studies.execution import runner as runner_module
from walktalk.studies.execution.groups import beside, free_memory, need_of
from walktalk.studies.execution.runner import wave_policy

SPEC = {
    "name": "groups",
    "repetitions": 2,
    "network": {"topology": "cycle", "nodes": 6},
    "algorithms": [{"name": "multi_walk", "walks": [1, 6]}, {"name": "async_gossip"}, {"name": "sync_gossip"}],
    "stop": {"iterations": 200},
    "evaluate": {"every": 50},
}


@pytest.fixture(scope="module")
def ready():
    return prepare(make_spec(SPEC), "cpu")


@pytest.mark.parametrize("state", ["visit", "walk", "node"])
def test_no_run_takes_more_rows_than_was_said_before(state):
    ready = prepare(make_spec({**SPEC, "training": {"optimizer_state": state}}), "cpu")
    for run in ready.runs:
        need = need_of(run, ready.trainer)
        runner = Runner(ready.trainer, [run])
        runner.run()
        assert runner.engine.planner.models.size <= need.rows
        assert runner.engine.planner.states.size <= need.state_rows


def test_groups_hold_every_run_once_and_fit(ready):
    needs = [need_of(run, ready.trainer).bytes for run in ready.runs]
    limit = beside(ready.trainer, ready.runs) + 2.2 * max(needs)
    groups = fitting_groups(ready.trainer, ready.runs, limit)
    assert sorted(index for group in groups for index in group) == list(range(len(ready.runs)))
    assert len(groups) > 1
    assert all(
        beside(ready.trainer, ready.runs) + sum(needs[index] for index in group) <= 1.1 * limit for group in groups
    )
    assert len(fitting_groups(ready.trainer, ready.runs, 1e12)) == 1
    assert fitting_groups(ready.trainer, ready.runs)


def test_a_study_in_groups_writes_the_same_bytes(tmp_path, ready):
    limit = beside(ready.trainer, ready.runs) + 1.5 * max(need_of(run, ready.trainer).bytes for run in ready.runs)
    phases = []
    run_study(make_spec(SPEC), tmp_path / "whole", device="cpu", workers=1)
    run_study(
        make_spec(SPEC),
        tmp_path / "parts",
        device="cpu",
        workers=1,
        memory=limit,
        progress=lambda p: phases.append((p.phase, p.done, p.total)),
    )
    assert re.fullmatch(r"needs [\d.]+ MB of [\d.]+ MB that may be used, in \d groups", phases[0][0])
    assert any("group 2 of" in phase for phase, _, _ in phases)
    assert 0.99 * 8 * 200 <= phases[-1][1] <= phases[-1][2] == 8 * 200
    assert_same_folder(tmp_path / "parts", tmp_path / "whole")


def test_a_run_that_cannot_fit_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(groups_module.Runner, "run", lambda self: pytest.fail("trained"))
    with pytest.raises(UnavailableError, match=r"needs about .* may be used; take fewer nodes"):
        run_study(make_spec(SPEC), tmp_path / "study", device="cpu", workers=1, memory=1e5)


def test_sizes_as_people_write_them(ready):
    assert [parse_memory(t) for t in ("8GB", "500 mb", "1e6", "12B", "0.5tb")] == [8e9, 5e8, 1e6, 12, 5e11]
    for wrong in ("", "much", "-1GB", "GB", "inf", "0"):
        with pytest.raises(UnavailableError, match="--memory"):
            parse_memory(wrong)
    assert free_memory(ready.trainer.device) > 0


@pytest.mark.parametrize("state", ["visit", "walk", "node"])
def test_rows_of_a_large_model_are_counted_exactly(state, monkeypatch):
    monkeypatch.setattr(groups_module, "LARGE_MODEL", 0)
    ready = prepare(make_spec({**SPEC, "training": {"optimizer_state": state}}), "cpu")
    for run in ready.runs:
        need = need_of(run, ready.trainer)
        runner = Runner(ready.trainer, [run])
        runner.run()
        models, states = runner.engine.planner.models.size, runner.engine.planner.states.size
        assert models <= need.rows <= 1.25 * models + 2
        assert states <= need.state_rows <= 1.25 * states + 1


def test_a_large_model_in_groups_writes_the_same_bytes(tmp_path, ready, monkeypatch):
    run_study(make_spec(SPEC), tmp_path / "whole", device="cpu", workers=1)
    monkeypatch.setattr(groups_module, "LARGE_MODEL", 0)
    limit = beside(ready.trainer, ready.runs) + 1.5 * max(need_of(run, ready.trainer).bytes for run in ready.runs)
    assert len(fitting_groups(ready.trainer, ready.runs, limit)) > 1
    run_study(make_spec(SPEC), tmp_path / "parts", device="cpu", workers=1, memory=limit)
    assert (tmp_path / "whole/history.csv").read_bytes() == (tmp_path / "parts/history.csv").read_bytes()


def test_a_model_that_trains_alone_needs_room_for_one(ready, monkeypatch):
    wide = beside(ready.trainer)
    monkeypatch.setattr("walktalk.learning.stacked.choice.STACKED_UP_TO", 1)
    trainer = prepare(make_spec(SPEC), "cpu").trainer
    assert trainer.forms.by_row is not None
    assert wave_policy(trainer).widest == 1
    alone = beside(trainer)
    assert alone < wide / 5
    # its weights, gradients and state, and what the forward pass of a batch keeps
    assert alone > 4 * (3 * trainer.width + trainer.state_width) + trainer.activations
    assert trainer.activations > 4 * 32 * 64  # a batch of digits and more


def test_runs_that_keep_their_state_and_runs_that_do_not_share_waves():
    short = {**SPEC, "repetitions": 1, "stop": {"iterations": 60}}
    specs = [make_spec({**short, "training": {"optimizer_state": state}}) for state in ("visit", "node", "walk")]
    trainer = prepare(specs[0], "cpu").trainer
    alone = [Runner(trainer, planned_runs(spec, trainer)).run() for spec in specs]
    runs = [
        replace(run, label=f"{spec.training.optimizer_state}:{run.label}")
        for spec in specs
        for run in planned_runs(spec, trainer)
    ]
    together = Runner(trainer, runs).run()
    expected = [[row[2:] for row in record.history] for records in alone for record in records]
    assert [[row[2:] for row in record.history] for record in together] == expected


def test_an_algorithm_has_its_own_place_for_the_state():
    """The same numbers as in a study with that place for all; a run's seed goes by its label, so labels are equal."""
    short = {**SPEC, "repetitions": 1, "stop": {"iterations": 60}}
    places = {"walks": "walk", "gossip": "node"}
    entries = [{"name": "multi_walk", "label": "walks"}, {"name": "async_gossip", "label": "gossip"}]
    mixed = make_spec({**short, "algorithms": [{**one, "optimizer_state": places[one["label"]]} for one in entries]})
    trainer = prepare(mixed, "cpu").trainer
    records = {run.label: run.history for run in Runner(trainer, planned_runs(mixed, trainer)).run()}
    for label, place in places.items():
        for everywhere in ("visit", place):
            spec = make_spec({**short, "algorithms": entries, "training": {"optimizer_state": everywhere}})
            alike = {run.label: run.history for run in Runner(trainer, planned_runs(spec, trainer)).run()}
            assert (alike[label] == records[label]) == (everywhere == place)


def test_a_study_without_end_is_planned_a_stretch_at_a_time(monkeypatch):
    monkeypatch.setattr(runner_module, "trainings_a_stretch", lambda width: 64)
    ready = prepare(make_spec({**SPEC, "stop": {"iterations": 10**14}}), "cpu")
    runner = Runner(ready.trainer, ready.runs)
    for stretch in range(1, 4):
        runner.stretch()
        assert 0 < runner.trainings <= 2 * 64 * stretch  # a share is rounded up to whole iterations in every run


def test_where_much_less_is_done_than_was_estimated_stretches_grow(monkeypatch):
    """Transfers take almost all the time here, so a nanosecond of computation says nothing of the way."""
    timing = {"model": "network", "compute": 1e-9, "bandwidth": 1e5}
    spec = make_spec({**SPEC, "repetitions": 1, "timing": timing, "stop": {"time": 100.0}})
    ready = prepare(spec, "cpu")
    runner = Runner(ready.trainer, ready.runs)
    stretches = 0
    while runner.engine.active:
        runner.stretch()
        stretches += 1
    assert stretches < 60


def test_the_plan_of_a_stretch_is_gone_before_garbage_is_looked_for(ready, monkeypatch):
    """It is a million small objects, and all that are there are looked at."""
    alive: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda _: alive.append(sum(type(one) is Plan for one in gc.get_objects())))
    Runner(ready.trainer, ready.runs[:1]).run()
    assert alive
    assert not any(alive)
