"""When things happen in virtual time, and the arithmetic that they call for, written down to be done later.

Every model that ever exists is a *value* with a number, written once (static single assignment). A slot is a name for
a linear combination of values, so copying, sending and keeping a model cost nothing, and what depends on what is plain
to see: the stacked executor does in one wave whatever the dependencies allow, in this run and in all others.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from walktalk.protocols import Message
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Contents, Encoded, Packed, Work, is_mean

Terms: TypeAlias = tuple[tuple[int, float], ...]  # a linear combination of values: (value, weight) pairs

INITIAL_VALUE = 0  # the value that every run starts from, x_0
NO_STATE = -1  # "no optimizer state": start from a fresh one, or throw it away
NO_VALUE = -1


class TrainOp(NamedTuple):
    """Train one value on one node's data."""

    out: int  # the value that is made
    source: int  # the value to start from
    part: int  # whose data
    key: int  # decides the batches, and nothing else does
    lr: float  # learning rate
    state_in: int  # optimizer state to start from, or NO_STATE
    state_out: int  # optimizer state that is left, or NO_STATE
    steps: int = 0  # local steps, or batches of a gradient
    gradient: bool = False  # a gradient is made, not a trained model
    correction: int = NO_VALUE  # the value that is added to every gradient
    anchor: int = NO_VALUE  # the value that every step is pulled back to
    pull: float = 0.0

    @property
    def shape(self) -> tuple[int, bool, bool, bool]:
        """What trainings must have in common to be done at once: steps, gradient, correction, anchor."""
        return self.steps, self.gradient, self.correction != NO_VALUE, self.anchor != NO_VALUE


class CombineOp(NamedTuple):
    """Make a value as a linear combination."""

    out: int
    terms: Terms
    statistics: tuple[float, ...] | None = None  # the weights of the same values for statistics, where they are others
    averaged: bool = False  # a mean, to be made as this kind of model asks for
    parts: tuple[int, ...] = ()  # of which numbers each term is made (`stacked/rows.py`); () where it is of all


class EncodeOp(NamedTuple):
    """Make the value that the receiver of an encoded message sees."""

    out: int
    source: int
    codec: str
    key: int  # decides the random numbers in it


class ScreenOp(NamedTuple):
    """Make the value that a screen makes of one that is trusted and others."""

    out: int
    own: int
    others: Terms
    rule: str
    key: int  # decides the random numbers in it

    @property
    def shape(self) -> tuple[str, int]:
        """What screenings must have in common to be done at once."""
        return self.rule, len(self.others)


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
    epsilon: float | None = None  # what the node that has released most has spent; None: nothing is private
    states: tuple[int, ...] = ()  # of all nodes, where parts of models are private: each is measured with its own


Op: TypeAlias = TrainOp | CombineOp | ScreenOp | EncodeOp | MixOp | EvaluateOp


@dataclass
class Chunk:
    """A stretch of a run's schedule, in an order that respects every dependency."""

    ops: list[Op]
    live: list[int]  # values that may be used after it
    live_states: list[int]  # optimizer states that may be used after it
    trace: list[TraceRow]  # what happened, event by event
    finished: bool  # whether the run ends with it


