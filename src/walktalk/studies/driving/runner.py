"""Drives the runs of a study to their end: stretch by stretch, with records, checkpoints, and a clean stop.

A stretch ends where all runs have done the same share of their way. On a GPU how long it is depends on counted work
only, never on the clock, so that a study always takes the same path. Between stretches the state of a run is just its
living models: the events up to there are run again on resuming, which costs next to nothing.
"""

from __future__ import annotations

import gc
import logging
import math
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from torch import Tensor

from walktalk.errors import StudyError
from walktalk.learning import Trainer
from walktalk.records import HistoryRow, RunFolder, TraceRow, TraceWriter, load_checkpoint, save_checkpoint
from walktalk.runtimes.simulator import PoissonTiming
from walktalk.runtimes.stacked import Engine, Measurement, Plan, Step, TrainStep, WavePolicy
from walktalk.studies.building import PlannedRun, Progress, RunRecord
from walktalk.studies.driving.aside import Aside, short_turns
from walktalk.studies.driving.judging import Alarm, Judge, Watch
from walktalk.studies.driving.process import Interrupted, asking_to_stop, fitting_threads, garbage_between_stretches
from walktalk.studies.results import history_row, trace_columns, write_run

FIRST_STRETCH = 1 / 256  # of a run's way at most; after it the size of a stretch is known in trainings
SECONDS_A_STRETCH = 3.0  # at most, about: as long as a person waits after Ctrl-C
SECONDS_BETWEEN_CHECKPOINTS = 10.0
CHECKPOINT_SHARE = 0.05  # of the time may go into writing checkpoints
STEPS_BETWEEN_REPORTS = 20
EVALUATIONS_A_STRETCH = 8  # at most, where any of them may end a run

log = logging.getLogger(__name__)


