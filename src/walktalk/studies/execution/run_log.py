"""What one run leaves while it is being made: history, trace and checkpoints; and when checkpoints are due."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from walktalk.core.errors import StudyError
from walktalk.learning import Trainer
from walktalk.records import HistoryRow, RunFolder, TraceRow, TraceWriter, load_checkpoint, save_checkpoint
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.stacked import Engine, Measurement, is_better
from walktalk.studies.execution.process import BackgroundWriter
from walktalk.studies.planning import Best, PlannedRun, RunRecord
from walktalk.studies.results import MOST_MODELS, history_row, trace_columns, write_run

# -- Whether a run ends before its time, and what is to be said of it: from its evaluations, one by one and in order --

Watch: TypeAlias = Callable[[HistoryRow], bool | None]
"""Somebody who sees every evaluation, and ends the run by saying True."""

GROWN = 10.0  # times the loss at the start: then a run diverges
ADVICE = "a smaller optimizer.lr, or training.clip_norm, may help"


class StopRule:
    """Decides from its evaluations whether one run ends before its time: by a target, patience or a watcher."""

    def __init__(self, stop: Stop, watch: Watch | None = None) -> None:
        self.stop, self.watch = stop, watch
        self.best, self.waited = math.inf, 0

    @property
    def keeps_all(self) -> bool:
        """Whether any evaluation may end the run, not only one with a loss that is known beforehand."""
        return self.watch is not None or self.stop.patience is not None or self.stop.target_accuracy is not None

    def ends(self, row: HistoryRow) -> bool:
        """Whether the run ends with this evaluation."""
        wanted = self.watch is not None and self.watch(row) is True
        return self._reached(row) or self._tired(row) or wanted

    def _reached(self, row: HistoryRow) -> bool:
        loss, accuracy = self.stop.target_loss, self.stop.target_accuracy
        return (loss is not None and row.train_loss <= loss) or (accuracy is not None and row.test_accuracy >= accuracy)

    def _tired(self, row: HistoryRow) -> bool:
        """Whether the loss has not fallen for as many evaluations as the person has patience."""
        if self.stop.patience is None:
            return False
        loss = (row.further or {}).get("test_loss", row.train_loss)
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(self.best, loss) if math.isfinite(loss) else self.best
        return self.waited >= self.stop.patience


class DivergenceAlarm:
    """Warns of one run, once each, that its loss is not a number, or many times what it was."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.told: set[str] = set()

    def words(self, row: HistoryRow, node: str | None) -> str | None:
        """What to say of this evaluation; nothing where all is well. `node`: whose training it began with."""
        self.first = row.train_loss if self.first is None else self.first
        run = f"{row.algorithm}, repetition {row.repetition}, iteration {row.iteration:,}"
        if not math.isfinite(row.train_loss):
            began = "" if node is None else f"; it began with a training at node {node}"
            return self._once("not a number", f"{run}: the loss is not a number{began}; {ADVICE}")
        if 0 < GROWN * self.first < row.train_loss:
            grown = (
                f"the loss is {row.train_loss:.3g}, {row.train_loss / self.first:.0f} times what it was at the start"
            )
            return self._once("grown", f"{run}: {grown}; {ADVICE}")
        return None

    def _once(self, what: str, words: str) -> str | None:
        if what in self.told:
            return None
        self.told.add(what)
        return words


# -- What one run leaves while it is being made: history, trace and checkpoints; and when checkpoints are due ---------

SECONDS_BETWEEN_CHECKPOINTS = 10.0
CHECKPOINT_SHARE = 0.05  # of the time may go into writing checkpoints


