"""Orders the schedules of many runs into waves: the widest batches of training that the dependencies allow.

Which trainings go first is decided by how long a chain of trainings still hangs on each: one walk is one long chain,
gossip is wide and can wait. A wave takes just as many as keep the rest even until the end, so that the device is
neither starved in the last third nor flooded in the first.

No number of any model is looked at, so the whole plan of a stretch is made before its first wave runs, and goes to
the device in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate
from typing import TypeAlias

from walktalk.runtimes.simulator import (
    NO_STATE,
    NO_VALUE,
    Chunk,
    CombineOp,
    EncodeOp,
    EvaluateOp,
    MixOp,
    ScreenOp,
    Terms,
    TrainOp,
    no_garbage_collection,
)
from walktalk.runtimes.stacked.rows import ALL, Job, RowSpace, Value, jobs_of, seen_through

Shape: TypeAlias = tuple[int, bool, bool, bool]  # see `TrainOp.shape`
COMBINED_AT_ONCE = 256  # combinations in a step: more would leave the caches between reading and writing


@dataclass
class TrainStep:
    """A wave: row sources[i] trained into row outs[i], all at once."""

    sources: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    lrs: list[float] = field(default_factory=list)
    states_in: list[int] = field(default_factory=list)  # rows of the state matrix; −1 for a fresh state
    states_out: list[int] = field(default_factory=list)
    steps: int = 0  # local steps of each
    gradient: bool = False  # gradients are made, not trained models
    corrections: list[int] = field(default_factory=list)  # rows that are added to every gradient; [] for none
    anchors: list[int] = field(default_factory=list)  # rows that every step is pulled back to; [] for none
    pulls: list[float] = field(default_factory=list)  # and how strongly
    runs: list[int] = field(default_factory=list)  # whose trainings they are


@dataclass
class CombineStep:
    """outs[i] = Σ_k weights[k] · rows[sources[k]], over k from starts[i] to starts[i + 1]."""

    outs: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    statistics: list[float] = field(default_factory=list)  # the weights for statistics; [] if they are the same
    averaged: list[int] = field(default_factory=list)  # places i that are means, made as the kind of model asks for
    parts: list[int] = field(default_factory=list)  # of which numbers each term is made; [] where all are of all
    of: int = 1  # part p of so many are the numbers p, p + of, …


@dataclass
class EncodeStep:
    """Row outs[i] becomes what a codec leaves of row sources[i]."""

    codec: str
    sources: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)


@dataclass
class ScreenStep:
    """Row outs[i] becomes what a screen makes of row owns[i] and of rows others[i], all as many, by their weights."""

    rule: str
    owns: list[int] = field(default_factory=list)
    others: list[list[int]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)


@dataclass
class MixStep:
    """rows[outs] = P · rows[sources] for one run."""

    run: int
    outs: list[int]
    sources: list[int]


@dataclass
class EvaluateStep:
    """Measure one run: its aggregate as a combination of rows, and each member likewise."""

    run: int
    op: EvaluateOp
    aggregate: list[tuple[int, float]]
    members: list[list[tuple[int, float]]]
    order: int  # in the schedule: the next evaluation may be ready earlier
    states: list[int] = field(default_factory=list)  # rows of those of all nodes, −1 for a fresh one; [] without


Step: TypeAlias = TrainStep | CombineStep | ScreenStep | EncodeStep | MixStep | EvaluateStep


@dataclass(frozen=True)
class WavePolicy:
    """How wide a wave may be."""

    widest: int = 1024
    sizes: tuple[int, ...] = ()  # prefer these widths, where each new one costs (a compiled graph); () for any

    def width(self, remaining: int, longest_chain: int) -> int:
        """As many as keep the rest even: all that remains over the waves that the longest chain takes anyway."""
        even = min(self.widest, -(-remaining // longest_chain))
        return next((size for size in self.sizes if size >= even), even)


class Planner:
    """Plans stretch after stretch of the same runs; remembers in which row every living value is."""

    def __init__(self, policy: WavePolicy | None = None) -> None:
        self.policy = policy or WavePolicy()
        self.rows: dict[tuple[int, int], int] = {}  # (run, value) -> row; an optimizer state s is the value −1 − s
        self.models = RowSpace()
        self.states = RowSpace()
        self.sees_through = False  # whether combinations read multiples and parts where they lie (`views`)

    def place(self, run: int, value: int) -> int:
        """A row for a value that comes from outside: the initial model, or a checkpoint's."""
        row = self.rows[run, value] = self.space(value).take()
        return row

    def plan(self, chunks: dict[int, Chunk]) -> list[Step]:
        """The steps that carry out these stretches, one for each run."""
        with no_garbage_collection():
            return Stretch(self, chunks).steps()

    def release(self, run: int) -> None:
        """A run is over: its rows are free."""
        for number in [value for there, value in self.rows if there == run]:
            self.space(number).give_back(self.rows.pop((run, number)))

    def space(self, number: int) -> RowSpace:
        """The rows that this value is among: models, or optimizer states."""
        return self.models if number >= 0 else self.states


