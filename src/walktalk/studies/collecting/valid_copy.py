"""Which of the nodes' copies is the run's model, and why.

Walks that are mixed: the aggregator's copy, of the highest term where several nodes have aggregated. Where that cannot
be had, and where nobody aggregates, as in gossip: the mean of the members' latest copies, walks' or nodes'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.errors import StudyError
from walktalk.protocols import AGGREGATE
from walktalk.records import TraceRow
from walktalk.studies.collecting.gather import CopyFound


@dataclass(frozen=True)
class Valid:
    """The run's model."""

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

    @property
    def iterations(self) -> int:
        """Of the whole run."""
        return sum(row.event == "trained" for row in self.trace)

    def last_aggregator(self) -> TraceRow | None:
        """Who aggregated last: of several at the same time, the one of the highest term counts."""
        shown = [row for row in self.trace if row.event == "record" and row.detail == AGGREGATE]
        return max(enumerate(shown), key=lambda pair: (pair[1].walk, pair[0]))[1] if shown else None

    def iteration_of(self, mark: TraceRow) -> int:
        """How many iterations were done when this was written down."""
        return sum(row.event == "trained" and row.time <= mark.time for row in self.trace)


def choose(copies: Sequence[CopyFound], known: Account) -> Valid:
    """The valid copy; a `StudyError` where there is none at all."""
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


def mean_weights(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Weight by weight; whole numbers, such as counts of batches, are the first one's."""
    first = models[0]
    if any({n: t.shape for n, t in one.items()} != {n: t.shape for n, t in first.items()} for one in models):
        raise StudyError("the nodes' copies are not of one model: their weights have other names or shapes")
    return {
        name: torch.stack([one[name].double() for one in models]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in first.items()
    }
