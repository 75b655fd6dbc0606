"""Orders the schedules of many runs into waves: the widest batches of training that the dependencies allow.

Which trainings go first is decided by how long a chain of trainings still hangs on each: one walk is one long chain,
gossip is wide and can wait. A wave takes just as many as keep the rest even until the end, so that the device is
neither starved in the last third nor flooded in the first.

No number of any model is looked at, so the whole plan of a stretch is made before its first wave runs, and goes to
the device in one piece.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from walktalk.runtimes.simulator import NO_STATE, Chunk, CombineOp, EvaluateOp, MixOp, Op, Terms, TrainOp
from walktalk.runtimes.stacked.rows import RowSpace

Value: TypeAlias = tuple[int, int]  # (run, value); an optimizer state s is the value −1 − s


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


@dataclass
class CombineStep:
    """outs[i] = Σ_k weights[i][k] · rows[sources[i][k]], all with the same number of terms."""

    outs: list[int] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)


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


Step: TypeAlias = TrainStep | CombineStep | MixStep | EvaluateStep


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
        self.rows: dict[Value, int] = {}
        self.models = RowSpace()
        self.states = RowSpace()

    def place(self, run: int, value: int) -> int:
        """A row for a value that comes from outside: the initial model, or a checkpoint's."""
        space = self.models if value >= 0 else self.states
        row = self.rows[run, value] = space.take()
        return row

    def plan(self, chunks: dict[int, Chunk]) -> list[Step]:
        """The steps that carry out these stretches, one for each run."""
        return Stretch(self, chunks).steps()

    def release(self, run: int) -> None:
        """A run is over: its rows are free."""
        for run_value in [rv for rv in self.rows if rv[0] == run]:
            self.free(run_value)

    def free(self, run_value: Value) -> None:
        space = self.models if run_value[1] >= 0 else self.states
        space.give_back(self.rows.pop(run_value))


def inputs_of(op: Op) -> list[int]:
    """The values that an operation reads, each once."""
    if isinstance(op, TrainOp):
        return [op.source] if op.state_in == NO_STATE else [op.source, -1 - op.state_in]
    if isinstance(op, CombineOp):
        return [value for value, _ in op.terms]
    if isinstance(op, MixOp):
        return list(dict.fromkeys(op.sources))
    return list(dict.fromkeys(value for terms in (op.aggregate, *op.members) for value, _ in terms))


def outputs_of(op: Op) -> list[int]:
    """The values that an operation makes."""
    if isinstance(op, TrainOp):
        return [op.out] if op.state_out == NO_STATE else [op.out, -1 - op.state_out]
    if isinstance(op, CombineOp):
        return [op.out]
    return list(op.outs) if isinstance(op, MixOp) else []


def needed_ops(chunk: Chunk) -> list[Op]:
    """The operations that an evaluation or a later stretch depends on; the others need not be done at all."""
    needed = {*chunk.live, *(-1 - state for state in chunk.live_states)}
    kept: list[Op] = []
    for op in reversed(chunk.ops):
        if isinstance(op, EvaluateOp) or not needed.isdisjoint(outputs_of(op)):
            kept.append(op)
            needed.update(inputs_of(op))
    kept.reverse()
    return kept


