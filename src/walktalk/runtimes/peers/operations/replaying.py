"""The arithmetic of a real run, done again from its trace by the stacked executor.

This is how a run on real peers gets its history: no node sees all the data, and none is disturbed by measurements. It
is also the strongest check of the real engine: the models must come out the same.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeAlias

from torch import Tensor

from walktalk.protocols import INITIAL, Arrival
from walktalk.records import TraceRow
from walktalk.runtimes.peers.node.event_log import parts_in, read_lines
from walktalk.runtimes.semantics import (
    FLOAT_BYTES,
    Evaluate,
    Interpreter,
    OptimizerState,
    Player,
    Releases,
    Scale,
    Watcher,
    Work,
)
from walktalk.runtimes.simulator import INITIAL_VALUE, NO_STATE, Chunk, EvaluateOp, RunSetup, ScheduleRecorder, Terms
from walktalk.runtimes.stacked import Executor, Measurement, Planner, RowTrainer, averaging_of, parameters_of, steps_of
from walktalk.transforms.rules import Privacy


@dataclass(frozen=True)
class ReplayResult:
    """What came out of a replay."""

    measurements: list[Measurement]
    output: Tensor  # the model that the algorithm puts out
    members: dict[int, Tensor]  # the last model of each walk, or node
    gaps: int = 0  # models that were received and whose sending nobody wrote down


@dataclass(frozen=True)
class ReplaySetup:
    """What a trace does not say, and a replay must know."""

    nodes: int
    initial: Tensor
    evaluate: Evaluate
    optimizer_state: OptimizerState = "visit"
    messages: Mapping[str, Arrival] = field(default_factory=dict)  # the protocol's: for the bytes of what is encoded
    privacy: Privacy | None = None  # the protocol's

    @staticmethod
    def of(run: RunSetup, initial: Tensor, evaluate: Evaluate) -> ReplaySetup:
        """The setup for a run on real peers, which its specification describes as a simulation's."""
        messages, privacy = run.protocol.resilient_form().messages, run.protocol.privacy
        return ReplaySetup(run.graph.nodes, initial, evaluate, run.optimizer_state, messages, privacy)


def replay(trace: Iterable[TraceRow], setup: ReplaySetup, trainer: RowTrainer) -> ReplayResult:
    """Do the arithmetic of a trace (of `merge`, or a simulator's)."""
    reader = Reader(setup, trainer)
    reader.player.play(trace)
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

    members = {key: blend(terms) for key, terms in reader.interpreter.output.members.items()}
    return ReplayResult(measurements, blend(reader.output()), members, reader.player.gaps)


class Reader(Watcher[Terms]):
    """Records a trace's arithmetic as a schedule, and measures where a simulation would."""

    def __init__(self, setup: ReplaySetup, trainer: RowTrainer) -> None:
        self.setup = setup
        self.private = getattr(trainer, "private", None) is not None
        beside = trainer.width - parameters_of(trainer)
        self.notebook = ScheduleRecorder(beside > 0, averaging_of(trainer) is not None)
        sizes = (FLOAT_BYTES * setup.initial.numel(), FLOAT_BYTES * trainer.state_width)
        steps = steps_of(trainer)
        scale = Scale(*sizes, trainer.local_steps, setup.optimizer_state, beside > 0, FLOAT_BYTES * beside, steps)
        self.interpreter = Interpreter(self.notebook, setup.messages, scale, releases=Releases(setup.privacy))
        self.player = Player(self.interpreter, self, setup.nodes, ((INITIAL_VALUE, 1.0),))
        self.time = 0.0
        self.next_at = setup.evaluate.seconds  # when the next evaluation by the clock is due
        self.due = True  # an evaluation, as soon as what belongs to this iteration is done

    def trained(self, work: Work) -> Terms:
        """Record a training in the schedule."""
        interpreter, state_out = self.interpreter, NO_STATE
        if interpreter.keeps_states:
            owner = interpreter.state_owner(work.node, work.slot)
            interpreter.states[owner] = state_out = self.notebook.new_state()
        return self.notebook.trained(work, work.node, NO_STATE if work.state is None else work.state, state_out)

    def before(self, row: TraceRow) -> None:
        """Measure what is due before this."""
        while self.next_at is not None and row.time > self.next_at:
            self._evaluate()  # what is due already
            self.time, self.due = self.next_at, True
            self._evaluate()
            self.next_at += self.setup.evaluate.seconds or math.inf
        self.time = row.time
        if row.event == "trained":
            self._evaluate()

    def after(self, row: TraceRow) -> None:
        """An iteration may be one to measure; a run that goes on begins everywhere with what it had put out."""
        if row.event == "trained":
            every = self.setup.evaluate.every
            self.due = every is not None and self.interpreter.iteration % every == 0
        elif row.event == "resumed":
            output = self.output()
            for slots in self.interpreter.slots.values():
                slots[INITIAL] = output
            self.interpreter.output.aggregate_term = 0  # terms start again, too

    def finish(self) -> Chunk:
        """End the schedule with a last measurement, and return it."""
        self.due = True
        self._evaluate()
        live = {value for terms in (*self.interpreter.output.members.values(), self.output()) for value, _ in terms}
        return Chunk(self.notebook.ops, sorted(live), [], [], True)

    def output(self) -> Terms:
        """The model that is measured and handed out, as `evaluate.model` says."""
        return self.interpreter.output.model(self.setup.evaluate.model)

    def _states(self) -> tuple[int, ...]:
        """The state of every node, in which its private part is; () where nothing is private."""
        if not self.private:
            return ()
        return tuple(self.interpreter.states.get((node, ""), NO_STATE) for node in range(self.setup.nodes))

    def _evaluate(self) -> None:
        interpreter, traffic, output = self.interpreter, self.interpreter.traffic, self.interpreter.output
        if not self.due or not output.members:
            return
        self.due = False
        self.notebook.ops.append(
            EvaluateOp(
                interpreter.iteration,
                self.time,
                8.0 * traffic.bytes,
                8.0 * traffic.payload_bytes,
                self.output(),
                tuple(output.in_order()),
                each=self.setup.evaluate.members,
                epsilon=interpreter.releases.epsilon,
                states=self._states(),
            )
        )


