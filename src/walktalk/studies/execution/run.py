"""Runs a study, from its specification to its records: here, in several processes, or on a Ray cluster.

Of Ray an existing cluster is used where there is one (`ray start`, or RAY_ADDRESS), else it is started here. Machines
need walktalk installed, and no shared disk: a batch's files travel as bytes, and a run writes the same bytes wherever
it is done. Ray does a batch again when the process or the machine that does it dies. Batches that are done are in the
folder at once, so that a study that is stopped can be resumed, here or there.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch

from walktalk.core.errors import StudyError, UnavailableError, UserError
from walktalk.core.settings import misfit
from walktalk.learning import Trainer
from walktalk.records import HistoryRow, StudyFolder, check_folder, opened_folder, write_bytes
from walktalk.studies.execution.groups import folders_of, run_in_groups, together
from walktalk.studies.execution.process import Interrupted, asking_to_stop
from walktalk.studies.execution.run_log import Watch
from walktalk.studies.execution.runner import estimated_trainings
from walktalk.studies.execution.workers import Crew, Share, dealt, devices_of, fork_is_safe, shares, workers_that_pay
from walktalk.studies.planning import (
    Foundation,
    PlannedRun,
    Preparation,
    Progress,
    RunRecord,
    build_foundation,
    check_travels,
    pick_device,
    planned_runs,
    prepare,
    prepare_on,
    travels,
)
from walktalk.studies.results import StudyResult, study_result
from walktalk.studies.spec import StudySpec, dump_spec, load_spec

log = logging.getLogger(__name__)

RETRIES = 3  # of one batch: if machines die more often, there is a reason
BATCHES_A_SLOT = 2  # so that a slow machine does not keep the others waiting for long, and waves stay wide
SECONDS_BETWEEN_LOOKS = 0.5

PrepareOn = Callable[[str], tuple[Any, list[PlannedRun]]]  # device -> (trainer, runs) of the whole study
Files = dict[str, bytes]  # path below the study's folder -> content


@dataclass(frozen=True)
class Batch:
    """The runs that one task of the Ray cluster does, with the files they go on from."""

    share: Share
    device: str
    files: Files  # what earlier attempts left, to go on from
    memory: float | None = None  # bytes that it may use; what is free where it runs, if nothing is said


@dataclass(frozen=True)
class Done:
    """What a task of the Ray cluster brings back; models are arrays: tensors would tie both sides to one torch."""

    records: list[tuple[int, RunRecord, Any]]
    files: Files
    progress: Progress


class RayCrew:
    """The tasks of a study on a cluster, watched until all are done."""

    def __init__(
        self,
        prepare: PrepareOn,
        runs: list[PlannedRun],
        folder: StudyFolder,
        report: Callable[[Progress], None] | None,
        device: str = "auto",
        memory: float | None = None,
    ) -> None:
        self.ray = started_ray()
        self.prepare, self.runs, self.folder, self.report = prepare, runs, folder, report
        gpus = int(self.ray.cluster_resources().get("GPU", 0))
        self.device = "cuda" if device != "cpu" and gpus else "cpu"
        slots = gpus if self.device == "cuda" else int(self.ray.cluster_resources().get("CPU", 1))
        self.work = shares(runs, max(1, min(len(runs), BATCHES_A_SLOT * slots)))
        self.memory = None if memory is None else memory / self.at_once()
        self.progress = {
            share.number: Progress(0, estimated_trainings([runs[k] for k in share.runs]), 0, 0.0, 0.0, {}, "on Ray")
            for share in self.work
        }
        self.records: dict[int, RunRecord] = {}

    def run(self, resume: bool) -> list[RunRecord]:
        """Do all batches; raises `Interrupted`, with those that are done saved, if asked to stop."""
        options = {"max_retries": RETRIES, "num_cpus": 1, "num_gpus": 1 if self.device == "cuda" else 0}
        task = self.ray.remote(**options)(do_batch)
        with asking_to_stop() as ask:
            waiting = {task.remote(self.prepare, self.batch(share, resume)): share for share in self.work}
            self.tell()
            while waiting and not ask.stop:
                for reference in self.ray.wait(list(waiting), timeout=SECONDS_BETWEEN_LOOKS)[0]:
                    self.store(waiting.pop(reference), reference)
            for reference in waiting:
                self.ray.cancel(reference, force=True)
        if waiting:
            raise Interrupted
        return [self.records[index] for index in sorted(self.records)]

    def at_once(self) -> int:
        """How many batches one machine may do at the same time, who then share its memory; a GPU does one."""
        if self.device == "cuda":
            return 1
        processors = [int(node["Resources"].get("CPU", 1)) for node in self.ray.nodes() if node["Alive"]]
        return max(1, min(len(self.work), max(processors, default=1)))

    def batch(self, share: Share, resume: bool) -> Batch:
        files: Files = {}
        for index in share.runs if resume else ():
            run = self.runs[index]
            checkpoint = self.folder.run(run.label, run.repetition).checkpoint
            if checkpoint.is_file():
                files[str(checkpoint.relative_to(self.folder.path))] = checkpoint.read_bytes()
        return Batch(share, self.device, files, self.memory)

    def store(self, share: Share, reference: Any) -> None:
        """Put what a batch brought into the folder."""
        try:
            done: Done = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.as_instanceof_cause()
            raise (cause if isinstance(cause, UserError) else error) from None
        except self.ray.exceptions.RayError as error:
            raise StudyError(
                f"a batch of runs was lost {RETRIES + 1} times ({type(error).__name__}); see that the cluster's "
                "machines have memory enough, and use --resume to keep what is done"
            ) from error
        for path, content in done.files.items():
            target = self.folder.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(target, content)
        for index, record, output in done.records:
            self.records[index] = replace(record, output=torch.from_numpy(output.copy()))
        self.progress[share.number] = done.progress
        self.tell(tuple(row for _, record, _ in done.records for row in record.history))

    def tell(self, rows: tuple[HistoryRow, ...] = ()) -> None:
        if self.report is not None:
            self.report(replace(together(list(self.progress.values())), rows=rows))


def started_ray() -> Any:
    """Ray, connected to the cluster that there is or to a new one here."""
    try:
        import ray
    except ImportError as error:
        raise UnavailableError("--workers ray needs the extra `ray`: pip install 'walktalk[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    return ray


def do_batch(prepare: PrepareOn, batch: Batch) -> Done:
    """What a task does, on whatever machine: its runs in a folder of its own, which comes back as bytes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="walktalk-") as place:
        folder = StudyFolder(Path(place))
        for path, content in batch.files.items():
            (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
            (folder.path / path).write_bytes(content)
        trainer, runs = prepare(batch.device)
        chosen = [runs[k] for k in batch.share.runs]
        total = estimated_trainings(chosen)
        told = [Progress(total, total, 0, 0.0, 0.0, {}, "on Ray")]  # stays the last where nothing is left to do
        records = run_in_groups(
            trainer,
            chosen,
            folders_of(folder, chosen),
            resume=bool(batch.files),
            memory=batch.memory,
            report=told.append,
            handle_ctrl_c=False,
        )
        files = {str(f.relative_to(folder.path)): f.read_bytes() for f in folder.path.rglob("*") if f.is_file()}
    brought = [
        (index, replace(record, trace=[], output=None), record.output.numpy())
        for index, record in zip(batch.share.runs, records, strict=True)
        if record.output is not None
    ]
    return Done(brought, files, replace(told[-1], phase="on Ray"))


# -- A study, wherever it runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Execution:
    """How the runs of a study are executed; `run_study` says what each of these means."""

    resume: bool = False
    overwrite: bool = False
    device: str = "auto"
    workers: int | Literal["ray"] | None = None
    memory: float | None = None
    progress: Callable[[Progress], None] | None = None
    watch: Watch | None = None  # sees every evaluation in this process, which then does all runs, and may end a run


def run_study(
    spec: StudySpec | str | PathLike[str],
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
        spec: What is to be run: from `load_spec`, or a preset's name, or a YAML file's path.
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
    how = Execution(resume, overwrite, device, workers, memory, progress)
    study = spec if isinstance(spec, StudySpec) else load_spec(spec)
    result = run_foundation(build_foundation(study), out, how)
    for note in result.summary.get("notes", ()):
        log.warning("%s", note)
    return result


def run_foundation(
    base: Foundation, out: str | PathLike[str] | None = None, how: Execution | None = None
) -> StudyResult:
    """Run a study whose graph, algorithms and perhaps task are there already.

    Args:
        base: The study.
        out: The folder for its records; without one they are kept in memory only.
        how: How it is executed; as `run_study` does by itself, if left out.
    """
    how = how or Execution()
    spec, workers = base.spec, 1 if how.watch is not None else how.workers
    check_workers(workers, base)
    if out is None:
        ready = prepare_on(base, how.device)
        records = run_in_groups(ready.trainer, ready.runs, memory=how.memory, report=how.progress, watch=how.watch)
        return study_result(spec, records, trainer=ready.trainer)
    text = dump_spec(spec)
    check_folder(out, text, resume=how.resume, overwrite=how.overwrite)  # before any data is read
    ready = prepare_on(base, how.device)
    with opened_folder(out, text, resume=how.resume, overwrite=how.overwrite) as folder:
        records = _recorded(base, ready, folder, replace(how, workers=workers))
        return study_result(spec, records, folder, trainer=ready.trainer)


def _recorded(base: Foundation, ready: Preparation, folder: StudyFolder, how: Execution) -> list[RunRecord]:
    """All runs to their end, with records in a folder, in this process or in several."""
    spec = base.spec
    again = partial(prepare_runs, spec) if base.user_task is None else partial(cannot_prepare, base.user_task.name)
    if how.workers == "ray":
        return RayCrew(again, ready.runs, folder, how.progress, how.device, how.memory).run(how.resume)
    devices = devices_of(str(ready.trainer.device))
    steps = estimated_trainings(ready.runs) * ready.trainer.local_steps
    processes = how.workers if how.workers is not None else workers_that_pay(ready.runs, steps, devices)
    if processes > 1 and (fork_is_safe() or (base.user_task is None and travels(spec))):
        work = dealt(shares(ready.runs, processes, one_by_one=ready.trainer.best_width == 1), devices)
        return Crew(again, work, folder, how.progress, how.memory, (ready.trainer, ready.runs)).run(how.resume)
    return run_in_groups(
        ready.trainer,
        ready.runs,
        folders_of(folder, ready.runs),
        resume=how.resume,
        memory=how.memory,
        report=how.progress,
        watch=how.watch,
    )


def check_workers(workers: int | Literal["ray"] | None, base: Foundation) -> None:
    """Whether there can be so many, and whether the study can go to them."""
    if workers is None:
        return
    if workers != "ray" and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise misfit("workers", workers, "1 or more, or 'ray'", UnavailableError)
    if base.user_task is not None and (workers == "ray" or (workers > 1 and not fork_is_safe())):
        raise UnavailableError(
            f"workers: the task {base.user_task.name!r} was given as an object, which cannot travel to other processes "
            "here; give its name instead, task='module:function'"
        )
    if workers == "ray" or (workers > 1 and not fork_is_safe()):
        check_travels(base.spec, "the machines of a Ray cluster" if workers == "ray" else "worker processes")


def prepare_runs(spec: StudySpec, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """The trainer and the planned runs of a study, made anew in a worker process."""
    ready = prepare(spec, device)
    return ready.trainer, ready.runs


def cannot_prepare(task: str, device: str) -> tuple[Trainer, list[PlannedRun]]:
    """Refuse to prepare a study whose task only this process has."""
    raise UnavailableError(
        f"workers: a process was lost, and the task {task!r}, given as an object, cannot travel to another one; go on "
        "with resume=True"
    )


# Several studies in one engine: those that share data and training fill each other's waves.
#
# On a GPU a wave of one study's models is seldom wide enough. When things happen never depends on who else is
# computed at the same time, so each study has the records that it would have alone.

Report = Callable[[Sequence[Path], Progress], None]  # the folders of those being run, how far they are


def run_studies(studies: Mapping[Path, StudySpec], *, device: str = "auto", report: Report | None = None) -> int:
    """All runs of some studies; returns how many local steps they have together. An interrupted one goes on.

    On a GPU those that share data and training are run at once. On a CPU, where a wave need not be wide, they come one
    after another, each in as many processes as pay.

    Args:
        studies: What is to be run, each in a folder of its own.
        device: auto, cpu or cuda.
        report: Called now and then.
    """
    at_once, steps = pick_device(device) != "cpu", 0
    for group in sharing(studies) if at_once else [[folder] for folder in studies]:
        told = None if report is None else _told(report, group)
        if len(group) == 1:
            done = [run_study(studies[group[0]], group[0], resume=True, device=device, progress=told)]
        else:
            done = run_at_once({folder: studies[folder] for folder in group}, device=device, progress=told)
        steps += sum(result.steps for result in done)
    return steps


def sharing(studies: Mapping[Path, StudySpec]) -> list[list[Path]]:
    """The folders of studies that one trainer can serve, together."""
    groups: dict[str, list[Path]] = {}
    for folder, spec in studies.items():
        groups.setdefault(needed_of_a_trainer(spec), []).append(folder)
    return list(groups.values())


def needed_of_a_trainer(spec: StudySpec) -> str:
    """All that a trainer depends on, as text: the data, how they are split, and how a model is trained on them."""
    content = spec.model_dump(mode="json", include={"seed", "task", "training", "optimizer"})
    content["training"].pop("optimizer_state")  # each run has its own
    graph = build_foundation(spec).graph
    content |= {"nodes": graph.nodes, "names": graph.names, "samples": spec.evaluate.samples}
    content |= {"measured": spec.evaluate.nodes, "held out": spec.evaluate.validation, "best": spec.evaluate.best_by}
    return json.dumps(content, sort_keys=True)


def run_at_once(
    studies: Mapping[Path, StudySpec], *, device: str = "auto", progress: Callable[[Progress], None] | None = None
) -> list[StudyResult]:
    """All runs of studies that one trainer can serve, in one engine; what each leaves."""
    trainer = prepare(next(iter(studies.values())), device).trainer
    planned = {folder: planned_runs(spec, trainer) for folder, spec in studies.items()}
    runs = [run for of_study in planned.values() for run in of_study]
    with ExitStack() as stack:
        opened = {
            folder: stack.enter_context(opened_folder(folder, dump_spec(spec), resume=True))
            for folder, spec in studies.items()
        }
        places = [place for folder in studies for place in folders_of(opened[folder], planned[folder])]
        records = iter(run_in_groups(trainer, runs, places, resume=True, report=progress))
        return [
            study_result(spec, [next(records) for _ in planned[folder]], opened[folder], trainer=trainer)
            for folder, spec in studies.items()
        ]


def _told(report: Report, folders: Sequence[Path]) -> Callable[[Progress], None]:
    return lambda progress: report(folders, progress)
