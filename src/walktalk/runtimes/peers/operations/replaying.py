"""The arithmetic of a real run, done again from its trace by the stacked executor.

This is how a run on real peers gets its history: no node sees all the data, and none is disturbed by measurements. It
is also the strongest check of the real engine: the models must come out the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from walktalk.protocols import INITIAL, Arrival
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import FLOAT_BYTES, Evaluate, Interpreter, OptimizerState, Player, Scale, Watcher, Work
from walktalk.runtimes.simulator import INITIAL_VALUE, NO_STATE, Chunk, EvaluateOp, RunSetup, ScheduleRecorder, Terms
from walktalk.runtimes.stacked import Executor, Measurement, Planner, RowTrainer, averaging_of, parameters_of
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
    """Do the arithmetic of a trace (of `traces.merge`, or a simulator's)."""
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

    members = {key: blend(terms) for key, terms in reader.interpreter.members.items()}
    return ReplayResult(measurements, blend(reader.output()), members, reader.player.gaps)


class Reader(Watcher[Terms]):
    """Records a trace's arithmetic as a schedule, and measures where a simulation would."""

    def __init__(self, setup: ReplaySetup, trainer: RowTrainer) -> None:
        self.setup = setup
        beside = trainer.width - parameters_of(trainer)
        self.notebook = ScheduleRecorder(beside > 0, averaging_of(trainer) is not None)
        sizes = (FLOAT_BYTES * setup.initial.numel(), FLOAT_BYTES * trainer.state_width)
        scale = Scale(*sizes, trainer.local_steps, setup.optimizer_state, beside > 0, FLOAT_BYTES * beside)
        self.interpreter = Interpreter(self.notebook, setup.messages, scale)
        self.interpreter.privacy = setup.privacy
        self.player = Player(self.interpreter, self, setup.nodes, ((INITIAL_VALUE, 1.0),))
        self.time = 0.0
        self.next_at = setup.evaluate.seconds  # when the next evaluation by the clock is due
        self.due = True  # an evaluation, as soon as what belongs to this iteration is done

    def trained(self, work: Work) -> Terms:
        """Record a training in the schedule."""
        what, state_out = self.interpreter, NO_STATE
        if what.keeps_states:
            what.states[what.state_owner(work.node, work.slot)] = state_out = self.notebook.new_state()
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
            self.interpreter.aggregate_term = 0  # terms start again, too

    def finish(self) -> Chunk:
        """End the schedule with a last measurement, and return it."""
        self.due = True
        self._evaluate()
        live = {value for terms in (*self.interpreter.members.values(), self.output()) for value, _ in terms}
        return Chunk(self.notebook.ops, sorted(live), [], [], True)

    def output(self) -> Terms:
        """The model that is measured and handed out, as `evaluate.model` says."""
        return self.interpreter.output(self.setup.evaluate.model)

    def _evaluate(self) -> None:
        what = self.interpreter
        if not self.due or not what.members:
            return
        self.due = False
        bits, model_bits = 8.0 * what.bytes, 8.0 * what.payload_bytes
        members, each = tuple(what.in_order()), self.setup.evaluate.members
        self.notebook.ops.append(
            EvaluateOp(
                what.iteration, self.time, bits, model_bits, self.output(), members, each=each, epsilon=what.epsilon
            )
        )


def _reserve(planner: Planner, executor: Executor) -> None:
    executor.models.reserve(planner.models.size)
    executor.states.reserve(planner.states.size)


def _no_mixing(run: int) -> Tensor:
    raise ValueError("no real network mixes everybody at once")