class Runner:
    """All runs of a study, from the start or from their checkpoints to the end."""

    def __init__(
        self,
        trainer: Trainer,
        runs: Sequence[PlannedRun],
        folders: Sequence[RunFolder] = (),
        *,
        report: Callable[[Progress], None] | None = None,
        policy: WavePolicy | None = None,
        handle_ctrl_c: bool = True,
        watch: Watch | None = None,
        ahead: bool | None = None,
    ) -> None:
        """Runs that share a trainer, perhaps of several studies.

        Args:
            trainer: What trains their models.
            runs: The runs.
            folders: Where each of them keeps its records; none, if left out.
            report: Hears now and then how far things are.
            policy: Which widths waves may have; those that suit the trainer, if left out.
            handle_ctrl_c: Whether Ctrl-C is this runner's to handle; a worker process leaves it to its parent.
            watch: May end a run at any of its evaluations.
            ahead: Whether the next stretch is planned, and the last one's records are written, while the device works
                on this one; on a GPU, if left out, where the processor would only wait.
        """
        self.trainer = trainer
        self.signals = (signal.SIGINT, signal.SIGTERM) if handle_ctrl_c else (signal.SIGTERM,)
        self.runs = list(runs)
        self.records = [RunRecord(run.label, run.repetition) for run in runs]
        self.judges = [Judge(run.setup.stop, watch) for run in runs]
        self.alarms = [Alarm() for _ in runs]
        self.words: list[str] = []  # to be said with the next report
        widths, setups = policy or wave_policy(trainer), [run.setup for run in runs]
        watched = [index for index, judge in enumerate(self.judges) if judge.keeps_all]
        self.engine = Engine(trainer, setups, [run.initial for run in runs], widths, watched)
        self.most_trainings = self._between_looks(watched)
        self.folders: list[RunFolder | None] = list(folders) if folders else [None] * len(runs)
        self.writers: list[TraceWriter | None] = [self._writer(index) for index in range(len(runs))]
        self.traced = [0] * len(runs)  # lines of each trace so far
        self._told = [0] * len(runs)  # evaluations of each that were reported
        self.report = report
        self.progress = 0.0
        self.trainings = 0
        self.steps = 0
        self._done_in_stretch = 0
        self.total = estimated_trainings(self.runs)
        self._last_stretch, self._last_trainings = 0.0, 0  # how long it took, how much it did
        self._saved_at = time.monotonic()
        self._saving_took = 0.0
        self._saving = False  # whether a checkpoint is being written
        on_gpu = trainer.device.type == "cuda"
        # A run that may end at any evaluation would be planned beyond its end; on a CPU the clock decides how long a
        # stretch is, and nobody waits.
        self.ahead = not watched and (on_gpu if ahead is None else ahead)
        self._planner: ThreadPoolExecutor | None = None
        self._next: Future[Plan] | None = None  # the stretch that is being planned
        self._disk = Aside(beside=False)  # what writes traces and checkpoints

    def _writer(self, index: int) -> TraceWriter | None:
        folder = self.folders[index]
        if folder is None or not self.runs[index].setup.keep_trace:
            return None
        folder.path.mkdir(parents=True, exist_ok=True)
        return TraceWriter(folder.trace)

    def _between_looks(self, watched: Sequence[int]) -> float:
        """Trainings in a stretch at most: where a run may end at any evaluation, what is done beyond is in vain."""
        every = [self.runs[index].setup.evaluate.every for index in watched]
        return math.inf if not every else EVALUATIONS_A_STRETCH * len(self.runs) * max(one or math.inf for one in every)

    # -- to the end -------------------------------------------------------------------------------------------------

    def run(self) -> list[RunRecord]:
        """Everything that is left to do; raises `Interrupted`, with everything saved, if asked to stop."""
        with (
            asking_to_stop(self.signals) as ask,
            fitting_threads(self.trainer),
            garbage_between_stretches(),
            short_turns(self.ahead),
            ThreadPoolExecutor(1) as pool,
            Aside(beside=self.ahead) as self._disk,
        ):
            self._planner = pool if self.ahead else None
            while self.engine.active:
                self.stretch(last=ask.stop)
                if ask.stop and self._next is not None:
                    continue  # simulations are ahead of the models by one stretch, which is done first
                if ask.stop and self.engine.active:
                    self.save()
                    self._disk.wait()
                    for writer in self.writers:
                        if writer is not None:
                            writer.discard()  # the events are run again on resuming, and traced again
                    for index in range(len(self.records)):
                        self._conclude(index)
                    raise Interrupted(self.records, self.trainer)
                if self.engine.active and self.checkpoint_is_due():
                    self.save()
            self.finish()
        return self.records

    def stretch(self, last: bool = False) -> None:
        """Move all runs on by one stretch; after a `last` one simulations and models are at the same moment."""
        self.tell("training")
        active = list(self.engine.active)
        plan = self.planned() if self._next is None else self._next.result()
        self._next = None
        if self._planner is not None and not last and self.progress < 1.0:
            self._next = self._planner.submit(self.planned)
        began = time.monotonic()
        advance = self.engine.carry_out(plan, self._count)
        self.trainings += advance.trainings
        if advance.trainings:
            self._last_stretch, self._last_trainings = time.monotonic() - began, advance.trainings
        for measurement in advance.measurements:
            self._keep_measurement(measurement)
        for run, rows in advance.traces.items():
            self._keep_trace(run, rows)
        for run in active:
            if self.records[run].met_target:
                self.engine.end(run)
        del plan, advance  # a million small objects, which else would all be looked at
        # What a model's own code leaves in circles; what stays is not looked at again. Not beside the next stretch: it
        # may be on the device, which nobody else may touch while a CUDA graph is recorded.
        gc.collect(1)
        self.tell("training")

    def planned(self) -> Plan:
        """The next stretch."""
        self.progress = min(1.0, self.progress + self.stretch_length())
        return self.engine.plan(self.progress)

    def stretch_length(self) -> float:
        """So that a stretch has a good number of trainings: enough to fill waves, few enough to stop soon."""
        done = sum(simulation.iteration for simulation in self.engine.simulations)
        wanted = int(min(trainings_a_stretch(self.trainer.width), self.most_trainings))
        if self.progress == 0.0 or done == 0:
            # A stretch is planned in memory, and Ctrl-C waits for its end: a share alone would have no bound. Where the
            # estimate was so large that nothing was done in it, the next one is twice as long.
            return min(FIRST_STRETCH, max(wanted / max(self.total, 1), self.progress))
        if self.trainer.device.type == "cpu" and self._last_stretch > 0.0:
            # On a CPU a run's bytes do not depend on how it is cut, so a slow machine may cut more often.
            wanted = max(1, min(wanted, round(self._last_trainings * SECONDS_A_STRETCH / self._last_stretch)))
        return wanted * self.progress / done

    def _count(self, step: Step) -> None:
        if isinstance(step, TrainStep):
            self.steps += 1
            self._done_in_stretch += len(step.outs)
            if self.steps % STEPS_BETWEEN_REPORTS == 0:
                self.tell("training", self._done_in_stretch)

    def tell(self, phase: str, within: int = 0) -> None:
        """Say how far things are."""
        if not within:
            self._done_in_stretch = 0
        words, self.words = tuple(self.words), []
        if self.report is None:
            for word in words:
                log.warning("%s", word)
            return
        simulations = self.engine.simulations
        done = min(self.trainings + within, self.total)
        losses: dict[str, list[float]] = {}
        for record in self.records:
            if record.history:
                losses.setdefault(record.label, []).append(record.history[-1].train_loss)
        self.report(
            Progress(
                done,
                self.total,
                iteration=max((r.history[-1].iteration for r in self.records if r.history), default=0),
                time=max(s.agenda.now for s in simulations),
                bits=max(s.bytes for s in simulations) * 8.0,
                loss={label: sum(values) / len(values) for label, values in losses.items()},
                phase=phase,
                rows=self._new_rows(),
                words=words,
            )
        )

    def _new_rows(self) -> tuple[HistoryRow, ...]:
        """Evaluations that were not reported yet."""
        new = [row for record, told in zip(self.records, self._told, strict=True) for row in record.history[told:]]
        self._told = [len(record.history) for record in self.records]
        return tuple(new)

    def _keep_trace(self, run: int, rows: list[TraceRow]) -> None:
        record, writer = self.records[run], self.writers[run]
        if record.met_target:
            rows = rows[: max(0, record.noted - self.traced[run])]
        self.traced[run] += len(rows)
        if writer is not None:
            self._disk.do(partial(_write_trace, writer, rows))
        else:
            record.trace += rows

    def _keep_measurement(self, m: Measurement) -> None:
        record = self.records[m.run]
        if record.met_target:
            return  # what a stretch did beyond the target does not count
        row = history_row(record.label, record.repetition, m)
        record.history.append(row)
        struck = self.engine.executor.overflows.get(m.run)
        graph = self.runs[m.run].setup.graph
        node = graph.name_of(struck) if struck is not None and struck < graph.nodes else None  # else everybody's data
        self.words += [word for word in [self.alarms[m.run].words(row, node)] if word is not None]
        if self.judges[m.run].ends(row):
            # The run ends here, wherever the stretch does: its model, trace and history are those of this moment.
            assert m.model is not None
            record.met_target, record.output, record.noted = True, m.model.cpu(), m.op.noted

    def finish(self) -> None:
        """The last records: traces closed, models and histories written."""
        self._disk.wait()
        for index, record in enumerate(self.records):
            self._conclude(index)
            folder, writer = self.folders[index], self.writers[index]
            if writer is not None:
                writer.close()
            if folder is not None:
                folder.path.mkdir(parents=True, exist_ok=True)
                write_run(folder, record, self.trainer)
                self._save_run(index, folder)

    def _conclude(self, index: int) -> None:
        """What is known of a run only when nothing more comes: its model, how much it did."""
        record = self.records[index]
        if record.met_target:
            record.trainings = record.history[-1].iteration
        else:
            record.output = self.engine.output(index).cpu()
            simulation = self.engine.simulations[index]
            record.trainings, record.nodes = simulation.trainings, simulation.setup.graph.nodes
            if simulation.setup.evaluate.model == "aggregated":
                record.aggregated_at = simulation.interpreter.aggregated_at
                record.family = simulation.setup.protocol.family
        assert record.output is not None

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint_is_due(self) -> bool:
        if not any(self.folders) or self._saving:
            return False
        since = time.monotonic() - self._saved_at
        return since > max(SECONDS_BETWEEN_CHECKPOINTS, self._saving_took / CHECKPOINT_SHARE)

    def save(self) -> None:
        """Write every run's checkpoint; beside the next stretch, where the device would wait for it."""
        self._saving = True
        began = time.monotonic()
        self.tell("saving")
        for index, folder in enumerate(self.folders):
            if folder is not None:
                self._save_run(index, folder)
        self._disk.do(partial(self._saved, began))

    def _saved(self, began: float) -> None:
        """All of a checkpoint is on the disk."""
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - began
        self._saving = False

    def _save_run(self, index: int, folder: RunFolder) -> None:
        record = self.records[index]
        facts: dict[str, Any] = {"history": [list(row) for row in record.history], "met_target": record.met_target}
        if record.met_target and record.output is not None:
            tensors = {"output": record.output}
            facts |= {"progress": 1.0, "noted": record.noted}
        else:
            tensors, numbers = self.engine.living(index)
            facts |= {"progress": self.engine.reached[index], "values": numbers}
        folder.path.mkdir(parents=True, exist_ok=True)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        self._disk.do(partial(save_checkpoint, folder.checkpoint, tensors, facts), size)

    def resume(self) -> bool:
        """Take up every run from its checkpoint, where there is one; whether any was found."""
        found = []
        for index, folder in enumerate(self.folders):
            if folder is not None and folder.checkpoint.exists():
                tensors, facts = load_checkpoint(folder.checkpoint)
                self._resume_run(index, tensors, facts, folder)
                found.append(facts)
        if found:
            self.progress = min(facts["progress"] for facts in found) if len(found) == len(self.runs) else 0.0
            self.trainings = sum(simulation.iteration for simulation in self.engine.simulations)
        return bool(found)

    def _resume_run(self, index: int, tensors: dict[str, Tensor], facts: dict[str, Any], folder: RunFolder) -> None:
        record = self.records[index]
        try:
            record.history = [HistoryRow(*row) for row in facts["history"]]
            record.met_target = facts["met_target"]
            for row in record.history:  # whoever judges has seen them before
                self.judges[index].ends(row)
                self.alarms[index].words(row, None)
            if record.met_target:
                record.output, record.noted = tensors["output"], facts["noted"]
                chunk = self.engine.simulations[index].advance()  # for the trace alone
            else:
                chunk = self.engine.restore(index, facts["progress"], tensors, facts["values"])
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"{folder.checkpoint} does not fit this study; delete it and run the study again"
            ) from error
        if record.met_target:
            self.engine.end(index)
        self._keep_trace(index, chunk.trace)


