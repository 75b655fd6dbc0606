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

from walktalk.learning import Trainer
from walktalk.records import RunFolder
from walktalk.runtimes.simulator import PoissonTiming
from walktalk.runtimes.stacked import Engine, Plan, Step, TrainStep, WavePolicy
from walktalk.studies.execution.process import (
    BackgroundWriter,
    Interrupted,
    asking_to_stop,
    fitting_threads,
    garbage_between_stretches,
    short_turns,
)
from walktalk.studies.execution.run_log import CheckpointClock, RunLog, Watch
from walktalk.studies.planning import PlannedRun, Progress, RunRecord

FIRST_STRETCH = 1 / 256  # of a run's way at most; after it the size of a stretch is known in trainings
SECONDS_A_STRETCH = 3.0  # at most, about: as long as a person waits after Ctrl-C
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
        places: list[RunFolder | None] = list(folders) if folders else [None] * len(runs)
        self.logs = [RunLog(run, k, place, watch) for k, (run, place) in enumerate(zip(runs, places, strict=True))]
        widths, setups = policy or wave_policy(trainer), [run.setup for run in runs]
        watched = [run.index for run in self.logs if run.rule.keeps_all]
        self.engine = Engine(trainer, setups, [run.initial for run in runs], widths, watched)
        self.progress = 0.0
        self.trainings = 0
        self.reporter = Reporter(self.engine, self.logs, estimated_trainings(runs), report)
        self.stretches = Stretches(trainer, _between_looks([runs[index] for index in watched], len(runs)))
        self.checkpoints = CheckpointClock()
        on_gpu = trainer.device.type == "cuda"
        # A run that may end at any evaluation would be planned beyond its end; on a CPU the clock decides how long a
        # stretch is, and nobody waits.
        self.ahead = not watched and (on_gpu if ahead is None else ahead)
        self._planner: ThreadPoolExecutor | None = None
        self._next: Future[Plan] | None = None  # the stretch that is being planned
        self._disk = BackgroundWriter(beside=False)  # what writes traces and checkpoints

    # -- to the end -------------------------------------------------------------------------------------------------

    def run(self) -> list[RunRecord]:
        """Run to the end; raises `Interrupted`, with everything saved, if asked to stop."""
        with (
            asking_to_stop(self.signals) as ask,
            fitting_threads(self.trainer),
            garbage_between_stretches(),
            short_turns(self.ahead),
            ThreadPoolExecutor(1) as pool,
            BackgroundWriter(beside=self.ahead) as self._disk,
        ):
            self._planner = pool if self.ahead else None
            while self.engine.active:
                self.stretch(last=ask.stop)
                if ask.stop and self._next is not None:
                    continue  # simulations are ahead of the models by one stretch, which is done first
                if ask.stop and self.engine.active:
                    self.save()
                    self._disk.wait()
                    for run in self.logs:
                        if run.writer is not None:
                            run.writer.discard()  # the events are run again on resuming, and traced again
                        run.conclude(self.engine)
                    raise Interrupted(self.records, self.trainer)
                if self.engine.active and self.has_folders and self.checkpoints.is_due():
                    self.save()
            self._disk.wait()
            for run in self.logs:
                run.finish(self.engine, self.trainer, self._disk)
        return self.records

    @property
    def records(self) -> list[RunRecord]:
        """What each run has left so far."""
        return [run.record for run in self.logs]

    @property
    def has_folders(self) -> bool:
        """Whether any run keeps records on the disk."""
        return any(run.folder is not None for run in self.logs)

    def stretch(self, last: bool = False) -> None:
        """Move all runs on by one stretch; after a `last` one simulations and models are at the same moment."""
        self.reporter.tell("training", self.trainings)
        active = list(self.engine.active)
        plan = self.planned() if self._next is None else self._next.result()
        self._next = None
        if self._planner is not None and not last and self.progress < 1.0:
            self._next = self._planner.submit(self.planned)
        began = time.monotonic()
        advance = self.engine.carry_out(plan, self._count)
        self.trainings += advance.trainings
        self.stretches.took(time.monotonic() - began, advance.trainings)
        for measured in advance.measurements:
            struck = self.engine.executor.overflows.get(measured.run)
            self.reporter.warn(self.logs[measured.run].keep_measurement(measured, struck))
        for run, rows in advance.traces.items():
            self.logs[run].keep_trace(rows, self._disk)
        for run in active:
            if self.logs[run].record.met_target:
                self.engine.end(run)
        del plan, advance  # a million small objects, which else would all be looked at
        # What a model's own code leaves in circles; what stays is not looked at again. Not beside the next stretch: it
        # may be on the device, which nobody else may touch while a CUDA graph is recorded.
        gc.collect(1)
        self.reporter.tell("training", self.trainings)

    def planned(self) -> Plan:
        """Plan the next stretch, of simulations alone."""
        done = sum(simulation.iteration for simulation in self.engine.simulations)
        self.progress = min(1.0, self.progress + self.stretches.share(self.progress, done, self.reporter.total))
        return self.engine.plan(self.progress)

    def _count(self, step: Step) -> None:
        if isinstance(step, TrainStep):
            self.reporter.count(len(step.outs), self.trainings)

    def save(self) -> None:
        """Write every run's checkpoint; beside the next stretch, where the device would wait for it."""
        began = self.checkpoints.begin()
        self.reporter.tell("saving", self.trainings)
        for run in self.logs:
            run.save(self.engine, self._disk)
        self._disk.do(partial(self.checkpoints.done, began))

    def resume(self) -> bool:
        """Take up every run from its checkpoint, where there is one; whether any was found."""
        reached = [run.resume(self.engine, self._disk) for run in self.logs]
        found = [share for share in reached if share is not None]
        if found:
            self.progress = min(found) if len(found) == len(self.logs) else 0.0
            self.trainings = sum(simulation.iteration for simulation in self.engine.simulations)
        return bool(found)


