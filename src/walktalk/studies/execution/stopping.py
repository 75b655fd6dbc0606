"""Whether a run ends before its time, and what is to be said of it: from its evaluations, one by one and in order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from walktalk.records import HistoryRow
from walktalk.runtimes.semantics import Stop

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
