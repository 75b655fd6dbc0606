"""Runs a study: from its specification to its records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any, Literal

from walktalk.errors import UnavailableError
from walktalk.learning import Trainer
from walktalk.records import check_folder, opened_folder
from walktalk.studies.building import (
    Foundation,
    PlannedRun,
    Progress,
    check_travels,
    lay_foundation,
    prepare,
    prepare_on,
    travels,
)
from walktalk.studies.driving.groups import folders_of, run_in_groups
from walktalk.studies.driving.judging import Watch
from walktalk.studies.driving.runner import estimated_trainings
from walktalk.studies.driving.workers import Crew, dealt, devices_of, fork_is_safe, shares, workers_that_pay
from walktalk.studies.results import StudyResult, study_result
from walktalk.studies.spec import StudySpec, dump_spec

log = logging.getLogger(__name__)


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
        workers: Processes that share the runs (if left out, as many as pay on a CPU, and one a GPU where there are
            several), or "ray" for the machines of a Ray cluster; without a folder there is just one.
        memory: Bytes to be used at most on a machine, by all processes together; what is free on the device, if left
            out. A study that needs more at once is done in groups of runs that fit.
        progress: Called now and then with how far things are.
    """
    taking: dict[str, Any] = {"resume": resume, "overwrite": overwrite}
    result = run_foundation(
        lay_foundation(spec), out, **taking, device=device, workers=workers, memory=memory, progress=progress
    )
    for word in result.summary.get("notes", ()):
        log.warning("%s", word)
    return result


def run_foundation(
    base: Foundation,
    out: str | PathLike[str] | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int | Literal["ray"] | None = None,
    memory: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """`run_study` of a study whose graph, algorithms and perhaps task are there already; the same arguments.

    `watch`: sees every evaluation in this process, which then does all runs, and ends a run by saying True.
    """
    spec = base.spec
    workers = 1 if watch is not None else workers
    check_workers(workers, base)
    if out is not None:
        check_folder(out, dump_spec(spec), resume=resume, overwrite=overwrite)  # before any data is read
    ready = prepare_on(base, device)
    if out is None:
        records = run_in_groups(ready.trainer, ready.runs, memory=memory, report=progress, watch=watch)
        return study_result(spec, records, trainer=ready.trainer)
    with opened_folder(out, dump_spec(spec), resume=resume, overwrite=overwrite) as folder:
        steps = estimated_trainings(ready.runs) * spec.training.local_steps
        again = partial(prepare_runs, spec) if base.given is None else partial(cannot_prepare, base.given.name)
        if workers == "ray":
            from walktalk.studies.driving.ray_workers import RayCrew  # needs Ray

            records = RayCrew(again, ready.runs, folder, progress, device, memory).run(resume)
            return study_result(spec, records, folder, trainer=ready.trainer)
        devices = devices_of(str(ready.trainer.device))
        crew = workers if workers is not None else workers_that_pay(ready.runs, steps, devices)
        if crew > 1 and (fork_is_safe() or (base.given is None and travels(spec))):
            prepared = ready.trainer, ready.runs
            work = dealt(shares(ready.runs, crew, one_by_one=ready.trainer.best_width == 1), devices)
            records = Crew(again, work, folder, progress, memory, prepared).run(resume)
        else:
            more: dict[str, Any] = {"resume": resume, "memory": memory, "report": progress, "watch": watch}
            records = run_in_groups(ready.trainer, ready.runs, folders_of(folder, ready.runs), **more)
        return study_result(spec, records, folder, trainer=ready.trainer)


def check_workers(workers: int | Literal["ray"] | None, base: Foundation) -> None:
    """Whether there can be so many, and whether the study can go to them."""
    if workers is None:
        return
    if workers != "ray" and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise UnavailableError(f"workers: {workers!r} is not possible; allowed: 1 or more, or 'ray'")
    if base.given is not None and (workers == "ray" or (workers > 1 and not fork_is_safe())):
        raise UnavailableError(
            f"workers: the task {base.given.name!r} was given as an object, which cannot travel to other processes "
            "here; give its name instead, task='module:function'"
        )
    if workers == "ray" or (workers > 1 and not fork_is_safe()):
        check_travels(base.spec, "the machines of a Ray cluster" if workers == "ray" else "worker processes")


def prepare_runs(spec: StudySpec, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """What a worker process needs of a study."""
    ready = prepare(spec, device)
    return ready.trainer, ready.runs


def cannot_prepare(task: str, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """The same of a study whose task only this process has."""
    raise UnavailableError(
        f"workers: a process was lost, and the task {task!r}, given as an object, cannot travel to another one; go on "
        "with resume=True"
    )
