"""Runs a study: from its specification to records, figures and a page that a person reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from walktalk.errors import UnavailableError
from walktalk.learning import Arithmetic, Task, Trainer
from walktalk.records import StudyFolder, frame, opened_folder, write_history, write_text
from walktalk.runtimes.simulator import RunSetup
from walktalk.seeds import Seed
from walktalk.studies.building import (
    PlannedRun,
    Progress,
    RunRecord,
    build_evaluate,
    build_faults,
    build_graph,
    build_protocols,
    build_schedule,
    build_stop,
    build_task,
    build_timing,
    check_links,
)
from walktalk.studies.driving.groups import run_in_groups
from walktalk.studies.driving.runner import estimated_trainings
from walktalk.studies.driving.workers import Crew, shares, workers_that_pay
from walktalk.studies.results import summarize, summary_text
from walktalk.studies.spec import StudySpec, dump_spec


@dataclass(frozen=True)
class StudyResult:
    """What a study leaves in memory; the rest is in its folder."""

    history: pd.DataFrame
    summary: dict[str, Any]
    runs: list[RunRecord]
    folder: Path | None


@dataclass(frozen=True)
class Preparation:
    """Everything that a study needs before its first event."""

    spec: StudySpec
    task: Task
    trainer: Trainer
    runs: list[PlannedRun]


def run_study(
    spec: StudySpec,
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    device: str = "auto",
    workers: int | Literal["ray"] | None = None,
    memory: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> StudyResult:
    """All runs of a study; with `out`, records go to that folder and an interrupted study can be resumed there.

    `workers` processes share the runs (on a CPU; as many as pay unless given), or the machines of a Ray cluster;
    without a folder there is just one. A study that needs more than `memory` bytes at once, or more than is free on the
    device, is done in groups of runs that fit.
    """
    if isinstance(workers, int) and workers < 1:
        raise UnavailableError(f"workers: {workers} is not possible; at least 1 is needed")
    ready = prepare(spec, device)
    if out is None:
        records = run_in_groups(ready.trainer, ready.runs, memory=memory, report=progress)
        history = study_history(records)
        return StudyResult(history, summarize(history, spec), records, None)
    with opened_folder(out, dump_spec(spec), resume=resume) as folder:
        steps = estimated_trainings(ready.runs) * spec.training.local_steps
        again = partial(prepare_runs, spec)
        if workers == "ray":
            from walktalk.studies.driving.ray_workers import RayCrew  # needs Ray

            records = RayCrew(again, ready.runs, folder, progress, device).run(resume)
            return write_results(ready, records, folder)
        crew = workers if workers is not None else workers_that_pay(ready.runs, steps, str(ready.trainer.device))
        if crew > 1:
            here = partial(again, str(ready.trainer.device))
            work, prepared = shares(ready.runs, crew), (ready.trainer, ready.runs)
            records = Crew(here, work, folder, progress, memory, prepared).run(resume)
        else:
            records = run_in_groups(ready.trainer, ready.runs, folder, resume=resume, memory=memory, report=progress)
        return write_results(ready, records, folder)


def prepare_runs(spec: StudySpec, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """What a worker process needs of a study."""
    ready = prepare(spec, device)
    return ready.trainer, ready.runs


def prepare(spec: StudySpec, device: str = "auto") -> Preparation:
    """Build what the specification names; every mistake in it shows here, before any training."""
    graph = build_graph(spec)
    check_links(spec, graph)
    build_protocols(spec, graph.nodes)  # its mistakes are cheap to find, so they are found before any data is read
    task = build_task(spec, graph.nodes)
    trainer = build_trainer(spec, task, device)
    return Preparation(spec, task, trainer, planned_runs(spec, trainer))


def build_trainer(spec: StudySpec, task: Task, device: str = "auto") -> Trainer:
    """What trains the models of a study."""
    return Trainer(
        task,
        batch_size=spec.training.batch_size,
        local_steps=spec.training.local_steps,
        optimizer=spec.optimizer.build(),
        device=pick_device(device),
        evaluation_samples=spec.evaluate.samples,
        arithmetic=Arithmetic(spec.training.precision),
        buffers=spec.training.buffers,
    )


def planned_runs(spec: StudySpec, trainer: Trainer) -> list[PlannedRun]:
    """The runs of a study, for a trainer of its task; studies of one task and split may share one."""
    root = Seed(spec.seed)
    graph = build_graph(spec)
    runs = []
    for plan in build_protocols(spec, graph.nodes):
        for repetition in range(spec.repetitions):
            setup = RunSetup(
                protocol=plan.protocol,
                graph=graph,
                seed=root.child("run", plan.label, repetition),
                stop=build_stop(spec),
                timing=build_timing(spec),
                evaluate=build_evaluate(spec),
                lr=plan.lr,
                schedule=build_schedule(spec),
                model_bytes=trainer.payload_bytes,
                state_bytes=trainer.state_bytes,
                optimizer_state=spec.training.optimizer_state,
                faults=build_faults(spec, repetition),
            )
            # The same start for every algorithm of a repetition: the comparison is paired.
            initial = trainer.initial_row(root.child("initial model", repetition).integer)
            runs.append(PlannedRun(plan.label, repetition, setup, initial))
    return runs


def write_results(
    ready: Preparation, records: list[RunRecord], folder: StudyFolder, engine: str = "sim"
) -> StudyResult:
    """History and summary of the whole study; `engine` says what ran it: whether its time is virtual."""
    history = study_history(records)
    write_history(folder.history, [row for record in records for row in record.history])
    summary = {**summarize(history, ready.spec), "engine": engine}
    write_text(folder.summary, summary_text(summary))
    return StudyResult(history, summary, records, folder.path)


def study_history(records: list[RunRecord]) -> pd.DataFrame:
    return frame([row for record in records for row in record.history])


def pick_device(name: str) -> str:
    """The device of that name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError(f"device: {name} is not available here; allowed: auto, cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise UnavailableError(f"device: {name!r} is unknown; allowed: auto, cpu, cuda")
    return name