class ScheduleRecorder(Contents[Terms]):
    """Writes a run's schedule: the contents of slots are combinations of values."""

    def __init__(self, statistics: bool = True, averages: bool = False) -> None:
        self.ops: list[Op] = []
        self.next_value = INITIAL_VALUE + 1
        self.next_state = 0
        self.statistics = statistics  # whether models carry any
        self.averages = averages  # whether a mean of models is more than a sum of their numbers

    def combined(
        self, here: Mapping[str, Terms], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Terms:
        """Writes down a combination of values; what it makes."""
        averaged = self.averages and is_mean(terms)
        if averaged:  # of values that are there: what is left to be added up is no model
            here = {slot: ((self._added_up(here[slot]), 1.0),) for slot in (*terms, *(statistics or ()))}
        total: dict[int, float] = {}
        for slot, weight in terms.items():
            for value, inner in here[slot]:
                total[value] = total.get(value, 0.0) + weight * inner
        other = self._statistics(here, terms if statistics is None else statistics) if self.statistics else total
        if other == total:
            kept_terms = tuple((value, weight) for value, weight in total.items() if weight != 0.0)
            return self.as_one(kept_terms, averaged=averaged)
        both = {value: (total.get(value, 0.0), other.get(value, 0.0)) for value in (*total, *other)}
        kept = [(value, *weights) for value, weights in both.items() if any(weights)]
        values, weights = tuple((value, weight) for value, weight, _ in kept), tuple(weight for _, _, weight in kept)
        return self.as_one(values, None if weights == tuple(weight for _, weight in values) else weights, averaged)

    def _statistics(self, here: Mapping[str, Terms], terms: Mapping[str, float]) -> dict[int, float]:
        """The combination for statistics, in which an update is the trained model itself."""
        total: dict[int, float] = {}
        for slot, weight in terms.items():
            for value, inner in here[slot]:
                if inner > 0.0:
                    total[value] = total.get(value, 0.0) + weight * inner
        return total

    def screened(self, own: Terms, others: Sequence[tuple[Terms, float]], rule: str, key: int) -> Terms:
        """Writes down that a rule looks at a value and others; what it makes."""
        trusted = self._added_up(own)
        mixed = tuple((self._added_up(content), weight) for content, weight in others)
        out = self.new_value()
        self.ops.append(ScreenOp(out, trusted, mixed, rule, key))
        return ((out, 1.0),)

    def update(self, start: Terms, trained: Terms) -> Terms:
        """Trained minus start, not added up yet."""
        return (trained[0], (start[0][0], -1.0))

    def encoded(self, content: Terms, codec: str, key: int) -> Encoded[Terms]:
        """A new value, what the receiver sees."""
        out = self.new_value()
        self.ops.append(EncodeOp(out, self._added_up(content), codec, key))
        return Encoded(codec, ((out, 1.0),))

    def _added_up(self, content: Terms) -> int:
        """The number of a content's value. An update is trained minus start; its statistics are the trained ones."""
        statistics = None
        if self.statistics and any(weight < 0.0 for _, weight in content):
            statistics = tuple(max(weight, 0.0) for _, weight in content)
        return self.as_one(content, statistics)[0][0]

    def mean(self, contents: Iterable[Terms]) -> Terms:
        """The plain average, not added up."""
        return mean_of(contents)

    def trained(self, work: Work, part: int, state_in: int, state_out: int) -> Terms:
        """Write down a training: the value that it makes."""
        start = self.as_one(work.start)[0][0]
        out = self.new_value()
        op = TrainOp(out, start, part, work.key, work.lr * work.rate, state_in, state_out, work.steps)
        if not work.is_plain:
            correction, anchor = (
                NO_VALUE if each is None else self.as_one(each)[0][0] for each in (work.correction, work.anchor)
            )
            op = op._replace(gradient=work.gradient, correction=correction, anchor=anchor, pull=work.pull)
        self.ops.append(op)
        return ((out, 1.0),)

    def as_one(self, terms: Terms, statistics: tuple[float, ...] | None = None, averaged: bool = False) -> Terms:
        """The combination as a single value, made if there is none yet."""
        if len(terms) == 1 and terms[0][1] == 1.0 and statistics is None:
            return terms
        out = self.new_value()
        self.ops.append(CombineOp(out, terms, statistics, averaged))
        return ((out, 1.0),)

    def new_value(self) -> int:
        """The number of a value that is about to be made."""
        self.next_value += 1
        return self.next_value - 1

    def new_state(self) -> int:
        """The number of an optimizer state that is about to be made."""
        self.next_state += 1
        return self.next_state - 1


class Unwritten(Contents[Terms]):
    """Nothing is written down: for planning, where only when and how much is asked."""

    def combined(
        self, here: Mapping[str, Terms], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Terms:
        return ANYTHING

    def screened(self, own: Terms, others: Sequence[tuple[Terms, float]], rule: str, key: int) -> Terms:
        return ANYTHING

    def update(self, start: Terms, trained: Terms) -> Terms:
        return ANYTHING

    def encoded(self, content: Terms, codec: str, key: int) -> Encoded[Terms]:
        return Encoded(codec, ANYTHING)

    def mean(self, contents: Iterable[Terms]) -> Terms:
        return ANYTHING


ANYTHING: Terms = ((INITIAL_VALUE, 1.0),)


def mean_of(members: Iterable[Terms]) -> Terms:
    """The plain average of several combinations."""
    everyone = list(members)
    total: dict[int, float] = {}
    for terms in everyone:
        for value, weight in terms:
            total[value] = total.get(value, 0.0) + weight / len(everyone)
    return tuple(total.items())


# What takes time in a run: a training, and a message on its way.


class Training(NamedTuple):
    """A training under way."""

    node: int
    slot: str
    walk: int
    number: int  # counts the trainings of the run in the order they start
    steps: int  # that were asked for; 0: as many as the study says
    work: Work | None  # what it begins with; None where nothing is written down
    result: Terms  # the value it makes


class Envelope(NamedTuple):
    """A message under way."""

    sender: int
    to: int
    message: Message
    packed: Packed  # what goes along
    number: int  # counts the messages of the run in the order they are sent


# -- What will happen, in order of virtual time -----------------------------------------------------------------------
# A heap of (time, sequence, …): events at the same time come out in the order in which they were put in, so a tie never
# depends on luck. What is due at once skips the heap.

INFINITY = float("inf")
TRAINED, ARRIVED, TIMER, TRANSFERRED, EVALUATION, ROUND_TRIP, FAULT = range(7)  # kinds of things to come

# One thing to come: when; a sequence number that breaks ties, first in, first out; what kind of thing; and whatever
# that kind needs. A plain tuple: millions are made, and compared by the heap.
Entry: TypeAlias = tuple[float, int, int, Any]


class Agenda:
    """The future of one simulation."""

    __slots__ = ("_at_once", "_heap", "_sequence", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[Entry] = []
        self._at_once: deque[Entry] = deque()
        self._sequence = 0

    def put(self, delay: float, kind: int, content: Any) -> None:
        """Something happens `delay` from now."""
        self._sequence += 1
        if delay <= 0.0:
            self._at_once.append((self.now, self._sequence, kind, content))
        else:
            heappush(self._heap, (self.now + delay, self._sequence, kind, content))

    def put_at(self, time: float, kind: int, content: Any) -> None:
        """Something happens at a time."""
        self.put(time - self.now, kind, content)

    def next_time(self) -> float:
        """When the next thing happens; infinity when nothing will."""
        if self._at_once:
            return self.now
        return self._heap[0][0] if self._heap else INFINITY

    def take(self, until: float = INFINITY) -> Entry | None:
        """The next thing, with the clock set to its time; None if nothing is to come, or nothing by `until`."""
        heap, at_once = self._heap, self._at_once
        # What is due at once was put in now, so it comes before everything later, and after what the heap holds for
        # this same instant only if that was put in earlier.
        if at_once and not (heap and heap[0][0] <= self.now and heap[0][1] < at_once[0][1]):
            return at_once.popleft() if self.now <= until else None
        if not heap or heap[0][0] > until or heap[0][0] == INFINITY:
            return None
        entry = heappop(heap)
        self.now = entry[0]
        return entry

    def still_to_go(self, kind: int) -> float:
        """Seconds until everything of a kind that is under way will be over, added up."""
        return sum(entry[0] - self.now for entry in self._heap if entry[2] == kind)

    def __len__(self) -> int:
        return len(self._heap) + len(self._at_once)


# Python's search for cyclic garbage, and when to do without it.


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Events and effects make no cycles, and looking for some among millions of small tuples takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
