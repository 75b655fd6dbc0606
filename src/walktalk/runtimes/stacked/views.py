"""Values that need not be made: who adds them up reads what they are made of, where that lies.

Who combines large models does little else than read and write memory. A share w · x that is only ever added to others,
every other number of a model that is sent along one of two trees, or a sum that a single other one reads, would be
written once and read again; instead its reader has the terms themselves, with their weights and for the numbers in
question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from walktalk.codecs import Part, codec_named
from walktalk.runtimes.simulator import CombineOp, EncodeOp, Op
from walktalk.runtimes.stacked.jobs import inputs_of

ALL = -1  # in place of the number of a part: every number
MOST_TERMS = 8  # of what is looked through: its terms stay in memory until it is read

View: TypeAlias = tuple[tuple[int, float, int], ...]
"""A value as a sum of others: their numbers, weights, and the part p of each: its numbers p, p + of, … alone."""


class Seen(NamedTuple):
    """A schedule in which some values are views."""

    ops: list[Op]
    of: int  # how many parts a model has, wherever parts are seen; 1 if none are


def seen_through(ops: Sequence[Op], live: Collection[int], of: int = 1) -> Seen:
    """The same schedule without values that only sums read, where it pays.

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
