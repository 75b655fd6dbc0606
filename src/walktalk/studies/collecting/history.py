"""The history of a deployment: what its nodes measured, each on its own data, of models that had just come to it.

Nobody sees all the data, so a row's loss is the mean over the nodes that live, weighted by their samples, of what each
measured last; likewise the accuracy, over those that have test samples. Nothing but these numbers leaves a node.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from walktalk.protocols import HEADER_BYTES
from walktalk.records import HistoryRow, TraceRow
from walktalk.runtimes.meaning import Evaluate, screening
from walktalk.screens import Privacy, rule_named


class Course:
    """A run's numbers, line by line of its trace."""

    def __init__(self, label: str, evaluate: Evaluate, privacy: Privacy | None = None) -> None:
        self._label, self._evaluate, self._privacy = label, evaluate, privacy
        self._releases: collections.Counter[int] = collections.Counter()  # by node
        self._next_at = evaluate.seconds if evaluate.seconds is not None else math.inf
        self._iteration, self._bytes, self._model_bytes = 0, 0, 0
        self._measured: dict[int, Mapping[str, Any]] = {}  # node -> what it measured last
        self.rows: list[HistoryRow] = []

    def take(self, row: TraceRow) -> None:
        """One line."""
        while row.time > self._next_at:
            self._put(self._next_at)
            self._next_at += self._evaluate.seconds or math.inf
        if row.event == "send":
            self._count(row, row.bytes)
        elif row.event == "superseded":
            self._count(row, -row.bytes)
        elif row.event == "lost":
            self._measured.pop(row.peer, None)  # gone; if it is not, it measures again
        elif row.event == "measured":
            self._measured[row.node] = row.detail if isinstance(row.detail, dict) else json.loads(row.detail)
            if not self.rows:
                self._put(row.time)
        elif row.event == "screen":
            self._releases[row.node] += rule_named(screening(row).rule).releases
        elif row.event == "trained":
            self._iteration += 1
            if self._evaluate.every is not None and self._iteration % self._evaluate.every == 0:
                self._put(row.time)

    def _count(self, row: TraceRow, size: int) -> None:
        self._bytes += size
        if row.slot:
            self._model_bytes += size - int(math.copysign(HEADER_BYTES, size))

    def _put(self, time: float) -> None:
        if not self._measured:
            return
        there = self._measured.values()
        loss = _mean([(one.get("loss", math.nan), one["samples"]) for one in there])  # who has no number diverged
        accuracy = _mean([(one["accuracy"], one["tested"]) for one in there if "accuracy" in one])
        counts = (self._iteration, time, 8 * self._bytes)
        most = max(self._releases.values(), default=0)
        further = None if self._privacy is None else {"epsilon": self._privacy.epsilon(most)}
        row = HistoryRow(self._label, 0, *counts, loss, accuracy, math.nan, 8 * self._model_bytes, further=further)
        if not self.rows or self.rows[-1][2:] != row[2:]:
            self.rows.append(row)

    def finish(self, time: float) -> list[HistoryRow]:
        """All rows; the last is of the last moment."""
        self._put(time)
        return self.rows


def measured_history(
    trace: Sequence[TraceRow], label: str, evaluate: Evaluate, privacy: Privacy | None = None
) -> list[HistoryRow]:
    """The rows of a trace, whose times count from 0; with what was spent, where nodes are private."""
    course = Course(label, evaluate, privacy)
    for row in trace:
        course.take(row)
    return course.finish(trace[-1].time) if trace else []


def _mean(pairs: list[tuple[float, float]]) -> float:
    """Of values with weights; NaN where there are none."""
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else math.nan