def _write_trace(writer: TraceWriter, rows: list[TraceRow]) -> None:
    writer.write(trace_columns(rows))


def estimated_trainings(runs: Sequence[PlannedRun]) -> int:
    """How many iterations the study will have: exact where runs end by iterations."""
    total = 0.0
    for run in runs:
        stop, timing = run.setup.stop, run.setup.timing
        seconds = timing.d if isinstance(timing, PoissonTiming) else timing.compute
        active = run.setup.protocol.active_models(run.setup.graph.nodes)
        limits = [float(stop.iterations)] if stop.iterations is not None else []
        limits += [active * stop.time / seconds] if stop.time is not None else []
        limits += [stop.bits / (8.0 * max(run.setup.model_bytes, 1))] if stop.bits is not None else []
        total += min(limits)
    return round(total)


def wave_policy(trainer: Trainer) -> WavePolicy:
    """Waves of widths that suit the device: each new one may cost a compiled graph.

    A model that trains one row at a time comes one at a time: a wide wave would only hold copies of many rows.
    """
    return WavePolicy(widest=1) if trainer.rows_at_once == 1 else WavePolicy(sizes=trainer.wave_sizes)


def trainings_a_stretch(width: int) -> int:
    """Fewer for larger models, so that a stretch takes seconds on a device that suits the model."""
    return max(64, min(8192, round(2**34 / (width + 2**17))))
