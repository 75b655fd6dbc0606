"""All models of a study, as rows of one matrix on the device.

Which row holds which value is decided ahead (`waves`), so the matrix grows at most once before a stretch of work, and
the most it will need is known before the work starts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from walktalk.runtimes.simulator import NO_STATE, NO_VALUE, Chunk, CombineOp, EncodeOp, MixOp, Op, ScreenOp, TrainOp
from walktalk.transforms.codecs import Part, codec_named

WIDEST_BAG = 2**21  # numbers in a row up to which torch's embedding bag pays (`combined`)


class RowSpace:
    """Hands out row numbers; the lowest free one first, so that the matrix stays dense."""

    def __init__(self) -> None:
        self.size = 0  # rows that were ever in use at once
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.size += 1
        return self.size - 1

    def give_back(self, row: int) -> None:
        heapq.heappush(self._free, row)


class Matrix:
    """All models of a study as the rows of one matrix on the device."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.data = torch.zeros((0, width), device=device)

    def reserve(self, rows: int) -> None:
        """Make room for that many rows, keeping what is there."""
        have, width = self.data.shape
        if rows > have:
            # More than asked, so that many small steps do not copy everything each time; no row is read before it is
            # written, so what is not used takes no memory on a CPU, and there may be more of it.
            spare = have // 2 if self.data.device.type == "cpu" else have // 8
            grown = torch.empty((max(rows, have + spare), width), device=self.data.device, dtype=self.data.dtype)
            grown[:have] = self.data
            self.data = grown

    def read(self, rows: Tensor) -> Tensor:
        return self.data.index_select(0, rows)

    def look_at(self, rows: Tensor, numbers: Sequence[int]) -> Tensor:
        """Rows for a reader that changes nothing and is done before anything is written: a single row is not copied.

        `numbers` are the rows once more, where they can be read without waiting for the device.
        """
        return self.data.narrow(0, numbers[0], 1) if len(numbers) == 1 else self.read(rows)

    def write(self, rows: Tensor, content: Tensor) -> None:
        if self.data.device.type == "cpu":  # NumPy copies whole rows; torch takes three times as long
            self.data.numpy()[rows.numpy()] = content.numpy()
        else:
            self.data.index_copy_(0, rows, content)

    def combined(self, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        """Σ_k weights[k] · row rows[k] over each piece of the list; `starts` says where the pieces begin."""
        return torch.embedding_bag(self.data, rows, starts, mode=0, per_sample_weights=weights)[0]

    def combined_from(self, column: int, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        """Combines the columns from a place on, which are few."""
        chosen = self.data[:, column:].index_select(0, rows)
        places = torch.arange(len(rows), device=rows.device)
        return torch.embedding_bag(chosen, places, starts, mode=0, per_sample_weights=weights)[0]

    def combine_one_by_one(
        self, outs: Sequence[int], rows: Sequence[int], weights: Sequence[float], starts: Sequence[int]
    ) -> None:
        """`combined` for wide rows, written to rows `outs`: in as few passes over the memory as there are."""
        in_place = not set(outs) & set(rows)  # else all are made before any is written
        made = [self.data[out] if in_place else torch.empty_like(self.data[out]) for out in outs]
        for total, start, end in zip(made, starts, [*starts[1:], len(rows)], strict=True):
            if start == end:
                total.zero_()
                continue
            torch.mul(self.data[rows[start]], weights[start], out=total)
            for source, factor in zip(rows[start + 1 : end], weights[start + 1 : end], strict=True):
                total.add_(self.data[source], alpha=factor)
        if not in_place:
            for out, total in zip(outs, made, strict=True):
                self.data[out].copy_(total)


# The operations of a stretch as a graph: what each waits for, and how long a chain of trainings hangs on it.


class Value:
    """A model or an optimizer state, while it is planned with."""

    __slots__ = ("chain", "is_state", "readers", "row", "uses")

    def __init__(self, is_state: bool, uses: int = 0) -> None:
        self.is_state = is_state
        self.uses = uses  # reads still to come, plus one for what lives on afterwards
        self.chain = 0  # trainings in the longest chain that starts from it
        self.readers: list[Job] = []  # the last first
        self.row = -1  # where it is, once it is made


class Job:
    """An operation that waits for its inputs."""

    __slots__ = ("chain", "inputs", "is_training", "missing", "op", "order", "outputs", "run")

    def __init__(self, run: int, op: Op, order: int, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self.run = run
        self.op = op
        self.order = order  # in the schedule: breaks ties
        self.inputs = inputs
        self.outputs = outputs
        self.is_training = isinstance(op, TrainOp)
        self.chain = max((value.chain for value in outputs), default=0) + self.is_training
        self.missing = 0  # inputs that are not made yet


def inputs_of(op: Op) -> Iterable[int]:
    """The values that an operation reads, each once; of a training its model, then what is beside it, then a state."""
    if isinstance(op, TrainOp):
        if op.correction == NO_VALUE and op.anchor == NO_VALUE:
            return (op.source,) if op.state_in == NO_STATE else (op.source, -1 - op.state_in)
        beside = (op.source, *(value for value in (op.correction, op.anchor) if value != NO_VALUE))
        return dict.fromkeys(beside if op.state_in == NO_STATE else (*beside, -1 - op.state_in))
    if isinstance(op, EncodeOp):
        return (op.source,)
    if isinstance(op, ScreenOp):
        return dict.fromkeys((op.own, *(number for number, _ in op.others)))
    if isinstance(op, CombineOp):
        return [number for number, _ in op.terms]
    if isinstance(op, MixOp):
        return dict.fromkeys(op.sources)
    models = [number for terms in (op.aggregate, *op.members) for number, _ in terms]
    return dict.fromkeys([*models, *(-1 - state for state in op.states if state != NO_STATE)])


def outputs_of(op: Op) -> Sequence[int]:
    """The values that an operation makes."""
    if isinstance(op, TrainOp):
        return (op.out,) if op.state_out == NO_STATE else (op.out, -1 - op.state_out)
    if isinstance(op, CombineOp | EncodeOp | ScreenOp):
        return (op.out,)
    return op.outs if isinstance(op, MixOp) else ()


def jobs_of(run: int, chunk: Chunk, first: int = 0) -> tuple[list[Job], dict[int, Value]]:
    """The operations that an evaluation or a later stretch depends on, in order, and the values they touch.

    The others need not be done at all. Walking backwards, what is needed and the longest chain that hangs on it are
    known when an operation is reached. An optimizer state s has the number −1 − s.
    """
    values = {number: Value(False, uses=1) for number in chunk.live}
    values.update({-1 - state: Value(True, uses=1) for state in chunk.live_states})
    jobs: list[Job] = []
    order = first + len(chunk.ops)
    for op in reversed(chunk.ops):
        order -= 1
        made = outputs_of(op)
        if made and not any(number in values for number in made):
            continue
        outputs = [values.get(number) or values.setdefault(number, Value(number < 0)) for number in made]
        inputs = [values.get(number) or values.setdefault(number, Value(number < 0)) for number in inputs_of(op)]
        job = Job(run, op, order, inputs, outputs)
        for value in inputs:
            value.uses += 1
            value.readers.append(job)
            if value.chain < job.chain:
                value.chain = job.chain
        jobs.append(job)
    jobs.reverse()
    return jobs, values


# Values that need not be made: who adds them up reads what they are made of, where that lies.
#
# Who combines large models does little else than read and write memory. A share w · x that is only ever added to
# others, every other number of a model that is sent along one of two trees, or a sum that a single other one reads,
# would be written once and read again; instead its reader has the terms themselves, with their weights and for the
# numbers in question.

ALL = -1  # in place of the number of a part: every number
MOST_TERMS = 8  # of what is looked through: its terms stay in memory until it is read

View: TypeAlias = tuple[tuple[int, float, int], ...]
"""A value as a sum of others: their numbers, weights, and the part p of each: its numbers p, p + of, … alone."""


class Seen(NamedTuple):
    """A schedule in which some values are views."""

    ops: list[Op]
    of: int  # how many parts a model has, wherever parts are seen; 1 if none are


def seen_through(ops: Sequence[Op], live: Collection[int], of: int = 1) -> Seen:
    """The schedule without values that only sums read, where leaving them out pays.

    Args:
        ops: What is to be done, in order.
        live: Values that may be used afterwards: these are made.
        of: How many parts a model has in schedules that are carried out at the same time; 1 if that is not settled.
            Parts of another number of them are made.
    """
    if of == 1:
        of = next((parts for op in ops if isinstance(op, EncodeOp) and (parts := parts_of(op.codec))), 1)
    kept = set(live)
    readers: Counter[int] = Counter()
    for op in ops:
        (readers if is_sum(op) else kept).update(inputs_of(op))
    views: dict[int, View] = {}
    left: list[Op] = []
    for op in ops:
        seen = looked_through(op, views) if isinstance(op, CombineOp) and is_sum(op) else op
        view = view_of(seen, of)
        if view and (out := made_by(op)) not in kept and (len(view) == 1 or pays(view, readers[out])):
            views[out] = view
        else:
            left.append(seen)
    return Seen(left, of)


def is_sum(op: Op) -> bool:
    """Whether an operation is a sum of weighted values and nothing more."""
    return isinstance(op, CombineOp) and op.statistics is None and not op.averaged


def pays(view: View, readers: int) -> bool:
    """Whether a sum of several is better made by who reads it."""
    return readers == 1 and len(view) <= MOST_TERMS


def parts_of(codec: str) -> int:
    """How many parts a model has of which a codec leaves one; 0 for other codecs."""
    found = codec_named(codec)
    return found.places.step if isinstance(found, Part) else 0


def made_by(op: Op) -> int:
    """The value that a combination or an encoding makes."""
    assert isinstance(op, CombineOp | EncodeOp)
    return op.out


def view_of(op: Op, of: int) -> View:
    """What an operation makes, as a sum of what it reads; () where it is anything else."""
    if isinstance(op, CombineOp) and is_sum(op):
        return terms_of(op)
    if isinstance(op, EncodeOp) and parts_of(op.codec) == of:
        codec = codec_named(op.codec)
        assert isinstance(codec, Part)
        return ((op.source, 1.0, codec.places.start),)
    return ()


def terms_of(op: CombineOp) -> View:
    parts = op.parts or [ALL] * len(op.terms)
    return tuple((value, weight, part) for (value, weight), part in zip(op.terms, parts, strict=True))


def looked_through(op: CombineOp, views: Mapping[int, View]) -> CombineOp:
    """A sum that reads what its terms are made of."""
    if not any(value in views for value, _ in op.terms):
        return op
    total: dict[tuple[int, int], float] = {}
    for value, weight in op.terms:
        for source, inner, part in views.get(value, ((value, 1.0, ALL),)):
            total[source, part] = total.get((source, part), 0.0) + weight * inner
    left = [(source, weight, part) for (source, part), weight in total.items() if weight != 0.0]
    terms, parts = tuple((source, weight) for source, weight, _ in left), tuple(part for *_, part in left)
    return op._replace(terms=terms, parts=parts if any(part != ALL for part in parts) else ())