class RunLog:
    """The record of one run while it grows: what is measured and traced, and whether the run ends before its time."""

    def __init__(self, run: PlannedRun, index: int, folder: RunFolder | None, watch: Watch | None) -> None:
        """
        - `run`: the run.
        - `index`: its place among the runs of the engine.
        - `folder`: where its records are written; None for nowhere.
        - `watch`: may end it at any of its evaluations.
        """
        self.run, self.index, self.folder = run, index, folder
        self.record = RunRecord(run.label, run.repetition)
        self.rule, self.alarm = StopRule(run.setup.stop, watch), DivergenceAlarm()
        self.writer: TraceWriter | None = None
        if folder is not None and run.setup.keep_trace:
            folder.path.mkdir(parents=True, exist_ok=True)
            self.writer = TraceWriter(folder.trace)
        self.traced = 0  # lines of the trace so far
        self.reported = 0  # evaluations that were reported

    def keep_trace(self, rows: list[TraceRow], disk: BackgroundWriter) -> None:
        """Add lines to the trace; nothing beyond the moment at which the run met its target."""
        if self.record.met_target:
            rows = rows[: max(0, self.record.noted - self.traced)]
        self.traced += len(rows)
        if self.writer is not None:
            disk.do(partial(_write_trace, self.writer, rows))
        else:
            self.record.trace += rows

    def keep_measurement(self, m: Measurement, struck: int | None) -> str | None:
        """Add an evaluation to the history, and say what a person should know of it at once, if anything.

        Args:
            m: What was measured.
            struck: The node whose training gave the first number that is not finite, where one did.
        """
        record = self.record
        if record.met_target:
            return None  # what a stretch did beyond the target does not count
        row = history_row(record.label, record.repetition, m)
        record.history.append(row)
        record.states = None if m.states is None else m.states.cpu().numpy()
        self._keep_best(m)
        graph = self.run.setup.graph
        node = graph.name_of(struck) if struck is not None and struck < graph.nodes else None  # else everybody's data
        warning = self.alarm.words(row, node)
        if self.rule.ends(row):
            # The run ends here, wherever the stretch does: its model, trace and history are those of this moment.
            assert m.model is not None
            record.met_target, record.output, record.noted = True, m.model.cpu(), m.op.noted
        return warning

    def _keep_best(self, m: Measurement) -> None:
        """Keep the model that was measured, if it is the best so far."""
        new, old = m.best, self.record.best
        if new is not None and (old is None or is_better(new.measure, new.value, old.value)):
            row = new.model.cpu().numpy().copy()
            self.record.best = Best(row, m.op.iteration, new.measure, new.value, new.is_mean)

    def new_rows(self) -> list[HistoryRow]:
        """Evaluations that were not reported yet."""
        new = self.record.history[self.reported :]
        self.reported = len(self.record.history)
        return new

    def conclude(self, engine: Engine) -> None:
        """Add what is known only when nothing more comes: the model, and how much the run did."""
        record = self.record
        if record.met_target:
            record.trainings = record.history[-1].iteration
        else:
            record.output = engine.output(self.index).cpu()
            simulation = engine.simulations[self.index]
            record.trainings, record.nodes = simulation.trainings.begun, simulation.setup.graph.nodes
            if simulation.setup.evaluate.members and record.repetition == 0 and record.nodes <= MOST_MODELS:
                record.family = simulation.setup.protocol.family
                record.members = {key: row.cpu() for key, row in engine.members(self.index).items()}
            if simulation.setup.evaluate.model == "aggregated":
                record.aggregated_at = simulation.interpreter.output.aggregated_at
                record.family = simulation.setup.protocol.family
        assert record.output is not None

    def finish(self, engine: Engine, trainer: Trainer, disk: BackgroundWriter) -> None:
        """Conclude the run and write its last records: trace, history, model and checkpoint."""
        self.conclude(engine)
        if self.writer is not None:
            self.writer.close()
        if self.folder is not None:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            write_run(self.folder, self.record, trainer)
            self.save(engine, disk)

    def save(self, engine: Engine, disk: BackgroundWriter) -> None:
        """Write a checkpoint, where the run has a folder."""
        record, folder = self.record, self.folder
        if folder is None:
            return
        facts: dict[str, Any] = {"history": [list(row) for row in record.history], "met_target": record.met_target}
        if record.met_target and record.output is not None:
            tensors = {"output": record.output}
            facts |= {"progress": 1.0, "noted": record.noted}
        else:
            tensors, numbers = engine.living(self.index)
            facts |= {"progress": engine.reached[self.index], "values": numbers}
        if record.best is not None:
            tensors["best"] = torch.from_numpy(record.best.row)
            facts["best"] = list(record.best[1:])
        folder.path.mkdir(parents=True, exist_ok=True)
        if record.states is not None:
            tensors["states_of_nodes"] = torch.from_numpy(record.states)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        disk.do(partial(save_checkpoint, folder.checkpoint, tensors, facts), size)

    def resume(self, engine: Engine, disk: BackgroundWriter) -> float | None:
        """Take up the run from its checkpoint: how far it is; None where there is no checkpoint."""
        if self.folder is None or not self.folder.checkpoint.exists():
            return None
        tensors, facts = load_checkpoint(self.folder.checkpoint)
        try:
            rows = self._restore(engine, tensors, facts)
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"{self.folder.checkpoint} does not fit this study; delete it and run the study again"
            ) from error
        if self.record.met_target:
            engine.end(self.index)
        self.keep_trace(rows, disk)
        return float(facts["progress"])

    def _restore(self, engine: Engine, tensors: dict[str, Tensor], facts: dict[str, Any]) -> list[TraceRow]:
        record = self.record
        record.history = [HistoryRow(*row) for row in facts["history"]]
        record.met_target = facts["met_target"]
        best = tensors.pop("best", None)
        record.best = None if best is None else Best(best.numpy(), *facts["best"])
        states = tensors.pop("states_of_nodes", None)
        record.states = None if states is None else states.numpy()
        for row in record.history:  # rule and alarm have seen them before
            self.rule.ends(row)
            self.alarm.words(row, None)
        if record.met_target:
            record.output, record.noted = tensors["output"], facts["noted"]
            return engine.simulations[self.index].advance().trace  # events alone: the models are at their end
        return engine.restore(self.index, facts["progress"], tensors, facts["values"]).trace


def _write_trace(writer: TraceWriter, rows: list[TraceRow]) -> None:
    writer.write(trace_columns(rows))


class CheckpointClock:
    """Says when the next checkpoint is due: not too often, and the less often the longer one takes."""

    def __init__(self) -> None:
        self.saved_at = time.monotonic()
        self.took = 0.0
        self.saving = False  # whether one is being written

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint, and none is being written."""
        since = time.monotonic() - self.saved_at
        return not self.saving and since > max(SECONDS_BETWEEN_CHECKPOINTS, self.took / CHECKPOINT_SHARE)

    def begin(self) -> float:
        """Note that a checkpoint begins; returns the moment, to be given to `done`."""
        self.saving = True
        return time.monotonic()

    def done(self, began: float) -> None:
        """Note that all of a checkpoint is on the disk."""
        self.saved_at = time.monotonic()
        self.took = self.saved_at - began
        self.saving = False