def _reserve(planner: Planner, executor: Executor) -> None:
    executor.models.reserve(planner.models.size)
    executor.states.reserve(planner.states.size)


def _no_mixing(run: int) -> Tensor:
    raise ValueError("no real network mixes everybody at once")


# -- One trace of a whole run, from the event logs of its nodes -------------------------------------------------------
# Events are put in the order of their times, but a message is never received before it was sent, whatever the clocks of
# two machines say. Messages, trainings and iterations get the numbers that the simulator would have given them, so that
# whoever reads a simulated trace reads this one too.
#
# Clocks that were wrong are found by what cannot be: a message that came before it was sent. A node's times are
# seconds of its machine's clock when it began, and count on from there, so one life of a node is wrong by one number.
# Between two lives that wrote to each other the shortest message each way bounds the difference of their clocks, as in
# NTP; half the difference of the two is the best guess. A life that is at odds with most of those that it had to do
# with is corrected by the middle of what these say; one clock after the other, the worst first. Clocks that agree to
# within `ALLOWED` are left as they are.

ALLOWED = 1.0  # seconds: machines that ask for the time are that good

Shortest: TypeAlias = dict[tuple[int, int], float]  # from which life to which: seconds of the shortest message


def correct_clocks(event_logs: Sequence[list[TraceRow]]) -> list[list[TraceRow]]:
    """Correct event logs of nodes whose clocks were wrong; the others are not touched."""
    lives = [(owner, life) for owner, event_log in enumerate(event_logs) for life in _lives(event_log)]
    errors = clock_errors(_shortest([rows for _, rows in lives]), len(lives))
    if not any(errors):
        return list(event_logs)
    right: list[list[TraceRow]] = [[] for _ in event_logs]
    for (owner, rows), error in zip(lives, errors, strict=True):
        right[owner] += [row._replace(time=row.time - error) for row in rows] if error else rows
    return right


def clock_errors(shortest: Shortest, lives: int) -> list[float]:
    """Find by how many seconds the clock of each life was ahead."""
    errors = [0.0] * lives
    partners: dict[int, set[int]] = {}
    for here, there in shortest:
        partners.setdefault(here, set()).add(there)
        partners.setdefault(there, set()).add(here)
    for _ in range(lives):
        worst, error = _worst(shortest, partners, errors)
        if worst < 0:
            break
        errors[worst] += error
    return errors


def _worst(shortest: Shortest, partners: dict[int, set[int]], errors: list[float]) -> tuple[int, float]:
    """The life that is at odds with the largest part of the others, if with most; and by how much it is ahead."""
    found, most = (-1, 0.0), 0.5
    for life, others in partners.items():
        ahead = [_ahead(shortest, errors, life, other) for other in others]
        odd = [seconds for seconds in ahead if seconds]
        if len(odd) > most * len(others):
            found, most = (life, median(odd)), len(odd) / len(others)
    return found


def _ahead(shortest: Shortest, errors: list[float], life: int, other: int) -> float:
    """How far one clock is ahead of another, in the middle of what is possible; 0 where that may be nothing."""
    there = shortest[life, other] + errors[life] - errors[other] if (life, other) in shortest else None
    back = shortest[other, life] + errors[other] - errors[life] if (other, life) in shortest else None
    if min(0.0 if there is None else there, 0.0 if back is None else back) >= -ALLOWED:
        return 0.0
    if there is None or back is None:
        return -there if there is not None else back if back is not None else 0.0
    return (back - there) / 2


