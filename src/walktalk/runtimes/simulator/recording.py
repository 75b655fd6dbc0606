"""What is written down of a run in virtual time: the schedule of its arithmetic, its trace, and what is under way."""

from __future__ import annotations

from collections.abc import Mapping

from walktalk.protocols import Apply, Arrival, Differentiate, Encode, Message, MixEveryone, Send, Train, control_bytes
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Encoded, Interpreter, Packed, Releases, Scale, StepFactors, Work
from walktalk.runtimes.simulator.schedule import (
    ANYTHING,
    NO_STATE,
    Agenda,
    Chunk,
    Envelope,
    EvaluateOp,
    MixOp,
    ScheduleRecorder,
    Terms,
    Training,
    Unwritten,
)
from walktalk.runtimes.simulator.timing import RunSetup
from walktalk.transforms.rules import MOST


class NodeStates:
    """The states in which private parts of models are: those that trainings have left, and those they will."""

    def __init__(self) -> None:
        self.to_come: dict[int, int] = {}  # trainings -> the states that they make
        self.left: dict[int, int] = {}  # nodes -> the states that their last trainings have left

    def end(self, training: Training) -> None:
        """A training is over: its state is its node's."""
        if training.number in self.to_come:
            self.left[training.node] = self.to_come.pop(training.number)


