"""What comes out of a deployment: its history, and which of the nodes' copies is the run's model.

The history is what nodes measured, each on its own data, of models that had just come to it. Nobody sees all the data,
so a row's loss is the mean over the nodes that live, by the weights of the study's objective, of what each measured
last; likewise the accuracy, by samples, over those that have test samples. Nothing but these numbers leaves a node.

The model of walks that are mixed is the aggregator's copy, of the highest term where several nodes have aggregated.
Where that cannot be had, and where nobody aggregates, as in gossip: the mean of the members' latest copies.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from walktalk.core.errors import StudyError
from walktalk.protocols import AGGREGATE, HEADER_BYTES
from walktalk.records import HistoryRow, TraceRow
from walktalk.runtimes.peers import METRIC
from walktalk.runtimes.semantics import Evaluate, screening
from walktalk.studies.collecting.gather import CopyFound, Counts, best_aggregate
from walktalk.transforms.rules import Privacy, rule_named


class MeasuredHistory:
    """Adds up a run's numbers, line by line of its trace."""

    def __init__(self, label: str, evaluate: Evaluate, privacy: Privacy | None = None) -> None:
        self._label, self._evaluate, self._privacy = label, evaluate, privacy
        self._releases: collections.Counter[int] = collections.Counter()  # by node
        self._next_at = evaluate.seconds if evaluate.seconds is not None else math.inf
        self._iteration, self._bytes, self._model_bytes = 0, 0, 0
        self._measured: dict[int, Mapping[str, Any]] = {}  # node -> what it measured last
        self._over = False
        self.rows: list[HistoryRow] = []

    def add(self, row: TraceRow) -> None:
        """Take one more line of the trace into the sums of iterations, bits and losses."""
        while row.time > self._next_at:
            self._put(self._next_at)
            self._next_at += self._evaluate.seconds or math.inf
        if row.event == "send":
            self._count(row, row.bytes)
        elif row.event == "superseded":
            self._count(row, -row.bytes)
        elif row.event == "over":
            self._over = True
        elif row.event == "lost" and not self._over:  # in the end all go, one after the other
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
        loss = _mean([(one.get("loss", math.nan), _weight(one)) for one in there])  # who has no number diverged
        accuracy = _mean([(one["accuracy"], one["tested"]) for one in there if "accuracy" in one])
        counts = (self._iteration, time, 8 * self._bytes)
        most = max(self._releases.values(), default=0)
        further = {} if self._privacy is None else {"epsilon": self._privacy.epsilon(most)}
        for name in sorted({name for one in there for name in one if name.startswith(METRIC)}):
            measured = [(one[name], _weight(one)) for one in there if name in one]
            further[name.removeprefix(METRIC)] = _mean(measured)
        given = further or None
        row = HistoryRow(self._label, 0, *counts, loss, accuracy, math.nan, 8 * self._model_bytes, further=given)
        if not self.rows or self.rows[-1][2:] != row[2:]:
            self.rows.append(row)

    def finish(self, time: float, unseen: Counts) -> list[HistoryRow]:
        """Finish with a row of the last moment; returns all rows.

        `unseen`: what was done of which nothing is written down. Nobody knows when, so it comes in with that row.
        """
        self._iteration += unseen.iterations
        self._bytes += unseen.bytes
        self._put(time)
        return self.rows


def measured_history(
    trace: Sequence[TraceRow],
    label: str,
    evaluate: Evaluate,
    privacy: Privacy | None = None,
    unseen: Counts | None = None,
) -> list[HistoryRow]:
    """Make the rows of a trace, whose times count from 0; with what was spent, where nodes are private.

    - `unseen`: what was done of which nothing is in the trace.
    """
    history = MeasuredHistory(label, evaluate, privacy)
    for row in trace:
        history.add(row)
    return history.finish(trace[-1].time, unseen or Counts(0, 0)) if trace else []


def _weight(measured: Mapping[str, Any]) -> float:
    """How much a node counts in the training loss; one of an earlier version says its samples only."""
    return float(measured.get("weight", measured["samples"]))


def _mean(pairs: list[tuple[float, float]]) -> float:
    """The weighted mean of (value, weight) pairs; NaN where there are none."""
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else math.nan


@dataclass(frozen=True)
class Valid:
    """The weights that are the run's model, and why these."""

    weights: dict[str, Tensor]
    nodes: tuple[str, ...]  # whose copies are in it
    words: str  # which copy it is, and why that one


@dataclass(frozen=True)
class Account:
    """What is known of a run, to judge copies by."""

    names: Sequence[str]  # of the nodes, by number
    trace: Sequence[TraceRow]
    states: Mapping[str, str]  # node -> finished, training, left or gone
    family: str  # of the algorithm: walks, gossip …
    wanted: str = "aggregated"  # the study's `evaluate.model`
    unseen: int = 0  # iterations that others tell of, and the trace does not

    @property
    def iterations(self) -> int:
        """What is known of the whole run, to choose its model by."""
        return self.unseen + sum(row.event == "trained" for row in self.trace)

    def last_aggregator(self) -> TraceRow | None:
        """Who aggregated last: of several at the same time, the one of the highest term counts."""
        shown = [row for row in self.trace if row.event == "record" and row.detail == AGGREGATE]
        return max(enumerate(shown), key=lambda pair: (pair[1].walk, pair[0]))[1] if shown else None

    def iteration_of(self, mark: TraceRow) -> int:
        """How many iterations were done when this was written down."""
        return sum(row.event == "trained" and row.time <= mark.time for row in self.trace)