def _lives(event_log: list[TraceRow]) -> list[list[TraceRow]]:
    """Cut where a life ends: between messages that were sent in different ones, at the largest jump of the clock."""
    cuts, last = [], -1
    for at, row in enumerate(event_log):
        if row.event != "send":
            continue
        if last >= 0 and event_log[last].key != row.key:
            cuts.append(max(range(last + 1, at + 1), key=lambda n: abs(event_log[n].time - event_log[n - 1].time)))
        last = at
    return [event_log[a:b] for a, b in pairwise((0, *cuts, len(event_log))) if a < b]


def _shortest(lives: list[list[TraceRow]]) -> Shortest:
    sent = {
        (row.node, row.peer, row.key, row.number, bool(row.slot)): (life, row.time)
        for life, rows in enumerate(lives)
        for row in rows
        if row.event == "send"
    }
    shortest: Shortest = {}
    for life, rows in enumerate(lives):
        for row in rows:
            if row.event != "receive":
                continue
            sender, when = sent.get((row.peer, row.node, row.key, row.number, bool(row.slot)), (life, row.time))
            if sender != life:
                pair = (sender, life)
                shortest[pair] = min(shortest.get(pair, row.time - when), row.time - when)
    return shortest


# -- one trace --------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

MessageName: TypeAlias = tuple[int, int, int, int, bool]


def read_event_log(folder: Path) -> list[TraceRow]:
    """Read all that a node wrote down, over all its lives, in order."""
    return [row for life in read_lives(folder) for row in life]


def read_lives(folder: Path) -> list[list[TraceRow]]:
    """Read all that a node wrote down, life by life."""
    while True:
        try:
            return [read_lines(parts) for parts in parts_in(folder).values()]
        except FileNotFoundError:  # the node has compressed a part meanwhile: it has another name now
            continue


def merge(event_logs: Iterable[list[TraceRow]]) -> list[TraceRow]:
    """Merge event logs into one trace, with times from 0; clocks that were wrong are corrected first."""
    ordered = list(_causal(correct_clocks([event_log for event_log in event_logs if event_log])))
    return list(_renumbered(ordered))


def _causal(event_logs: list[list[TraceRow]]) -> Iterator[TraceRow]:
    """Order events by time, but a `receive` waits for its `send`, if anybody wrote that down.

    Where all that is left waits for each other, which no true order of events does, the earliest goes on by itself and
    a warning says so: nothing that was written down is left out.
    """
    sent = {_message(row) for event_log in event_logs for row in event_log if row.event == "send"}
    seen: set[MessageName] = set()
    waiting: dict[MessageName, int] = {}  # message -> the event log that waits for it
    position = [0] * len(event_logs)
    ready = [(event_log[0].time, index) for index, event_log in enumerate(event_logs)]
    heapq.heapify(ready)
    forced = 0
    while ready or waiting:
        if not ready:
            stuck = min(waiting, key=lambda one: event_logs[waiting[one]][position[waiting[one]]].time)
            ready.append((0.0, waiting.pop(stuck)))
            seen.add(stuck)
            forced += 1
        _, index = heapq.heappop(ready)
        row = event_logs[index][position[index]]
        message = _message(row)
        if row.event == "receive" and message in sent and message not in seen:
            waiting[message] = index
            continue
        yield row
        position[index] += 1
        if row.event == "send":
            seen.add(message)
            if message in waiting:
                freed = waiting.pop(message)
                heapq.heappush(ready, (row.time, freed))
        if position[index] < len(event_logs[index]):
            heapq.heappush(ready, (event_logs[index][position[index]].time, index))
    if forced:
        log.warning("%d messages were received before they were sent, by what the nodes wrote down", forced)


def _message(row: TraceRow) -> MessageName:
    """What tells a message from all others: sender, receiver, the sender's life, its number, and its channel."""
    outgoing = row.event != "receive"
    sender, receiver = (row.node, row.peer) if outgoing else (row.peer, row.node)
    return (sender, receiver, row.key, row.number, bool(row.slot))


def _renumbered(rows: list[TraceRow]) -> Iterator[TraceRow]:
    messages: dict[MessageName, int] = {}
    trainings: dict[tuple[int, int], int] = {}  # (node, its own number) -> the latest such training's number
    started = iteration = 0
    start = before = min((row.time for row in rows), default=0.0)
    for row in rows:
        if row.event == "resumed":  # while nobody was there, no time has passed
            start += row.time - before
        before = row.time
        new = row._replace(time=row.time - start)
        if row.event in ("send", "receive", "superseded"):
            new = new._replace(number=messages.setdefault(_message(row), len(messages)), key=0)
        elif row.event in ("train", "differentiate"):
            trainings[row.node, row.number] = started
            new = new._replace(number=started)
            started += 1
        elif row.event == "trained":
            iteration += 1
            number = trainings.pop((row.node, row.number), -1)  # its beginning may be in a part that was not kept
            new = new._replace(number=number, iteration=iteration)
        yield new