class Stretch:
    """One planning: operations wait for their inputs, and are taken off as they become ready."""

    def __init__(self, planner: Planner, chunks: dict[int, Chunk]) -> None:
        self.planner = planner
        self.models, self.states = planner.models, planner.states
        self.values: dict[int, dict[int, Value]] = {}  # run -> number -> value, of all that these stretches touch
        self.jobs: list[Job] = []
        before, self.of = 0, 1
        for run, chunk in chunks.items():
            if planner.sees_through:
                ops, of = seen_through(chunk.ops, chunk.live, self.of)
                chunk, self.of = replace(chunk, ops=ops), max(of, self.of)
            jobs, self.values[run] = jobs_of(run, chunk, first=before)
            self.jobs += jobs
            before += len(chunk.ops)
        self.remaining = sum(job.is_training for job in self.jobs)
        self.cheap: list[Job] = []
        # Heaps, those with the longest chain still ahead first: one for each shape, of which a wave takes only one.
        self.trainings: dict[Shape, list[tuple[int, int, Job]]] = {}
        self.unread: list[Value] = []  # made in the present step, and nobody will read them
        self.done: list[Step] = []

    def steps(self) -> list[Step]:
        self.find_rows()
        for job in self.jobs:
            job.missing = sum(value.row < 0 for value in job.inputs)
            if not job.missing:
                self.ready(job)
        while self.cheap or self.trainings:
            while self.cheap:
                level, self.cheap = self.cheap, []
                self.take_level(level)
            if self.trainings:
                self.take_wave(min(self.trainings, key=lambda shape: self.trainings[shape][0]))
        self.keep_rows()
        return self.done

    def find_rows(self) -> None:
        """Where the values are that earlier stretches left; those that nobody needs now are let go."""
        rows = self.planner.rows
        for run, number in [key for key in rows if key[0] in self.values]:
            value = self.values[run].get(number)
            if value is None:
                self.planner.space(number).give_back(rows[run, number])
            else:
                value.row = rows[run, number]
            del rows[run, number]

    def keep_rows(self) -> None:
        """Remember where the values are that later stretches may need."""
        for run, values in self.values.items():
            for number, value in values.items():
                if value.uses > 0:
                    self.planner.rows[run, number] = value.row
        if any(job.missing for job in self.jobs):
            raise AssertionError("a schedule reads a value that nothing makes")

    def ready(self, job: Job) -> None:
        if isinstance(job.op, TrainOp):
            heappush(self.trainings.setdefault(job.op.shape, []), (-job.chain, job.order, job))
        else:
            self.cheap.append(job)

    # -- taking off -------------------------------------------------------------------------------------------------

    def take_wave(self, shape: Shape) -> None:
        trainings = self.trainings[shape]
        width = self.planner.policy.width(self.remaining, -trainings[0][0])
        wave = [heappop(trainings)[2] for _ in range(min(width, len(trainings)))]
        if not trainings:
            del self.trainings[shape]
        self.remaining -= len(wave)
        ops: list[TrainOp] = [job.op for job in wave]  # type: ignore[misc]
        step = TrainStep(
            sources=[job.inputs[0].row for job in wave],
            parts=[op.part for op in ops],
            keys=[op.key for op in ops],
            lrs=[op.lr for op in ops],
            states_in=[
                job.inputs[-1].row if op.state_in != NO_STATE else -1 for job, op in zip(wave, ops, strict=True)
            ],
            steps=shape[0],
            gradient=shape[1],
            runs=[job.run for job in wave],
        )
        if shape[2] or shape[3]:
            step.corrections = self.rows_beside(wave, [op.correction for op in ops])
            step.anchors = self.rows_beside(wave, [op.anchor for op in ops])
            step.pulls = [op.pull for op in ops]
        # No row that is read is written, so that a wide wave can be done piece by piece, each while it is in the cache.
        step.outs = [self.make(job.outputs[0]) for job in wave]
        step.states_out = [self.make(job.outputs[1]) if len(job.outputs) > 1 else -1 for job in wave]
        self.emit(step)
        self.consume(wave)
        self.tell_readers(wave)

    def rows_beside(self, wave: list[Job], numbers: list[int]) -> list[int]:
        """Where the values are that a wave reads beside its models; [] where it reads none."""
        if numbers[0] == NO_VALUE:
            return []
        return [self.values[job.run][number].row for job, number in zip(wave, numbers, strict=True)]

    def take_level(self, level: list[Job]) -> None:
        """Everything but training that is ready now, all that are alike together."""
        combinations = []
        encodings: dict[str, list[Job]] = {}
        screenings: dict[tuple[str, int], list[Job]] = {}
        for job in level:
            if isinstance(job.op, CombineOp):
                combinations.append(job)
            elif isinstance(job.op, EncodeOp):
                encodings.setdefault(job.op.codec, []).append(job)
            elif isinstance(job.op, ScreenOp):
                screenings.setdefault(job.op.shape, []).append(job)
            else:
                self.take_single(job)
        for start in range(0, len(combinations), COMBINED_AT_ONCE):
            self.take_combinations(combinations[start : start + COMBINED_AT_ONCE])
        for codec, group in encodings.items():
            keys = [job.op.key for job in group]  # type: ignore[union-attr]
            rows = [job.inputs[0].row for job in group]
            self.emit(EncodeStep(codec, rows, [self.make(job.outputs[0]) for job in group], keys))
            self.consume(group)
        for group in screenings.values():
            self.take_screenings(group)
        self.consume(combinations)
        self.tell_readers(level)

    def take_combinations(self, group: list[Job]) -> None:
        """Their inputs are still to be consumed, when all of their level are done: none may be overwritten before."""
        ops: list[CombineOp] = [job.op for job in group]  # type: ignore[misc]
        step = CombineStep(
            sources=[value.row for job in group for value in job.inputs],
            weights=[weight for op in ops for _, weight in op.terms],
            starts=[0, *accumulate(len(op.terms) for op in ops[:-1])],
            outs=[self.make(job.outputs[0]) for job in group],
        )
        step.averaged = [place for place, op in enumerate(ops) if op.averaged]
        if any(op.statistics is not None for op in ops):
            step.statistics = [weight for op in ops for weight in (op.statistics or [weight for _, weight in op.terms])]
        if any(op.parts for op in ops):
            step.parts, step.of = [part for op in ops for part in (op.parts or [ALL] * len(op.terms))], self.of
        self.emit(step)

    def take_screenings(self, group: list[Job]) -> None:
        ops: list[ScreenOp] = [job.op for job in group]  # type: ignore[misc]
        rows = [self.values[job.run] for job in group]
        step = ScreenStep(
            ops[0].rule,
            owns=[here[op.own].row for here, op in zip(rows, ops, strict=True)],
            others=[[here[number].row for number, _ in op.others] for here, op in zip(rows, ops, strict=True)],
            weights=[[weight for _, weight in op.others] for op in ops],
            keys=[op.key for op in ops],
            outs=[self.make(job.outputs[0]) for job in group],
        )
        self.emit(step)
        self.consume(group)

    def take_single(self, job: Job) -> None:
        values = self.values[job.run]
        if isinstance(job.op, MixOp):
            sources = [values[number].row for number in job.op.sources]
            self.consume([job])
            self.emit(MixStep(job.run, [self.make(value) for value in job.outputs], sources))
        elif isinstance(job.op, EvaluateOp):
            aggregate, members = as_rows(values, job.op.aggregate), [as_rows(values, t) for t in job.op.members]
            states = [-1 if state == NO_STATE else values[-1 - state].row for state in job.op.states]
            self.emit(EvaluateStep(job.run, job.op, aggregate, members, job.order, states))
            self.consume([job])

    # -- rows -------------------------------------------------------------------------------------------------------

    def make(self, value: Value) -> int:
        """A row for a value that is made in this step."""
        if not value.uses:
            self.unread.append(value)
        value.row = row = (self.states if value.is_state else self.models).take()
        return row

    def emit(self, step: Step) -> None:
        self.done.append(step)
        for value in self.unread:  # not earlier: no two values of one step may share a row
            self.free(value)
        self.unread.clear()

    def free(self, value: Value) -> None:
        (self.states if value.is_state else self.models).give_back(value.row)

    def consume(self, jobs: Iterable[Job]) -> None:
        """These have read their inputs; rows that nobody else will read are free."""
        for job in jobs:
            for value in job.inputs:
                value.uses -= 1
                if not value.uses:
                    self.free(value)

    def tell_readers(self, jobs: Iterable[Job]) -> None:
        """These have made their values; whoever waited only for them is ready."""
        for job in jobs:
            for value in job.outputs:
                for reader in reversed(value.readers):
                    reader.missing -= 1
                    if not reader.missing:
                        self.ready(reader)
            job.inputs = job.outputs = ()  # values and their readers hold each other; nothing else would part them


def as_rows(values: dict[int, Value], terms: Terms) -> list[tuple[int, float]]:
    return [(values[number].row, weight) for number, weight in terms]