class Stretch:
    """One planning: operations as nodes of a graph, taken off as they become ready."""

    def __init__(self, planner: Planner, chunks: dict[int, Chunk]) -> None:
        self.planner = planner
        self.rows = planner.rows
        self.ops: list[tuple[int, Op]] = [(run, op) for run, chunk in chunks.items() for op in needed_ops(chunk)]
        self.runs = set(chunks)
        self.unread: list[Value] = []  # made in the present step, and nobody will read them
        self.inputs = [[(run, value) for value in inputs_of(op)] for run, op in self.ops]
        self.readers: dict[Value, list[int]] = {}
        self.uses: dict[Value, int] = {}  # reads still to come, plus one for what lives on afterwards
        for index, inputs in enumerate(self.inputs):
            for value in inputs:
                self.readers.setdefault(value, []).append(index)
        for value, readers in self.readers.items():
            self.uses[value] = len(readers)
        for run, chunk in chunks.items():
            for alive in (*chunk.live, *(-1 - state for state in chunk.live_states)):
                self.uses[run, alive] = self.uses.get((run, alive), 0) + 1
        self.missing = [sum(value not in self.rows for value in inputs) for inputs in self.inputs]
        self.chain = self.chains()
        self.remaining = sum(isinstance(op, TrainOp) for _, op in self.ops)
        self.cheap: deque[int] = deque()
        self.trainings: list[tuple[int, int]] = []
        self.done: list[Step] = []

    def chains(self) -> list[int]:
        """For every operation: how many trainings the longest chain that starts with it has."""
        chain = [0] * len(self.ops)
        for index in range(len(self.ops) - 1, -1, -1):
            run, op = self.ops[index]
            longest = 0
            for value in outputs_of(op):
                for reader in self.readers.get((run, value), ()):
                    longest = max(longest, chain[reader])
            chain[index] = longest + isinstance(op, TrainOp)
        return chain

    def steps(self) -> list[Step]:
        for value in [v for v in self.rows if v[0] in self.runs and not self.uses.get(v)]:
            self.planner.free(value)
        for index, missing in enumerate(self.missing):
            if missing == 0:
                self.ready(index)
        while self.cheap or self.trainings:
            while self.cheap:
                level = list(self.cheap)
                self.cheap.clear()
                self.take_level(level)
            if self.trainings:
                self.take_wave()
        if any(self.missing):
            raise AssertionError("a schedule reads a value that nothing makes")
        return self.done

    def ready(self, index: int) -> None:
        if isinstance(self.ops[index][1], TrainOp):
            heapq.heappush(self.trainings, (-self.chain[index], index))
        else:
            self.cheap.append(index)

    def take_wave(self) -> None:
        width = self.planner.policy.width(self.remaining, -self.trainings[0][0])
        wave = [heapq.heappop(self.trainings)[1] for _ in range(min(width, len(self.trainings)))]
        self.remaining -= len(wave)
        step = TrainStep()
        for index in wave:
            run, op = self.ops[index]
            assert isinstance(op, TrainOp)
            step.sources.append(self.rows[run, op.source])
            step.states_in.append(-1 if op.state_in == NO_STATE else self.rows[run, -1 - op.state_in])
            step.parts.append(op.part)
            step.keys.append(op.key)
            step.lrs.append(op.lr)
        self.consume(wave)
        for index in wave:
            run, op = self.ops[index]
            assert isinstance(op, TrainOp)
            step.outs.append(self.make(run, op.out))
            step.states_out.append(-1 if op.state_out == NO_STATE else self.make(run, -1 - op.state_out))
        self.emit(step)
        self.tell_readers(wave)

    def take_level(self, level: list[int]) -> None:
        """Everything but training that is ready now, combinations of equal length together."""
        by_length: dict[int, list[int]] = {}
        for index in level:
            op = self.ops[index][1]
            if isinstance(op, CombineOp):
                by_length.setdefault(len(op.terms), []).append(index)
            else:
                self.take_single(index)
        for group in by_length.values():
            self.take_combinations(group)
        self.tell_readers(level)

    def take_combinations(self, group: list[int]) -> None:
        step = CombineStep()
        for index in group:
            run, op = self.ops[index]
            assert isinstance(op, CombineOp)
            step.sources.append([self.rows[run, value] for value, _ in op.terms])
            step.weights.append([weight for _, weight in op.terms])
        self.consume(group)
        for index in group:
            run, op = self.ops[index]
            assert isinstance(op, CombineOp)
            step.outs.append(self.make(run, op.out))
        self.emit(step)

    def take_single(self, index: int) -> None:
        run, op = self.ops[index]
        if isinstance(op, MixOp):
            sources = [self.rows[run, value] for value in op.sources]
            self.consume([index])
            self.emit(MixStep(run, [self.make(run, value) for value in op.outs], sources))
        elif isinstance(op, EvaluateOp):
            aggregate = self.as_rows(run, op.aggregate)
            self.emit(EvaluateStep(run, op, aggregate, [self.as_rows(run, terms) for terms in op.members]))
            self.consume([index])

    def as_rows(self, run: int, terms: Terms) -> list[tuple[int, float]]:
        return [(self.rows[run, value], weight) for value, weight in terms]

    def make(self, run: int, value: int) -> int:
        """A row for a value that is made in this step."""
        if not self.uses.get((run, value)):
            self.unread.append((run, value))
        return self.planner.place(run, value)

    def emit(self, step: Step) -> None:
        self.done.append(step)
        for value in self.unread:  # not earlier: no two values of one step may share a row
            self.planner.free(value)
        self.unread.clear()

    def consume(self, indices: list[int]) -> None:
        """These operations have read their inputs; rows that nobody else will read are free."""
        for index in indices:
            for value in self.inputs[index]:
                self.uses[value] -= 1
                if self.uses[value] == 0:
                    self.planner.free(value)

    def tell_readers(self, indices: list[int]) -> None:
        """These operations have made their values; whoever waited only for them is ready."""
        for index in indices:
            run, op = self.ops[index]
            for value in outputs_of(op):
                for reader in self.readers.get((run, value), ()):
                    self.missing[reader] -= 1
                    if self.missing[reader] == 0:
                        self.ready(reader)