class Reporter:
    """Tells how far a study is, now and then, to whoever wants to hear it; warnings go to the log if nobody does."""

    def __init__(
        self, engine: Engine, logs: Sequence[RunLog], total: int, report: Callable[[Progress], None] | None
    ) -> None:
        self.engine, self.logs, self.total, self.report = engine, logs, total, report
        self.warnings: list[str] = []  # to be said with the next report
        self.steps = 0
        self.done_in_stretch = 0

    def warn(self, words: str | None) -> None:
        """Say this with the next report, if it is anything."""
        if words is not None:
            self.warnings.append(words)

    def count(self, trainings: int, before: int) -> None:
        """Count the trainings of a step, and report after some steps.

        Args:
            trainings: How many the step had.
            before: How many there were before this stretch.
        """
        self.steps += 1
        self.done_in_stretch += trainings
        if self.steps % STEPS_BETWEEN_REPORTS == 0:
            self.tell("training", before, self.done_in_stretch)

    def tell(self, phase: str, trainings: int, within: int = 0) -> None:
        """Report how far things are.

        Args:
            phase: What is being done.
            trainings: How many were done in stretches that are over.
            within: How many were done in this stretch.
        """
        if not within:
            self.done_in_stretch = 0
        words, self.warnings = tuple(self.warnings), []
        if self.report is None:
            for word in words:
                log.warning("%s", word)
            return
        simulations = self.engine.simulations
        seen = [run.record for run in self.logs if run.record.history]
        losses: dict[str, list[float]] = {}
        for record in seen:
            losses.setdefault(record.label, []).append(record.history[-1].train_loss)
        self.report(
            Progress(
                min(trainings + within, self.total),
                self.total,
                iteration=max((record.history[-1].iteration for record in seen), default=0),
                time=max(s.agenda.now for s in simulations),
                bits=max(s.bytes for s in simulations) * 8.0,
                loss={label: sum(values) / len(values) for label, values in losses.items()},
                phase=phase,
                rows=tuple(row for run in self.logs for row in run.new_rows()),
                words=words,
            )
        )


class Stretches:
    """How long stretches are: enough trainings to fill waves, few enough to stop soon."""

    def __init__(self, trainer: Trainer, most: float) -> None:
        """
        - `trainer`: what trains.
        - `most`: trainings in a stretch at most.
        """
        self.wanted = int(min(trainings_a_stretch(trainer.width), most))
        self.by_the_clock = trainer.device.type == "cpu"
        self.seconds, self.trainings = 0.0, 0  # how long the last one took, how much it did

    def took(self, seconds: float, trainings: int) -> None:
        """Note how long a stretch took, if it did anything."""
        if trainings:
            self.seconds, self.trainings = seconds, trainings

    def share(self, progress: float, done: int, total: int) -> float:
        """The share of its way by which each run goes on in the next stretch.

        Args:
            progress: The share that is done.
            done: How many trainings that were.
            total: How many all of them will be, about.
        """
        wanted = self.wanted
        if progress == 0.0 or done == 0:
            # A stretch is planned in memory, and Ctrl-C waits for its end: a share alone would have no bound. Where the
            # estimate was so large that nothing was done in it, the next one is twice as long.
            return min(FIRST_STRETCH, max(wanted / max(total, 1), progress))
        if self.by_the_clock and self.seconds > 0.0:
            # On a CPU a run's bytes do not depend on how it is cut, so a slow machine may cut more often.
            wanted = max(1, min(wanted, round(self.trainings * SECONDS_A_STRETCH / self.seconds)))
        return wanted * progress / done


def _between_looks(watched: Sequence[PlannedRun], runs: int) -> float:
    """Trainings in a stretch at most: where a run may end at any evaluation, what is done beyond is in vain."""
    every = [run.setup.evaluate.every for run in watched]
    return math.inf if not every else EVALUATIONS_A_STRETCH * runs * max(one or math.inf for one in every)


def estimated_trainings(runs: Sequence[PlannedRun]) -> int:
    """How many iterations the study will have: exact where runs end by iterations."""
    total = 0.0
    for run in runs:
        stop, timing = run.setup.stop, run.setup.timing
        seconds = timing.d if isinstance(timing, PoissonTiming) else timing.mean_compute
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
