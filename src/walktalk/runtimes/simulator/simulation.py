"""One run in virtual time: protocol machines, an agenda, and a notebook in which the arithmetic is written down.

When things happen never depends on the values in a model, so no model is touched here. `advance` runs the events up
to a share of the run and hands out the schedule of that stretch; doing it again from the start gives the same, which
is how a stopped study is resumed without saving any of this.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from walktalk.protocols import (
    AGGREGATE,
    INITIAL,
    UPDATE,
    Combine,
    Event,
    Forget,
    Machine,
    Message,
    MixEveryone,
    Note,
    Outside,
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
from walktalk.runtimes.simulator.agenda import INFINITY, Agenda
from walktalk.runtimes.simulator.faults import Faults
from walktalk.runtimes.simulator.garbage import no_garbage_collection
from walktalk.runtimes.simulator.links import Links, Transfer
from walktalk.runtimes.simulator.run_setup import RunSetup
from walktalk.runtimes.simulator.schedule import (
    ANYTHING,
    INITIAL_VALUE,
    NO_STATE,
    BlankNotebook,
    Chunk,
    EvaluateOp,
    MixOp,
    Notebook,
    Terms,
    TrainOp,
    mean_of,
)
from walktalk.runtimes.simulator.surroundings import all_surroundings
from walktalk.runtimes.simulator.timing import NetworkTiming, Stopwatch
from walktalk.runtimes.simulator.under_way import Envelope, Training, made

TRAINED, ARRIVED, TIMER, TRANSFERRED, EVALUATION = range(5)  # kinds of agenda entries: see `Simulation._happens`


class Simulation:
    """The state of one run; `advance` moves it on."""

    def __init__(self, setup: RunSetup) -> None:
        setup.protocol.check(setup.graph.nodes)
        self.setup = setup
        self.agenda = Agenda()
        self.outside = Outside(0.0, setup.seed.child("protocol").python())
        self.keys = setup.seed.child("batches").python()
        self.stopwatch = Stopwatch(setup.timing, setup.graph, setup.seed)
        self.links = Links(setup.timing, setup.graph) if isinstance(setup.timing, NetworkTiming) else None
        self.protocol = setup.protocol.hardened() if setup.faults else setup.protocol
        self.machines: list[Machine] = [
            self.protocol.machine(around) for around in all_surroundings(setup.graph, self.stopwatch)
        ]
        self.notebook = Notebook() if setup.keep_schedule else BlankNotebook()
        self.written = setup.keep_schedule or setup.keep_trace  # False: what the models are is of no interest
        self._happens: tuple[Callable[[Any], None], ...] = (
            self._training_ends,
            self._message_arrives,
            self._timer_fires,
            self._transfer_ends,
            self._evaluation_is_due,
        )
        self._carries_out = self._handlers()
        self.trace: list[tuple[object, ...]] = []
        self.noted = 0  # lines of it that were handed out
        self.training: dict[int, Training] = {}  # by node, where a node trains one model at a time
        self.waiting: dict[int, deque[Train]] = {}  # by node: trainings that queue
        self.under_way: dict[int, Terms] = {}  # messages and trainings that hold values
        self.members: dict[int, Terms] = {}  # what `Record` said last
        self.aggregate: Terms | None = None
        self.aggregated_at: int | None = None  # the iteration in which the aggregate was brought up to date
        self.aggregate_term = 0  # of two that aggregate at the same time, the higher term counts
        self.states: dict[int, int] = {}  # owner -> its optimizer state
        self.timers: dict[tuple[int, str], int] = {}  # the version that counts
        self.timer_versions = 0
        self.iteration = 0
        self.trainings = 0
        self.messages = 0
        self.events = 0
        self.bytes = 0
        self.model_bytes = 0
        self.evaluated_at = -1
        self.finished = False
        self.advanced_to = 0.0  # the share of the run up to which `advance` has gone
        self.faults = Faults(setup.faults, self) if setup.faults and not setup.protocol.pools_data else None
        if self.faults is not None:
            self._happens = self.faults.between(self._happens)
            self._carries_out[Record] = self.faults.watching(self._carries_out.get(Record))
        self._begin()

    # -- the loop -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for node in range(self.setup.graph.nodes):
            self.notebook.write(node, INITIAL, ((INITIAL_VALUE, 1.0),))
            self._give(node, Started())
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
                self.agenda.now = self.outside.now = stop.time
            self._evaluate()
            self.finished = True

    def _run_events(self, iterations: float, time: float, most_bytes: float) -> None:
        """The loop itself, until a limit is reached or nothing is left to happen."""
        take, happens, outside = self.agenda.take, self._happens, self.outside
        while not self.finished and self.iteration < iterations and self.bytes < most_bytes:
            entry = take(time)
            if entry is None:
                return
            self.events += 1
            outside.now = entry[0]
            happens[entry[2]](entry[3])

    def _give(self, node: int, event: Event) -> None:
        """Let a node take an event, and carry out what it asks for."""
        carries_out = self._carries_out
        for effect in self.machines[node].handle(event, self.outside):
            carry_out = carries_out.get(type(effect))
            if carry_out is not None:
                carry_out(node, effect)
        if self.links is not None and self.links.changed:  # once for all that was sent
            self._plan_ends(self.links.settle(self.agenda.now))

    def _handlers(self) -> dict[type, Callable[[int, Any], None]]:
        """Who carries out which effect; where nothing is written down, those that say what a model is are let pass."""
        when: dict[type, Callable[[int, Any], None]] = {
            Train: self._ask_to_train,
            Send: self._send,
            SetTimer: self._set_timer,
            MixEveryone: self._mix_everyone,
        }
        what: dict[type, Callable[[int, Any], None]] = {
            Combine: self._combine,
            Record: self._record,
            Forget: self._forget,
            Note: self._noted,
        }
        return {**when, **what} if self.written else when

    # -- training -----------------------------------------------------------------------------------------------

    def _ask_to_train(self, node: int, effect: Train) -> None:
        if self.links is not None and node in self.training:
            self.waiting.setdefault(node, deque()).append(effect)
        else:
            self._training_starts(node, effect)

    def _training_starts(self, node: int, effect: Train) -> None:
        number = self.trainings
        self.trainings += 1
        start, out = self._write_training(node, effect, number) if self.written else (ANYTHING, INITIAL_VALUE)
        training = made(Training, (node, effect.slot, effect.walk, number, start, out))
        self.training[node] = training
        self.agenda.put(self.stopwatch.training_time(node), TRAINED, training)

    def _write_training(self, node: int, effect: Train, number: int) -> tuple[Terms, int]:
        """Note down a training that starts: the value that it starts from, and the one that it makes."""
        setup, notebook = self.setup, self.notebook
        start = notebook.as_one(notebook.read(node, effect.slot))
        out = notebook.new_value()
        key = self.keys.getrandbits(63)
        lr = setup.lr * setup.schedule(setup.stop.progress(self.iteration, self.agenda.now, self.bytes * 8))
        state_in, state_out = self._use_state(node, effect.walk)
        if setup.keep_schedule:
            part = setup.graph.nodes if setup.protocol.pools_data else node
            notebook.ops.append(TrainOp(out, start[0][0], part, key, lr, state_in, state_out))
        self.under_way[-1 - number] = (*start, (out, 1.0))
        if setup.keep_trace:
            self._note(node, "train", effect.slot, -1, effect.walk, -1, number, 0, key, lr)
        return start, out

    def _use_state(self, node: int, walk: int) -> tuple[int, int]:
        """The optimizer state to start from and the one to leave; a walk's own where it travels, else the node's."""
        if self.setup.optimizer_state == "visit" or self.setup.state_bytes == 0:
            return NO_STATE, NO_STATE
        owner = -1 - walk if self.setup.optimizer_state == "walk" and walk >= 0 else node
        before = self.states.get(owner, NO_STATE)
        self.states[owner] = after = self.notebook.new_state()
        return before, after

    def _training_ends(self, training: Training) -> None:
        setup, node = self.setup, training.node
        self.training.pop(node, None)
        self.iteration += 1
        if setup.keep_trace:
            self._note(node, "trained", training.slot, -1, training.walk, self.iteration, training.number)
        if self.written:
            del self.under_way[-1 - training.number]
            self.notebook.write(node, UPDATE, ((training.out, 1.0), (training.start[0][0], -1.0)))
            self._give(node, made(Trained, (training.slot,)))
            self.notebook.forget(node, UPDATE)
        else:
            self._give(node, made(Trained, (training.slot,)))
        if self.links is not None and node not in self.training and self.waiting.get(node):
            self._training_starts(node, self.waiting[node].popleft())
        if setup.evaluate.every is not None and self.iteration % setup.evaluate.every == 0:
            self._evaluate()

    # -- messages -----------------------------------------------------------------------------------------------

    def _send(self, node: int, effect: Send) -> None:
        model = self.notebook.read(node, effect.slot) if effect.slot else None
        envelope = made(Envelope, (node, effect.to, effect.message, effect.into, model, self.messages))
        self.messages += 1
        payload = self._payload(effect)
        size = control_bytes(effect.message) + payload
        self.bytes += size
        self.model_bytes += payload
        if model is not None and self.written:
            self.under_way[envelope.number] = model
        if self.setup.keep_trace:
            detail = {"kind": effect.message.kind, "into": effect.into}
            self._note(
                node, "send", effect.slot, effect.to, effect.message.walk, -1, envelope.number, size, 0, 0.0, detail
            )
        if self.links is None:
            self.agenda.put(0.0, ARRIVED, envelope)
        else:
            self.links.add(node, effect.to, size * 8.0, self.agenda.now, envelope)

    def _payload(self, effect: Send) -> int:
        """Bytes of the model that goes along, and of the optimizer state where that travels with a walk."""
        if not effect.slot:
            return 0
        travels = self.setup.optimizer_state == "walk" and effect.message.walk > 0
        return self.setup.model_bytes + (self.setup.state_bytes if travels else 0)

    def _plan_ends(self, transfers: list[Transfer]) -> None:
        for transfer in transfers:
            self.agenda.put_at(transfer.end(), TRANSFERRED, (transfer, transfer.version))

    def _transfer_ends(self, planned: tuple[Transfer, int]) -> None:
        transfer, version = planned
        if self.links is None or version != transfer.version:
            return  # its rate has changed since; a later entry tells the end
        self.agenda.put(transfer.latency, ARRIVED, transfer.content)
        self._plan_ends(self.links.finish(transfer, self.agenda.now))

    def _message_arrives(self, envelope: Envelope) -> None:
        slot = ""
        if envelope.model is not None:
            slot = envelope.into
            if self.written:
                self.under_way.pop(envelope.number, None)
                self.notebook.write(envelope.to, slot, envelope.model)
        if self.setup.keep_trace:
            self._note(envelope.to, "receive", slot, envelope.sender, envelope.message.walk, -1, envelope.number)
        self._give(envelope.to, made(Received, (envelope.sender, envelope.message, slot)))

    # -- slots, records, timers -----------------------------------------------------------------------------------

    def _combine(self, node: int, effect: Combine) -> None:
        self.notebook.combine(node, effect.into, effect.terms)
        if self.setup.keep_trace:
            self._note(node, "combine", effect.into, detail=effect.terms)

    def _forget(self, node: int, effect: Forget) -> None:
        self.notebook.forget(node, effect.slot)

    def _record(self, node: int, effect: Record) -> None:
        terms = self.notebook.read(node, effect.slot)
        if effect.role != AGGREGATE:
            self.members[effect.key] = terms
        elif effect.key >= self.aggregate_term:
            self.aggregate, self.aggregate_term, self.aggregated_at = terms, effect.key, self.iteration
        if self.setup.keep_trace:
            self._note(node, "record", effect.slot, walk=effect.key, detail=effect.role)

    def _noted(self, node: int, effect: Note) -> None:
        if self.setup.keep_trace:
            self._note(node, effect.event, peer=effect.peer, walk=effect.walk, number=effect.number)

    def _set_timer(self, node: int, effect: SetTimer) -> None:
        self.timer_versions += 1  # never used again, so an entry that was replaced can never be taken for a later one
        version = self.timers[node, effect.name] = self.timer_versions
        self.agenda.put(effect.after, TIMER, (node, effect.name, version))

    def _timer_fires(self, timer: tuple[int, str, int]) -> None:
        node, name, version = timer
        if self.timers.get((node, name)) == version:
            del self.timers[node, name]
            self._give(node, TimerFired(name))

    def _mix_everyone(self, node: int, effect: MixEveryone) -> None:
        """Algorithm 2, line 6: all nodes at once. Counts the off-diagonal non-zeros of P as sent."""
        setup, notebook = self.setup, self.notebook
        nodes = range(setup.graph.nodes)
        sources = tuple(notebook.as_one(notebook.read(v, effect.slot))[0][0] for v in nodes)
        outs = tuple(notebook.new_value() for _ in nodes)
        if setup.keep_schedule:
            notebook.ops.append(MixOp(outs, sources))
        for v in nodes:
            self.notebook.write(v, effect.slot, ((outs[v], 1.0),))
            self.members[v] = ((outs[v], 1.0),)
        messages = int(2 * setup.graph.edges)
        self.bytes += messages * (control_bytes(Message("mix")) + setup.model_bytes)
        self.model_bytes += messages * setup.model_bytes
        if setup.keep_trace:
            self._note(node, "mix_everyone", effect.slot)

    # -- nodes that die and come back (`faults`) --------------------------------------------------------------------

    def stop_node(self, node: int) -> None:
        """A node is dead: what it was doing and what it waited for is gone."""
        self.training.pop(node, None)
        self.waiting.pop(node, None)
        for timer in [timer for timer in self.timers if timer[0] == node]:
            del self.timers[timer]

    def end_early(self) -> None:
        """Nothing will ever be trained again."""
        self._evaluate()
        self.finished = True

    def restart_node(self, node: int) -> None:
        """A node is back, with a machine that knows nothing."""
        self.machines[node] = self.protocol.machine(all_surroundings(self.setup.graph, self.stopwatch)[node])

    def latency(self, sender: int, receiver: int) -> float:
        """Seconds from node to node for next to nothing."""
        return self.links.latency(sender, receiver) if self.links is not None else 0.0

    # -- measuring ------------------------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        if self.evaluated_at == self.events or not self.setup.keep_schedule:
            return  # the last evaluation and the end of the run may fall together
        self.evaluated_at = self.events
        members = tuple(self.members[key] for key in sorted(self.members))
        bits, model_bits = self.bytes * 8.0, self.model_bytes * 8.0
        noted, each = self.noted + len(self.trace), self.setup.evaluate.members
        self.notebook.ops.append(
            EvaluateOp(self.iteration, self.agenda.now, bits, model_bits, self.output(), members, noted, each)
        )

    def _evaluation_is_due(self, nothing: None) -> None:
        self._evaluate()
        if self.setup.evaluate.seconds is not None:
            self.agenda.put(self.setup.evaluate.seconds, EVALUATION, None)

    def output(self) -> Terms:
        """The model that is measured and handed out.

        "aggregated": the aggregate where there is one, else the mean of the members; "mean": always the mean;
        "node": the first member (node 0 in gossip, walk 1 in Multi-Walk), as the authors' own code does for gossip.
        """
        which = self.setup.evaluate.model
        if which == "node":
            return self.members[min(self.members)]
        if which == "aggregated" and self.aggregate is not None:
            return self.aggregate
        return mean_of(self.members.values())

    def _note(
        self,
        node: int,
        event: str,
        slot: str = "",
        peer: int = -1,
        walk: int = -1,
        iteration: int = -1,
        number: int = -1,
        size: int = 0,
        key: int = 0,
        lr: float = 0.0,
        detail: object = "",
    ) -> None:
        self.trace.append((self.agenda.now, node, event, slot, peer, walk, iteration, number, size, key, lr, detail))

    def _hand_out(self) -> Chunk:
        notebook = self.notebook
        holders = [*self.members.values(), self.aggregate or ()]
        if not self.finished:  # after the end only what the run puts out is of interest
            holders += [terms for slots in notebook.slots.values() for terms in slots.values()]
            holders += self.under_way.values()
        live = {value for terms in holders for value, _ in terms}
        states = [] if self.finished else sorted(self.states.values())
        chunk = Chunk(notebook.ops, sorted(live), states, self.trace, self.finished)
        self.noted += len(self.trace)
        notebook.ops, self.trace = [], []
        return chunk
