"""The arithmetic that a simulation calls for, written down to be done later.

Every model that ever exists is a *value* with a number, written once (static single assignment). A slot is a name for
a linear combination of values, so copying, sending and keeping a model cost nothing, and what depends on what is plain
to see: the stacked executor does in one wave whatever the dependencies allow, in this run and in all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from walktalk.protocols import TRAINED, for_statistics, with_update

Terms: TypeAlias = tuple[tuple[int, float], ...]  # a linear combination of values: (value, weight) pairs

INITIAL_VALUE = 0  # the value that every run starts from, x_0
NO_STATE = -1  # "no optimizer state": start from a fresh one, or throw it away


class TrainOp(NamedTuple):
    """Train one value on one node's data."""

    out: int  # the value that is made
    source: int  # the value to start from
    part: int  # whose data
    key: int  # decides the batches, and nothing else does
    lr: float  # learning rate
    state_in: int  # optimizer state to start from, or NO_STATE
    state_out: int  # optimizer state that is left, or NO_STATE


class CombineOp(NamedTuple):
    """Make a value as a linear combination."""

    out: int
    terms: Terms
    statistics: tuple[float, ...] | None = None  # the weights of the same values for statistics, where they are others


class MixOp(NamedTuple):
    """Multiply the values of all nodes by the matrix P: outs = P · sources."""

    outs: tuple[int, ...]
    sources: tuple[int, ...]


class EvaluateOp(NamedTuple):
    """Measure the run at this point."""

    iteration: int
    time: float
    bits: float  # everything sent so far
    model_bits: float  # the models' part of it
    aggregate: Terms  # the model that the algorithm outputs
    members: tuple[Terms, ...]  # the models that are to agree
    noted: int = 0  # lines of the trace up to here
    each: bool = False  # whether every member is measured by itself, too


Op: TypeAlias = TrainOp | CombineOp | MixOp | EvaluateOp


@dataclass
class Chunk:
    """A stretch of a run's schedule, in an order that respects every dependency."""

    ops: list[Op]
    live: list[int]  # values that may be used after it
    live_states: list[int]  # optimizer states that may be used after it
    trace: list[tuple[object, ...]]  # what happened, event by event (`records.trace`)
    finished: bool  # whether the run ends with it


@dataclass
class Notebook:
    """Writes a run's schedule: the slots of all nodes, and the operations so far."""

    ops: list[Op] = field(default_factory=list)
    slots: dict[int, dict[str, Terms]] = field(default_factory=dict)  # node -> slot -> what it is
    next_value: int = INITIAL_VALUE + 1
    next_state: int = 0
    statistics: bool = True  # whether models carry any

    def read(self, node: int, slot: str) -> Terms:
        """What a slot is."""
        return self.slots[node][slot]

    def write(self, node: int, slot: str, terms: Terms) -> None:
        """Name a combination; no arithmetic."""
        here = self.slots.get(node)
        if here is None:
            here = self.slots[node] = {}
        here[slot] = terms

    def forget(self, node: int, slot: str) -> None:
        self.slots[node].pop(slot, None)

    def combine(self, node: int, into: str, terms: Mapping[str, float]) -> None:
        """Set a slot to a combination of slots. A plain copy stays a name; everything else makes a new value."""
        here = self.slots[node]
        if len(terms) == 1:
            ((slot, weight),) = terms.items()
            if weight == 1.0:
                here[into] = here[slot]
                return
        total = added_up(here, terms)
        other = self._for_statistics(here, terms) if self.statistics else None
        if other is None or other == total:
            here[into] = self.as_one(tuple((value, weight) for value, weight in total.items() if weight != 0.0))
            return
        both = {value: (total.get(value, 0.0), other.get(value, 0.0)) for value in (*total, *other)}
        kept = [(value, *weights) for value, weights in both.items() if any(weights)]
        made, statistics = tuple((value, weight) for value, weight, _ in kept), tuple(weight for _, _, weight in kept)
        here[into] = self.as_one(made, None if statistics == tuple(weight for _, weight in made) else statistics)

    def _for_statistics(self, here: Mapping[str, Terms], terms: Mapping[str, float]) -> dict[int, float] | None:
        """The same combination for statistics; None where it is no other one."""
        update = next((slot for slot in terms if any(weight < 0 for _, weight in here[slot])), None)
        if update is None:
            calmer = for_statistics(terms)
            return None if calmer is terms else added_up(here, calmer)
        trained = tuple((value, weight) for value, weight in here[update] if weight > 0)
        before = tuple((value, -weight) for value, weight in here[update] if weight < 0)
        begun_with = next((slot for slot in terms if here[slot] == before), None)
        return added_up({**here, TRAINED: trained}, with_update(terms, update, begun_with))

    def as_one(self, terms: Terms, statistics: tuple[float, ...] | None = None) -> Terms:
        """The combination as a single value, made if there is none yet."""
        if len(terms) == 1 and terms[0][1] == 1.0 and statistics is None:
            return terms
        out = self.new_value()
        self.ops.append(CombineOp(out, terms, statistics))
        return ((out, 1.0),)

    def new_value(self) -> int:
        self.next_value += 1
        return self.next_value - 1

    def new_state(self) -> int:
        self.next_state += 1
        return self.next_state - 1


def added_up(slots: Mapping[str, Terms], terms: Mapping[str, float]) -> dict[int, float]:
    """A combination of slots in terms of values."""
    total: dict[int, float] = {}
    for slot, weight in terms.items():
        for value, inner in slots[slot]:
            total[value] = total.get(value, 0.0) + weight * inner
    return total


class BlankNotebook(Notebook):
    """Writes nothing down: for planning, where only when and how much is asked."""

    def read(self, node: int, slot: str) -> Terms:
        return ANYTHING

    def write(self, node: int, slot: str, terms: Terms) -> None:
        pass

    def forget(self, node: int, slot: str) -> None:
        pass

    def combine(self, node: int, into: str, terms: Mapping[str, float]) -> None:
        pass


ANYTHING: Terms = ((INITIAL_VALUE, 1.0),)


def mean_of(members: Iterable[Terms]) -> Terms:
    """The plain average of several combinations."""
    everyone = list(members)
    total: dict[int, float] = {}
    for terms in everyone:
        for value, weight in terms:
            total[value] = total.get(value, 0.0) + weight / len(everyone)
    return tuple(total.items())
