"""A study on a Ray cluster: batches of runs go to its machines, and their records come back into one folder.

An existing cluster is used where there is one (`ray start`, or RAY_ADDRESS), else Ray is started here. Machines need
walktalk installed, and no shared disk: a batch's files travel as bytes, and a run writes the same bytes wherever it is
done. Ray does a batch again when the process or the machine that does it dies. Batches that are done are in the folder
at once, so that a study that is stopped can be resumed, here or there.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from walktalk.core.errors import StudyError, UnavailableError, UserError
from walktalk.records import HistoryRow, StudyFolder, write_bytes
from walktalk.studies.execution.groups import folders_of, run_in_groups, together
from walktalk.studies.execution.process import Interrupted, asking_to_stop
from walktalk.studies.execution.runner import estimated_trainings
from walktalk.studies.execution.workers import Share, shares
from walktalk.studies.planning import PlannedRun, Progress, RunRecord

RETRIES = 3  # of one batch: if machines die more often, there is a reason
BATCHES_A_SLOT = 2  # so that a slow machine does not keep the others waiting for long, and waves stay wide
SECONDS_BETWEEN_LOOKS = 0.5

PrepareOn = Callable[[str], tuple[Any, list[PlannedRun]]]  # device -> (trainer, runs) of the whole study
Files = dict[str, bytes]  # path below the study's folder -> content


@dataclass(frozen=True)
class Batch:
    """What one task of the cluster does."""

    share: Share
    device: str
    files: Files  # what earlier attempts left, to go on from
    memory: float | None = None  # bytes that it may use; what is free where it runs, if nothing is said


@dataclass(frozen=True)
class Done:
    """What it brings back; models as arrays, since tensors would tie both sides to one version of torch."""

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
                    self.take(waiting.pop(reference), reference)
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

    def take(self, share: Share, reference: Any) -> None:
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
