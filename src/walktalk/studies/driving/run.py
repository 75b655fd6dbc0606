"""Runs a study: from its specification to its records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Literal

from walktalk.errors import UnavailableError
from walktalk.learning import Trainer
from walktalk.records import check_folder, opened_folder
from walktalk.studies.building import PlannedRun, Progress, prepare
from walktalk.studies.driving.groups import run_in_groups
from walktalk.studies.driving.runner import estimated_trainings
from walktalk.studies.driving.workers import Crew, shares, workers_that_pay
from walktalk.studies.results import StudyResult, study_result
from walktalk.studies.spec import StudySpec, dump_spec


def run_study(
    spec: StudySpec,
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int | Literal["ray"] | None = None,
    memory: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> StudyResult:
    """All runs of a study.

    Args:
        spec: What is to be run.
        out: The folder for its records; without one they are kept in memory only.
        resume: Go on where an interrupted run of this study stopped in that folder.
        overwrite: Replace what is in that folder, when the new results are whole; without it they are refused.
        device: auto, cpu or cuda.
        workers: Processes that share the runs (on a CPU; as many as pay, if left out), or "ray" for the machines of a
            Ray cluster; without a folder there is just one.
        memory: Bytes to be used at most on a machine, by all processes together; what is free on the device, if left
            out. A study that needs more at once is done in groups of runs that fit.
        progress: Called now and then with how far things are.
    """
    if isinstance(workers, int) and workers < 1:
        raise UnavailableError(f"workers: {workers} is not possible; at least 1 is needed")
    if out is not None:
        check_folder(out, dump_spec(spec), resume=resume, overwrite=overwrite)  # before any data is read
    ready = prepare(spec, device)
    if out is None:
        records = run_in_groups(ready.trainer, ready.runs, memory=memory, report=progress)
        return study_result(spec, records)
    with opened_folder(out, dump_spec(spec), resume=resume, overwrite=overwrite) as folder:
        steps = estimated_trainings(ready.runs) * spec.training.local_steps
        again = partial(prepare_runs, spec)
        if workers == "ray":
            from walktalk.studies.driving.ray_workers import RayCrew  # needs Ray

            records = RayCrew(again, ready.runs, folder, progress, device, memory).run(resume)
            return study_result(spec, records, folder)
        crew = workers if workers is not None else workers_that_pay(ready.runs, steps, str(ready.trainer.device))
        if crew > 1:
            here = partial(again, str(ready.trainer.device))
            work, prepared = shares(ready.runs, crew), (ready.trainer, ready.runs)
            records = Crew(here, work, folder, progress, memory, prepared).run(resume)
        else:
            records = run_in_groups(ready.trainer, ready.runs, folder, resume=resume, memory=memory, report=progress)
        return study_result(spec, records, folder)


def prepare_runs(spec: StudySpec, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """What a worker process needs of a study."""
    ready = prepare(spec, device)
    return ready.trainer, ready.runs