class Recording:
    """The notebook of one run: what effects do to its slots, numbered, and the lines of its trace."""

    def __init__(self, setup: RunSetup, agenda: Agenda, messages: Mapping[str, Arrival]) -> None:
        """
        - `setup`: the run's.
        - `agenda`: has the time.
        - `messages`: how the protocol's messages arrive.
        """
        self._setup, self._agenda = setup, agenda
        self.written = setup.keep_schedule or setup.keep_trace  # False: what the models are is of no interest
        self.notebook = ScheduleRecorder(setup.statistics, setup.averages)
        self.trace: list[TraceRow] = []
        self.noted = 0  # lines of the trace that were handed out
        self.keys = setup.seed.child("batches").python()
        self.interpreter = self._interpret(messages)
        self.under_way: dict[int, Terms] = {}  # messages and trainings that hold values
        self.states_under_way: dict[int, int] = {}  # messages that hold optimizer states
        self.node_states = NodeStates()  # where parts of models are private
        self.corrupt: dict[int, str] = {}  # nodes that spoil what they send, and how: flip, scale(C), noise(S)
        self.counts = dict(enumerate(setup.samples))  # node -> how much it counts
        self.begun = dict.fromkeys(self.counts, 0)  # node -> how many trainings
        self._unlooked = 0  # trainings until factors are looked at
        weighs = setup.protocol.weighs_nodes
        counts = setup.objective.changes_steps and not setup.protocol.pools_data and bool(self.counts)
        self.steps = StepFactors(setup.objective, weighs) if counts else None
        self._evaluated_at = -1  # after how many events

    def _interpret(self, messages: Mapping[str, Arrival]) -> Interpreter[Terms]:
        setup, privacy = self._setup, self._setup.protocol.privacy
        sizes = (setup.model_bytes, setup.state_bytes, setup.local_steps)
        scale = Scale(*sizes, setup.optimizer_state, setup.statistics, setup.statistics_bytes, setup.steps_of)
        return Interpreter(
            self.notebook if setup.keep_schedule else Unwritten(),
            messages,
            scale,
            self._write if setup.keep_trace else None,
            lambda: self._agenda.now,
            Releases(privacy, privacy.most() if privacy is not None else MOST),
        )

    def _write(self, row: TraceRow) -> None:
        self.trace.append(row)

    # -- trainings ------------------------------------------------------------------------------------------------

    def begin_training(self, node: int, effect: Train | Differentiate, number: int) -> tuple[Work, Terms]:
        """Note down a training that starts: what it begins with, and the value that it makes."""
        setup, interpreter = self._setup, self.interpreter
        key, sent = self.keys.getrandbits(63), interpreter.traffic.bytes * 8
        lr = setup.lr * setup.schedule(setup.stop.progress(interpreter.iteration, self._agenda.now, sent))
        factor = 1.0 if self.steps is None else self._step_factor(self.steps, node)
        work = interpreter.begin_training(node, effect, number, key, lr, factor)
        if not setup.keep_schedule:
            return work, ANYTHING
        state_in, state_out = NO_STATE if work.state is None else work.state, NO_STATE
        if interpreter.keeps_states:
            interpreter.states[interpreter.state_owner(node, effect.slot)] = state_out = self.notebook.new_state()
            if setup.private:
                self.node_states.to_come[number] = state_out
        result = self.notebook.trained(
            work, setup.graph.nodes if setup.protocol.pools_data else node, state_in, state_out
        )
        held = work.start if work.is_plain else (*work.start, *(work.correction or ()), *(work.anchor or ()))
        self.under_way[-1 - number] = (*held, *result)
        return work, result

    def _step_factor(self, steps: StepFactors, node: int) -> float:
        """Times which this node's gradients count now; looked at anew once in as many trainings as there are nodes."""
        self.begun[node] += 1
        self._unlooked -= 1
        if self._unlooked < 0:
            steps.look(self.counts, self.begun)
            self._unlooked = len(self.counts)
        return steps.factors.get(node, 1.0)

    def lose_training(self, training: Training) -> None:
        """A training is not under way any more."""
        self.under_way.pop(-1 - training.number, None)
        self.node_states.end(training)

    # -- messages -------------------------------------------------------------------------------------------------

    def send(self, node: int, effect: Send, number: int) -> tuple[Packed, int]:
        """Note down a message that goes out: what goes along, and its bytes."""
        packed = self.interpreter.pack(node, effect)
        if self.corrupt and node in self.corrupt:
            key = self.keys.getrandbits(63)
            packed = self.interpreter.corrupted(node, effect.slot, packed, self.corrupt[node], key)
        size = self.interpreter.sent(node, effect, packed, number)
        if packed.content is not None:
            held = packed.content
            self.under_way[number] = held.content if isinstance(held, Encoded) else held
            if packed.state is not None:
                self.states_under_way[number] = packed.state
        return packed, size

    def receive(self, envelope: Envelope) -> None:
        """Note down a message that was taken."""
        sender, node, message, packed, number = envelope
        self.lose_message(number)
        self.interpreter.receive(node, sender, message.walk, packed, number)

    def lose_message(self, number: int) -> None:
        """A message is not on its way any more."""
        self.under_way.pop(number, None)
        if self.states_under_way:
            self.states_under_way.pop(number, None)

    # -- slots ----------------------------------------------------------------------------------------------------

    def encode(self, node: int, effect: Encode) -> None:
        """Carry out an `Encode`, with a key of its own."""
        self.interpreter.encode(node, effect, self.keys.getrandbits(63))

    def apply(self, node: int, effect: Apply) -> None:
        """Carry out an `Apply`, with a key of its own."""
        self.interpreter.apply(node, effect, self.keys.getrandbits(63))

    def mix_everyone(self, node: int, effect: MixEveryone) -> None:
        """Algorithm 2, line 6: all nodes at once. Counts the off-diagonal non-zeros of P as sent."""
        setup, interpreter, notebook = self._setup, self.interpreter, self.notebook
        nodes = range(setup.graph.nodes)
        if setup.keep_schedule:
            sources = tuple(notebook.as_one(interpreter.read(v, effect.slot))[0][0] for v in nodes)
            outs = tuple(notebook.new_value() for _ in nodes)
            notebook.ops.append(MixOp(outs, sources))
            for v in nodes:
                interpreter.slots[v][effect.slot] = interpreter.output.members[v] = ((outs[v], 1.0),)
        messages = int(2 * setup.graph.edges)
        each = control_bytes(Message("mix")) + setup.model_bytes
        interpreter.traffic.add(messages * each, messages * setup.model_bytes)
        interpreter.note_down(node, "mix_everyone", effect.slot)

    # -- measuring ------------------------------------------------------------------------------------------------

    def evaluate(self, events: int) -> None:
        """Measure what the run puts out now, once after so many events."""
        if self._evaluated_at == events or not self._setup.keep_schedule:
            return  # the last evaluation and the end of the run may fall together
        self._evaluated_at = events
        interpreter, traffic = self.interpreter, self.interpreter.traffic
        self.notebook.ops.append(
            EvaluateOp(
                interpreter.iteration,
                self._agenda.now,
                traffic.bytes * 8.0,
                traffic.payload_bytes * 8.0,
                self.output(),
                tuple(interpreter.output.in_order()),
                self.noted + len(self.trace),
                self._setup.evaluate.members,
                interpreter.releases.epsilon,
                self.states() if self._setup.private else (),
            )
        )

    def states(self) -> tuple[int, ...]:
        """The state of every node after its last training, with its private part; who trains for all has it for all."""
        states, nodes = self.node_states.left, range(self._setup.graph.nodes)
        if self._setup.protocol.pools_data:
            return (next(iter(states.values()), NO_STATE),) * len(nodes)
        return tuple(states.get(node, NO_STATE) for node in nodes)

    def output(self) -> Terms:
        """The model that is measured and handed out."""
        return self.interpreter.output.model(self._setup.evaluate.model)

    def hand_out(self, finished: bool) -> Chunk:
        """What was written down since the last time, and which values are still needed."""
        notebook, interpreter = self.notebook, self.interpreter
        holders = [*interpreter.output.members.values(), interpreter.output.aggregate or ()]
        if not finished:  # after the end only what the run puts out is of interest
            holders += [terms for slots in interpreter.slots.values() for terms in slots.values()]
            holders += [packed.content for slots in interpreter.encodings.values() for packed in slots.values()]
            holders += self.under_way.values()
        live = {value for terms in holders for value, _ in terms}
        kept = (*self.states_under_way.values(), *self.node_states.left.values(), *self.node_states.to_come.values())
        states = [] if finished else sorted({*interpreter.states.values(), *kept})
        chunk = Chunk(notebook.ops, sorted(live), states, self.trace, finished)
        self.noted += len(self.trace)
        notebook.ops, self.trace = [], []
        return chunk
