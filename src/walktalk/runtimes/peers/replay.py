"""The arithmetic of a real run, done again from its trace by the stacked executor.

This is how a run on real peers gets its history: no node sees all the data, and none is disturbed by measurements. It
is also the strongest check of the real engine: the models must come out the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from walktalk.protocols import AGGREGATE, INITIAL, UPDATE
from walktalk.runtimes.peers.traces import BYTES, DETAIL, EVENT, KEY, LR, NODE, NUMBER, SLOT, TIME, WALK, Row
from walktalk.runtimes.peers.wire import FLOAT_BYTES
from walktalk.runtimes.simulator import (
    INITIAL_VALUE,
    NO_STATE,
    Chunk,
    Evaluate,
    EvaluateOp,
    Notebook,
    OptimizerState,
    Terms,
    TrainOp,
    mean_of,
)
from walktalk.runtimes.stacked import Executor, Measurement, Planner, RowTrainer


@dataclass(frozen=True)
class Replayed:
    """What came out."""

    measurements: list[Measurement]
    output: Tensor  # the model that the algorithm puts out
    members: dict[int, Tensor]  # the last model of each walk, or node


@dataclass(frozen=True)
class ReplaySetup:
    """What a trace does not say."""

    nodes: int
    initial: Tensor
    evaluate: Evaluate
    optimizer_state: OptimizerState = "visit"


def replay(trace: Iterable[Row], setup: ReplaySetup, trainer: RowTrainer) -> Replayed:
    """Do the arithmetic of a trace (of `traces.merge`, or a simulator's)."""
    reader = Reader(setup, trainer.state_width)
    for row in trace:
        reader.take(row)
    chunk = reader.finish()
    planner, executor = Planner(None), Executor(trainer, _no_mixing)
    start = planner.place(0, INITIAL_VALUE)
    _reserve(planner, executor)
    executor.models.data[start] = setup.initial.to(executor.device)
    steps = planner.plan({0: chunk})
    _reserve(planner, executor)
    measurements = executor.carry_out(steps)

    def blend(terms: Terms) -> Tensor:
        return executor.blend([(planner.rows[0, value], weight) for value, weight in terms]).cpu()

    return Replayed(measurements, blend(reader.output()), {k: blend(terms) for k, terms in reader.members.items()})


class Reader:
    """Writes a trace's arithmetic into a notebook, as the simulator does while events happen."""

    def __init__(self, setup: ReplaySetup, state_width: int) -> None:
        self.setup, self.state_width = setup, state_width
        self.notebook = Notebook()
        self.trainings: dict[int, tuple[int, int]] = {}  # number -> value before, value after
        self.messages: dict[int, Terms] = {}
        self.members: dict[int, Terms] = {}
        self.owners: dict[int, int] = {}  # member -> the node that recorded it
        self.aggregate: Terms | None = None
        self.term = 0
        self.states: dict[int, int] = {}
        self.iteration, self.time, self.sent, self.models_sent = 0, 0.0, 0, 0
        self.saved: dict[tuple[int, int], dict[str, Terms]] = {}  # checkpoints: node, number -> its slots
        self.gaps = 0  # models that were received and whose sending nobody wrote down
        self.next_at = setup.evaluate.seconds  # when the next evaluation by the clock is due
        self.due = True  # an evaluation, as soon as what belongs to this iteration is done
        for node in range(setup.nodes):
            self.notebook.write(node, INITIAL, ((INITIAL_VALUE, 1.0),))

    def take(self, row: Row) -> None:
        """One event."""
        event, node, slot = row[EVENT], row[NODE], row[SLOT]
        while self.next_at is not None and row[TIME] > self.next_at:
            self._evaluate()  # what is due already
            self.time, self.due = self.next_at, True
            self._evaluate()
            self.next_at += self.setup.evaluate.seconds or math.inf
        self.time = row[TIME]
        if event == "train":
            self._train(row)
        elif event == "trained":
            self._trained(row)
        elif event == "handed_on":
            self.notebook.write(node, UPDATE, ())
        elif event == "combine":
            self.notebook.combine(node, slot, _terms(row[DETAIL]))
        elif event == "send":
            self._send(row)
        elif event == "receive" and slot:
            self.notebook.write(node, slot, self._message(row))
        elif event == "saved":
            self.saved[node, row[NUMBER]] = dict(self.notebook.slots[node])
        elif event == "rejoined":
            self.notebook.slots[node].update(self.saved.get((node, row[NUMBER]), {}))
        elif event == "record":
            self._record(row)
        elif event == "kill":
            self._kill(node)
        elif event == "resumed":
            self._resume()

    def finish(self) -> Chunk:
        """The whole schedule."""
        self.due = True
        self._evaluate()
        live = {value for terms in (*self.members.values(), self.output()) for value, _ in terms}
        return Chunk(self.notebook.ops, sorted(live), [], [], True)

    def output(self) -> Terms:
        """The model that is measured and handed out, as `evaluate.model` says; see `Simulation.output`."""
        which = self.setup.evaluate.model
        if which == "node":
            return self.members[min(self.members)]
        if which == "aggregated" and self.aggregate is not None:
            return self.aggregate
        return mean_of(self.members.values())

    def _train(self, row: Row) -> None:
        notebook = self.notebook
        before = notebook.as_one(notebook.read(row[NODE], row[SLOT]))[0][0]
        after = notebook.new_value()
        self.trainings[row[NUMBER]] = (before, after)
        state_in, state_out = self._use_state(row[NODE], row[WALK])
        notebook.ops.append(TrainOp(after, before, row[NODE], int(row[KEY]), float(row[LR]), state_in, state_out))

    def _use_state(self, node: int, walk: int) -> tuple[int, int]:
        if self.setup.optimizer_state == "visit" or self.state_width == 0:
            return NO_STATE, NO_STATE
        owner = -1 - walk if self.setup.optimizer_state == "walk" and walk >= 0 else node
        before = self.states.get(owner, NO_STATE)
        self.states[owner] = after = self.notebook.new_state()
        return before, after

    def _trained(self, row: Row) -> None:
        self._evaluate()
        self.iteration += 1
        before, after = self.trainings.pop(row[NUMBER])
        self.notebook.write(row[NODE], UPDATE, ((after, 1.0), (before, -1.0)))
        every = self.setup.evaluate.every
        self.due = every is not None and self.iteration % every == 0

    def _message(self, row: Row) -> Terms:
        """The model that came; where the sender died before it wrote that down, the last that is known of the walk."""
        if row[NUMBER] in self.messages:
            return self.messages.pop(row[NUMBER])
        self.gaps += 1
        return self.members.get(row[WALK], ((INITIAL_VALUE, 1.0),))

    def _send(self, row: Row) -> None:
        self.sent += int(row[BYTES])
        if row[SLOT]:
            travels = self.state_width if self.setup.optimizer_state == "walk" and row[WALK] > 0 else 0
            self.models_sent += FLOAT_BYTES * (self.setup.initial.numel() + travels)
            self.messages[row[NUMBER]] = self.notebook.read(row[NODE], row[SLOT])

    def _record(self, row: Row) -> None:
        terms = self.notebook.read(row[NODE], row[SLOT])
        if row[DETAIL] == AGGREGATE:
            if row[WALK] >= self.term:  # of two that aggregate at the same time, the higher term counts
                self.aggregate, self.term = terms, row[WALK]
        else:
            self.members[row[WALK]], self.owners[row[WALK]] = terms, row[NODE]

    def _resume(self) -> None:
        """Everybody begins again from the model that the run had put out; terms start again too."""
        output = self.output()
        for node in range(self.setup.nodes):
            self.notebook.write(node, INITIAL, output)
        self.term = 0

    def _kill(self, node: int) -> None:
        """What a dead node held is out of the mean, as in the simulator; somebody must be left."""
        gone = [key for key, owner in self.owners.items() if owner == node and key in self.members]
        for key in gone if len(gone) < len(self.members) else gone[1:]:
            del self.members[key]

    def _evaluate(self) -> None:
        if not self.due or not self.members:
            return
        self.due = False
        members = tuple(self.members[key] for key in sorted(self.members))
        bits, model_bits = 8.0 * self.sent, 8.0 * self.models_sent
        each = self.setup.evaluate.members
        self.notebook.ops.append(
            EvaluateOp(self.iteration, self.time, bits, model_bits, self.output(), members, each=each)
        )


def _terms(detail: str | dict[str, float]) -> dict[str, float]:
    return detail if isinstance(detail, dict) else json.loads(detail)


def _reserve(planner: Planner, executor: Executor) -> None:
    executor.models.reserve(planner.models.size)
    executor.states.reserve(planner.states.size)


def _no_mixing(run: int) -> Tensor:
    raise ValueError("no real network mixes everybody at once")