def choose(copies: Sequence[CopyFound], known: Account) -> Valid:
    """Choose the valid copy; a `StudyError` where there is none at all."""
    if not copies:
        raise StudyError(
            "no node has a copy of the model to give: those that answer have not trained yet, or their folders hold "
            "none; try again when they have"
        )
    last = known.last_aggregator() if known.wanted == "aggregated" else None
    if last is not None:
        holder = known.names[last.node]
        for copy in copies:
            if copy.node == holder and copy.role == AGGREGATE:
                return _of_aggregator(copy, last, known)
    members = [copy for copy in copies if copy.role != AGGREGATE]
    if not members:
        best = max(copies, key=lambda copy: (copy.key, copy.moment))
        return Valid(best.weights, (best.node,), _second_best(best, last, known))
    return _mean_of(_latest(members, known), last, known)


def _of_aggregator(copy: CopyFound, last: TraceRow, known: Account) -> Valid:
    others = {row.node for row in known.trace if row.event == "record" and row.detail == AGGREGATE} - {last.node}
    so_late = f"brought up to date in iteration {known.iteration_of(last):,} of {known.iterations:,}"
    before = ", ".join(known.names[node] for node in sorted(others))
    highest = f", in term {last.walk}, the highest; {before} aggregated before" if others else ""
    return Valid(copy.weights, (copy.node,), f"the copy of {copy.node}, which aggregates the walks{highest}; {so_late}")


def _second_best(copy: CopyFound, last: TraceRow | None, known: Account) -> str:
    why = "" if last is None else f"; {known.names[last.node]} aggregated last, but its copy cannot be had"
    return f"the copy of {copy.node}, an aggregator of term {copy.key}{why}"


def _latest(members: Sequence[CopyFound], known: Account) -> list[CopyFound]:
    """The latest copy of each member; what nodes held that are gone does not count while others are there."""
    here = [copy for copy in members if known.states.get(copy.node) in ("finished", "training")]
    here = here or [copy for copy in members if known.states.get(copy.node) == "left"] or list(members)
    shown = {(row.node, row.walk): row.time for row in known.trace if row.event == "record" and row.detail != AGGREGATE}
    numbers = {name: number for number, name in enumerate(known.names)}
    latest: dict[int, CopyFound] = {}
    for copy in sorted(here, key=lambda copy: shown.get((numbers[copy.node], copy.key), -1.0)):
        latest[copy.key] = copy
    keys = [min(latest)] if known.wanted == "node" else sorted(latest)
    return [latest[key] for key in keys]


def _mean_of(copies: Sequence[CopyFound], last: TraceRow | None, known: Account) -> Valid:
    nodes = tuple(dict.fromkeys(copy.node for copy in copies))
    walking = known.family == "walks"
    keys = ", ".join(str(copy.key) for copy in copies)
    of = f"walks {keys}" if walking and len(copies) > 1 else f"walk {keys}" if walking else ", ".join(nodes)
    what = f"the mean of the latest copies of {of}" if len(copies) > 1 else f"the latest copy of {of}"
    if last is not None:
        why = f"{known.names[last.node]} aggregated last, but its copy cannot be had"
    elif known.wanted != "aggregated":
        why = f"the study asks for it (evaluate.model: {known.wanted})"
    else:
        why = "nobody aggregates"
    missing = [name for name in known.names if name not in nodes] if not walking else []
    without = f"; without {', '.join(missing)}" if missing and known.wanted != "node" else ""
    return Valid(mean_weights([copy.weights for copy in copies]), nodes, f"{what}, because {why}{without}")


def choose_best(copies: Sequence[CopyFound], known: Account) -> Valid | None:
    """The best model that nodes have kept: that of an aggregator, or the mean of the members' best; None without any.

    Args:
        copies: The best that each node has had.
        known: What is known of the run.
    """
    copies = [copy for copy in copies if copy.best is not None]
    holder = best_aggregate([(c.node, c.role, c.best.measure, c.best.value) for c in copies if c.best is not None])
    chosen = [copy for copy in copies if copy.node == holder]
    if holder is None:
        latest = {copy.key: copy for copy in sorted(copies, key=lambda copy: copy.moment)}
        chosen = [latest[key] for key in sorted(latest)]
    found = [copy.best for copy in chosen if copy.best is not None]
    if not found:
        return None
    value, iteration = fmean(one.value for one in found), round(median(one.iteration for one in found))
    nodes = tuple(dict.fromkeys(copy.node for copy in chosen))
    what = f"the copy of {nodes[0]}" if len(chosen) == 1 else f"the mean of the copies of {', '.join(nodes)}"
    by = f"{found[0].measure} {value:.4g}, the mean over nodes of what each measured last"
    words = f"{what} around iteration {iteration:,} of {known.iterations:,}, by {by}"
    return Valid(mean_weights([copy.weights for copy in chosen]), nodes, words)


def mean_weights(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average models weight by weight; whole numbers, such as counts of batches, are the first one's."""
    first = models[0]
    if any({n: t.shape for n, t in one.items()} != {n: t.shape for n, t in first.items()} for one in models):
        raise StudyError("the nodes' copies are not of one model: their weights have other names or shapes")
    return {
        name: torch.stack([one[name].double() for one in models]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in first.items()
    }
