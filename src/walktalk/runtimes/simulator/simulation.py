"""One run in virtual time: protocol machines, an agenda, and a notebook in which the arithmetic is written down.

When things happen never depends on the values in a model, so no model is touched here. `advance` runs the events up
to a share of the run and hands out the schedule of that stretch; doing it again from the start gives the same, which
is how a stopped study is resumed without saving any of this.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Container
from typing import Any, TypeAlias

from walktalk.protocols import (
    Apply,
    Combine,
    Context,
    Decode,
    Differentiate,
    Effect,
    Encode,
    Event,
    Forget,
    Machine,
    Message,
    MixEveryone,
    NetworkView,
    Note,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    TimerFired,
    Train,
    Trained,
    control_bytes,
)
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Encoded, Interpreter, Packed, Scale, Work, made
from walktalk.runtimes.simulator.faults import Faults
from walktalk.runtimes.simulator.links import Links, Transfer
from walktalk.runtimes.simulator.network_views import Changes, all_network_views
from walktalk.runtimes.simulator.schedule import (
    ANYTHING,
    ARRIVED,
    EVALUATION,
    INFINITY,
    INITIAL_VALUE,
    NO_STATE,
    ROUND_TRIP,
    TIMER,
    TRAINED,
    TRANSFERRED,
    Agenda,
    Chunk,
    Envelope,
    EvaluateOp,
    MixOp,
    ScheduleRecorder,
    Terms,
    Training,
    Unwritten,
    no_garbage_collection,
)
from walktalk.runtimes.simulator.timing import NetworkTiming, RunSetup, Stopwatch
from walktalk.transforms.rules import MOST

MOST_ENVELOPES = 2**16
log = logging.getLogger(__name__)
Asked: TypeAlias = Train | Differentiate


class Simulation:
    """The state of one run; `advance` moves it on."""

    def __init__(self, setup: RunSetup) -> None:
        setup.protocol.check_graph(setup.graph)
        self.setup = setup
        self.agenda = Agenda()
        self.context = Context(0.0, setup.seed.child("protocol").python())
        self.keys = setup.seed.child("batches").python()
        self.stopwatch = Stopwatch(setup.timing, setup.graph, setup.seed)
        self.links = Links(setup.timing, setup.graph, setup.seed) if isinstance(setup.timing, NetworkTiming) else None
        self.protocol = setup.protocol.resilient_form() if setup.faults.has_failures else setup.protocol
        self.changes = Changes.of(setup.faults, setup.graph, setup.protocol)  # None: nobody joins or leaves for good
        self.machines: list[Machine] = [self.protocol.machine(around) for around in self.network_views()]
        self.written = setup.keep_schedule or setup.keep_trace  # False: what the models are is of no interest
        self.notebook = ScheduleRecorder(setup.statistics, setup.averages)
        self.trace: list[TraceRow] = []
        self.interpreter: Interpreter[Terms] = Interpreter(
            self.notebook if setup.keep_schedule else Unwritten(), self.protocol.messages, self._scale(),
            self._write if setup.keep_trace else None, self._now,
        )  # fmt: skip
        self._happens: tuple[Callable[[Any], None], ...] = (  # by kind of agenda entry
            self._training_ends,
            self._message_arrives,
            self._timer_fires,
            self._transfer_ends,
            self._evaluation_is_due,
            self._round_trip_ends,
        )
        self._carries_out = self._handlers()
        self.noted = 0  # lines of the trace that were handed out
        self.training: dict[int, Training] = {}  # by node, where a node trains one model at a time
        self.waiting: dict[int, deque[Asked]] = {}  # by node: trainings that queue
        self.under_way: dict[int, Terms] = {}  # messages and trainings that hold values
        self.states_under_way: dict[int, int] = {}  # messages that hold optimizer states
        self.timers: dict[tuple[int, str], int] = {}  # the version that counts
        self.timer_versions = 0
        privacy = self.interpreter.privacy = setup.protocol.privacy
        self.most_releases = privacy.most() if privacy is not None else MOST
        self.interpreter.may_release = lambda node: self.interpreter.releases[node] < self.most_releases
        self._envelopes: dict[tuple[str, int, int, int] | None, Packed] = {}  # see `_planned`
        self.trainings = 0
        self.messages = 0
        self.events = 0
        self.evaluated_at = -1
        self.finished = False
        self.advanced_to = 0.0  # the share of the run up to which `advance` has gone
        self.faults = Faults(setup.faults, self) if setup.faults and not setup.protocol.pools_data else None
        if self.faults is not None:
            self._happens = self.faults.between(self._happens)
            self._carries_out[Record] = self.faults.watching(self._carries_out.get(Record))
            self._carries_out[Train] = self._carries_out[Differentiate] = self.faults.guarding(self.ask_to_train)
        self._begin()

    def network_views(self) -> list[NetworkView]:
        known = all_network_views(self.setup.graph, self.stopwatch, self.setup.samples)
        return known if self.changes is None else self.changes.network_view(known)

    def _scale(self) -> Scale:
        setup = self.setup
        sizes = (setup.model_bytes, setup.state_bytes, setup.local_steps)
        return Scale(*sizes, setup.optimizer_state, setup.statistics, setup.statistics_bytes)

    def _write(self, row: TraceRow) -> None:
        self.trace.append(row)

    def _now(self) -> float:
        return self.agenda.now

    @property
    def iteration(self) -> int:
        """Trainings that are done."""
        return self.interpreter.iteration

    @property
    def bytes(self) -> int:
        """Bytes sent between nodes so far."""
        return self.interpreter.bytes

    # -- the loop -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for node in range(self.setup.graph.nodes):
            self.interpreter.add_node(node, ((INITIAL_VALUE, 1.0),))
            if self.changes is None or node not in self.changes.absent:
                self.give(node, Started())
        self._evaluate()
        if self.setup.evaluate.seconds is not None:
            self.agenda.put_at(self.setup.evaluate.seconds, EVALUATION, None)
        if self.faults is not None:
            self.faults.begin()

    def advance(self, progress: float = 1.0) -> Chunk:
        """Run until this share of the run is done (or the run is), and hand out what was written down."""
        stop = self.setup.stop
        self.advanced_to = max(self.advanced_to, progress)
        iterations = math.ceil(stop.iterations * progress) if stop.iterations is not None else math.inf
        time = stop.time * progress if stop.time is not None else math.inf
        most_bytes = stop.bits * progress / 8 if stop.bits is not None else math.inf
        with no_garbage_collection():
            self._run_events(iterations, time, most_bytes)
        self._finish_if_done()
        return self._hand_out()

    def _finish_if_done(self) -> None:
        stop, next_time = self.setup.stop, self.agenda.next_time()
        out_of_time = stop.time is not None and next_time > stop.time
        done = stop.progress(self.iteration, 0.0, self.bytes * 8) >= 1.0 or out_of_time or next_time == INFINITY
        if done and not self.finished:
            if out_of_time and stop.time is not None:
                self.agenda.now = self.context.now = stop.time
            self._evaluate()
            self.finished = True
            self.advanced_to = 1.0  # however the run was cut

    def _run_events(self, iterations: float, time: float, most_bytes: float) -> None:
        """The loop itself, until a limit is reached or nothing is left to happen."""
        take, happens, context, done = self.agenda.take, self._happens, self.context, self.interpreter
        while not self.finished and done.iteration < iterations and done.bytes < most_bytes:
            entry = take(time)
            if entry is None:
                return
            self.events += 1
            context.now = entry[0]
            happens[entry[2]](entry[3])

    def give(self, node: int, event: Event) -> None:
        """Let a node take an event, and carry out what it asks for."""
        self._carry_out(node, self.machines[node].handle(event, self.context))

    def _carry_out(self, node: int, effects: list[Effect]) -> None:
        carries_out = self._carries_out
        for effect in effects:
            carry_out = carries_out.get(type(effect))
            if carry_out is not None:
                carry_out(node, effect)
        if self.links is not None and self.links.changed:  # once for all that was sent
            self.plan_ends(self.links.settle(self.agenda.now))

    def _handlers(self) -> dict[type, Callable[[int, Any], None]]:
        """Who carries out which effect; where nothing is written down, those that say what a model is are let pass."""
        when: dict[type, Callable[[int, Any], None]] = {
            Train: self.ask_to_train,
            Differentiate: self.ask_to_train,
            Send: self._send,
            SetTimer: self._set_timer,
            MixEveryone: self._mix_everyone,
        }
        what = self.interpreter
        told: dict[type, Callable[[int, Any], None]] = {
            Combine: what.combine,
            Record: what.record,
            Forget: what.forget,
            Note: what.note,
            Encode: self._encode,
            Apply: self._apply,
            Decode: what.decode,
        }
        return {**when, **told} if self.written else when

    # -- training -----------------------------------------------------------------------------------------------

    def ask_to_train(self, node: int, effect: Asked) -> None:
        if self.links is not None and node in self.training:
            self.waiting.setdefault(node, deque()).append(effect)
        else:
            self._training_starts(node, effect)

    def _training_starts(self, node: int, effect: Asked) -> None:
        number = self.trainings
        self.trainings += 1
        work, made_of = self._write_training(node, effect, number) if self.written else (None, ANYTHING)
        training = made(Training, (node, effect.slot, effect.walk, number, effect[2], work, made_of))
        self.training[node] = training
        seconds = self.stopwatch.training_time(node)
        if effect[2]:  # the protocol's own number of steps; what a training takes is said of one as the study has it
            seconds *= effect[2] / self.setup.local_steps
        self.agenda.put(seconds, TRAINED, training)

    def _write_training(self, node: int, effect: Asked, number: int) -> tuple[Work, Terms]:
        """Note down a training that starts: what it begins with, and the value that it makes."""
        setup, what = self.setup, self.interpreter
        key = self.keys.getrandbits(63)
        lr = setup.lr * setup.schedule(setup.stop.progress(what.iteration, self.agenda.now, what.bytes * 8))
        work = what.begin_training(node, effect, number, key, lr)
        if not setup.keep_schedule:
            return work, ANYTHING
        state_in, state_out = NO_STATE if work.state is None else work.state, NO_STATE
        if what.keeps_states:
            what.states[what.state_owner(node, effect.slot)] = state_out = self.notebook.new_state()
        result = self.notebook.trained(
            work, setup.graph.nodes if setup.protocol.pools_data else node, state_in, state_out
        )
        held = work.start if work.is_plain else (*work.start, *(work.correction or ()), *(work.anchor or ()))
        self.under_way[-1 - number] = (*held, *result)
        return work, result

    def _training_ends(self, training: Training) -> None:
        setup, what, node = self.setup, self.interpreter, training.node
        self.training.pop(node, None)
        work = training.work
        if work is not None:
            self.under_way.pop(-1 - training.number, None)
            what.end_training(work, training.result)
            self.give(node, made(Trained, (training.slot, training.walk, work.lr, work.steps)))
            what.forget_result(node)
        else:
            what.iteration += 1
            steps = training.steps or setup.local_steps
            self.give(node, made(Trained, (training.slot, training.walk, setup.lr, steps)))
        if self.links is not None and node not in self.training and self.waiting.get(node):
            self._training_starts(node, self.waiting[node].popleft())
        if what.privacy is not None and what.releases[node] >= self.most_releases:
            self._look_for_a_budget()
        if setup.evaluate.every is not None and what.iteration % setup.evaluate.every == 0:
            self._evaluate()

    # -- messages -----------------------------------------------------------------------------------------------

    def _send(self, node: int, effect: Send) -> None:
        what, number = self.interpreter, self.messages
        self.messages += 1
        if self.written:
            packed = what.pack(node, effect)
            if what.corrupt and node in what.corrupt:
                packed = what.corrupted(node, effect.slot, packed, self.keys.getrandbits(63))
            size = what.sent(node, effect, packed, number)
            if packed.content is not None:
                held = packed.content
                self.under_way[number] = held.content if isinstance(held, Encoded) else held
                if packed.state is not None:
                    self.states_under_way[number] = packed.state
        else:
            packed = self._planned(node, effect)
            size = control_bytes(effect.message) + packed.payload
            what.bytes += size
            what.payload_bytes += packed.payload
        envelope = made(Envelope, (node, effect.to, effect.message, packed, number))
        if self.links is None:
            self.agenda.put(0.0, ARRIVED, envelope)
        else:
            transfer = self.links.add(node, effect.to, size * 8.0, self.agenda.now, envelope)
            if transfer.window:
                self.agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def _planned(self, node: int, effect: Send) -> Packed:
        """A machine looks at the slot of what has arrived, so it is named where nothing is in it; few come often."""
        slot, (kind, walk, round_, _, _) = effect.slot, effect.message
        name = (kind, node, walk, round_) if slot else None
        packed = self._envelopes.get(name)
        if packed is None:
            if len(self._envelopes) >= MOST_ENVELOPES:
                self._envelopes.clear()
            into = self.interpreter.arrives_in(node, effect.message) if slot else ""
            packed = self._envelopes[name] = Packed(into, None, None, self.interpreter.size(effect))
        return packed

    def plan_ends(self, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            self.agenda.put_at(transfer.end(), TRANSFERRED, (transfer, transfer.version))

    def _transfer_ends(self, planned: tuple[Transfer, int]) -> None:
        transfer, version = planned
        if self.links is None or version != transfer.version:
            return  # its rate has changed since; a later entry tells the end
        self.agenda.put(transfer.latency + transfer.delay, ARRIVED, transfer.content)
        self.plan_ends(self.links.finish(transfer, self.agenda.now))

    def _round_trip_ends(self, transfer: Transfer) -> None:
        """Widens a transfer that starts slowly, unless it is done."""
        if self.links is not None and transfer.window:
            self.plan_ends(self.links.widen(transfer, self.agenda.now))
            if transfer.window:
                self.agenda.put(2.0 * transfer.latency, ROUND_TRIP, transfer)

    def _message_arrives(self, envelope: Envelope) -> None:
        """The machine takes the message first; then what came with it is put into its slot."""
        sender, node, message, packed, number = envelope
        effects = self.machines[node].handle(made(Received, (sender, message, packed.into)), self.context)
        if self.written:
            self.lose(number)
            self.interpreter.receive(node, sender, message.walk, packed, number)
        self._carry_out(node, effects)

    def miss(self, envelope: Envelope) -> None:
        """A message was lost, and its receiver notices."""
        sender, node, message, _, _ = envelope
        self._carry_out(node, self.machines[node].missed(sender, message, self.context))

    def lose(self, number: int) -> None:
        """A message is not on its way any more."""
        self.under_way.pop(number, None)
        if self.states_under_way:
            self.states_under_way.pop(number, None)

    # -- slots, timers --------------------------------------------------------------------------------------------

    def _encode(self, node: int, effect: Encode) -> None:
        self.interpreter.encode(node, effect, self.keys.getrandbits(63))

    def _apply(self, node: int, effect: Apply) -> None:
        self.interpreter.apply(node, effect, self.keys.getrandbits(63))

    def _set_timer(self, node: int, effect: SetTimer) -> None:
        self.timer_versions += 1  # never used again, so an entry that was replaced can never be taken for a later one
        version = self.timers[node, effect.name] = self.timer_versions
        self.agenda.put(effect.after, TIMER, (node, effect.name, version))

    def _timer_fires(self, timer: tuple[int, str, int]) -> None:
        node, name, version = timer
        if self.timers.get((node, name)) == version:
            del self.timers[node, name]
            self.give(node, TimerFired(name))

    def _mix_everyone(self, node: int, effect: MixEveryone) -> None:
        """Algorithm 2, line 6: all nodes at once. Counts the off-diagonal non-zeros of P as sent."""
        setup, what, notebook = self.setup, self.interpreter, self.notebook
        nodes = range(setup.graph.nodes)
        if setup.keep_schedule:
            sources = tuple(notebook.as_one(what.read(v, effect.slot))[0][0] for v in nodes)
            outs = tuple(notebook.new_value() for _ in nodes)
            notebook.ops.append(MixOp(outs, sources))
            for v in nodes:
                what.slots[v][effect.slot] = what.members[v] = ((outs[v], 1.0),)
        messages = int(2 * setup.graph.edges)
        what.bytes += messages * (control_bytes(Message("mix")) + setup.model_bytes)
        what.payload_bytes += messages * setup.model_bytes
        what.note_down(node, "mix_everyone", effect.slot)

    # -- nodes that die and come back (`faults`) --------------------------------------------------------------------

    def stop_node(self, node: int) -> None:
        """A node is dead: what it was doing and what it waited for is gone."""
        self.training.pop(node, None)
        self.waiting.pop(node, None)
        for timer in [timer for timer in self.timers if timer[0] == node]:
            del self.timers[timer]

    def _look_for_a_budget(self) -> None:
        """Where every node that is there has spent its privacy budget, nothing is learned any more: the run ends."""
        dead: Container[int] = self.faults.dead if self.faults is not None else ()
        what, most = self.interpreter, self.most_releases
        if all(node in dead or what.releases[node] >= most for node in range(self.setup.graph.nodes)):
            what.note_down(-1, "budget_spent", number=most)
            log.warning(
                "%s: every node has spent its privacy budget by iteration %d (%d updates each, ε = %.3g); the run ends "
                "there",
                self.setup.protocol.label, what.iteration, most, what.epsilon or 0.0,
            )  # fmt: skip
            self.end_early()

    def end_early(self) -> None:
        """Nothing will ever be trained again."""
        self._evaluate()
        self.finished = True

    def restart_node(self, node: int) -> None:
        """A node is back, with a machine that knows nothing."""
        self.machines[node] = self.protocol.machine(self.network_views()[node])

    def latency(self, sender: int, receiver: int) -> float:
        """Seconds from node to node for next to nothing."""
        return self.links.latency(sender, receiver) if self.links is not None else 0.0

    # -- measuring ------------------------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        if self.evaluated_at == self.events or not self.setup.keep_schedule:
            return  # the last evaluation and the end of the run may fall together
        self.evaluated_at = self.events
        what = self.interpreter
        bits, model_bits = what.bytes * 8.0, what.payload_bytes * 8.0
        noted, each, members = self.noted + len(self.trace), self.setup.evaluate.members, tuple(what.in_order())
        self.notebook.ops.append(
            EvaluateOp(
                what.iteration, self.agenda.now, bits, model_bits, self.output(), members, noted, each, what.epsilon
            )
        )

    def _evaluation_is_due(self, nothing: None) -> None:
        self._evaluate()
        if self.setup.evaluate.seconds is not None:
            self.agenda.put(self.setup.evaluate.seconds, EVALUATION, None)

    def output(self) -> Terms:
        """The model that is measured and handed out."""
        return self.interpreter.output(self.setup.evaluate.model)

    def _hand_out(self) -> Chunk:
        notebook, what = self.notebook, self.interpreter
        holders = [*what.members.values(), what.aggregate or ()]
        if not self.finished:  # after the end only what the run puts out is of interest
            holders += [terms for slots in what.slots.values() for terms in slots.values()]
            holders += [packed.content for slots in what.encodings.values() for packed in slots.values()]
            holders += self.under_way.values()
        live = {value for terms in holders for value, _ in terms}
        states = [] if self.finished else sorted({*what.states.values(), *self.states_under_way.values()})
        chunk = Chunk(notebook.ops, sorted(live), states, self.trace, self.finished)
        self.noted += len(self.trace)
        notebook.ops, self.trace = [], []
        return chunk
