"""The nodes of one run in virtual time: their machines, what they train, and the timers that they have set."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeAlias

from walktalk.protocols import (
    Context,
    Differentiate,
    Effect,
    Event,
    Machine,
    NetworkView,
    Protocol,
    Received,
    SetTimer,
    TimerFired,
    Train,
    Trained,
)
from walktalk.runtimes.semantics import UsualTraining, made
from walktalk.runtimes.simulator.links import Transport
from walktalk.runtimes.simulator.network_views import Changes, all_network_views
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import ANYTHING, TIMER, TRAINED, Agenda, Envelope, Training
from walktalk.runtimes.simulator.timing import RunSetup, Stopwatch

Asked: TypeAlias = Train | Differentiate
CarryOut: TypeAlias = Callable[[int, Any], None]


class Nodes:
    """Gives events to the machines of all nodes, and has carried out what they ask for."""

    def __init__(
        self, setup: RunSetup, protocol: Protocol, stopwatch: Stopwatch, transport: Transport, recording: Recording
    ) -> None:
        """
        - `setup`: the run's.
        - `protocol`: makes machines; resilient where something may fail.
        - `stopwatch`: knows how fast nodes are.
        - `transport`: settles its links when a machine's effects are carried out.
        - `recording`: writes down what arrives.
        """
        self._setup, self._protocol, self._stopwatch = setup, protocol, stopwatch
        self._transport, self._recording = transport, recording
        self._has_links, self._written = transport.links is not None, recording.written
        self.context = Context(0.0, setup.seed.child("protocol").python())
        self.changes = Changes.of(setup.faults, setup.graph, setup.protocol)  # None: nobody joins or leaves for good
        self.machines: list[Machine] = [protocol.machine(around) for around in self.network_views()]
        self.carries_out: dict[type, CarryOut] = {}  # who carries out which effect; the others are let pass

    def network_views(self) -> list[NetworkView]:
        """What every node knows of the network now."""
        known = all_network_views(self._setup.graph, self._stopwatch, self._setup.samples)
        return known if self.changes is None else self.changes.network_view(known)

    def give(self, node: int, event: Event) -> None:
        """Let a node take an event, and carry out what it asks for."""
        self._carry_out(node, self.machines[node].handle(event, self.context))

    def _carry_out(self, node: int, effects: list[Effect]) -> None:
        carries_out = self.carries_out
        for effect in effects:
            carry_out = carries_out.get(type(effect))
            if carry_out is not None:
                carry_out(node, effect)
        if self._has_links:
            self._transport.settle()

    def receive(self, envelope: Envelope) -> None:
        """A message arrives: the machine takes it first; then what came with it is put into its slot."""
        sender, node, message, packed, _ = envelope
        effects = self.machines[node].handle(made(Received, (sender, message, packed.into)), self.context)
        if self._written:
            self._recording.receive(envelope)
        self._carry_out(node, effects)

    def miss(self, envelope: Envelope) -> None:
        """A message was lost, and its receiver notices."""
        sender, node, message, _, _ = envelope
        self._carry_out(node, self.machines[node].missed(sender, message, self.context))

    def restart(self, node: int) -> None:
        """A node is back, with a machine that knows nothing."""
        self.machines[node] = self._protocol.machine(self.network_views()[node])


class Trainings:
    """The trainings of one run: one at a time a node where computing takes time, and others wait for their turn."""

    def __init__(
        self, setup: RunSetup, agenda: Agenda, stopwatch: Stopwatch, nodes: Nodes, recording: Recording, queue: bool
    ) -> None:
        """
        - `setup`: the run's.
        - `agenda`: where ends are put.
        - `stopwatch`: says how long a training takes.
        - `nodes`: hear of the end of theirs.
        - `recording`: writes them down.
        - `queue`: whether a node trains one model at a time.
        """
        self._setup, self._agenda, self._nodes, self._recording = setup, agenda, nodes, recording
        self._interpreter, self._written, self._queue = recording.interpreter, recording.written, queue
        self.stopwatch = stopwatch
        self.begun = 0  # how many
        self.seconds = 0.0  # how long those take, all together
        self.under_way: dict[int, Training] = {}  # by node, where a node trains one model at a time
        self._waiting: dict[int, deque[Asked]] = {}  # by node: trainings that queue
        self.usual: defaultdict[int, UsualTraining] = defaultdict(UsualTraining)  # by node: how long trainings take
        self._learns = any(fault.kind == "hang" for fault in setup.faults.faults)

    def ask(self, node: int, effect: Asked) -> None:
        """Begin a training, or let it wait for its turn."""
        if self._queue and node in self.under_way:
            self._waiting.setdefault(node, deque()).append(effect)
        else:
            self._begin(node, effect)

    def _begin(self, node: int, effect: Asked) -> None:
        number = self.begun
        self.begun += 1
        work, made_of = self._recording.begin_training(node, effect, number) if self._written else (None, ANYTHING)
        training = made(Training, (node, effect.slot, effect.walk, number, effect[2], work, made_of))
        self.under_way[node] = training
        seconds = self.stopwatch.training_time(node)
        if effect[2]:  # the protocol's own number of steps; what a training takes is said of one as the study has it
            seconds *= effect[2] / self._setup.local_steps
        elif self._setup.work:
            seconds *= self._setup.work[node]
        self.seconds += seconds
        if self._learns:
            self.usual[node].observe(seconds)
        self._agenda.put(seconds, TRAINED, training)

    def end(self, training: Training) -> None:
        """A training is done: its node hears of it, and the next that waits there begins."""
        setup, interpreter, node = self._setup, self._interpreter, training.node
        self.under_way.pop(node, None)
        work = training.work
        if work is not None:
            self._recording.lose_training(training)
            interpreter.end_training(work, training.result)
            self._nodes.give(node, made(Trained, (training.slot, training.walk, work.lr, work.steps)))
            interpreter.forget_result(node)
        else:
            interpreter.iteration += 1
            steps = training.steps or (setup.steps_of[node] if setup.steps_of else setup.local_steps)
            self._nodes.give(node, made(Trained, (training.slot, training.walk, setup.lr, steps)))
        if self._queue and node not in self.under_way and self._waiting.get(node):
            self._begin(node, self._waiting[node].popleft())

    def give_up(self, training: Training) -> None:
        """Nobody waits for the end of a training any more."""
        if self.under_way.get(training.node) is training:
            del self.under_way[training.node]

    def take_walks(self, node: int) -> list[Asked]:
        """The walks that wait for their turn at a node; they wait no more."""
        waiting = self._waiting.get(node, deque())
        self._waiting[node] = deque(effect for effect in waiting if effect.walk <= 0)
        return [effect for effect in waiting if effect.walk > 0]

    def stop(self, node: int) -> None:
        """A node is dead: what it trained and what waited there is gone."""
        self.under_way.pop(node, None)
        self._waiting.pop(node, None)


class Timers:
    """The timers that nodes have set, of which the last of a name counts."""

    def __init__(self, agenda: Agenda, nodes: Nodes) -> None:
        self._agenda, self._nodes = agenda, nodes
        self._versions: dict[tuple[int, str], int] = {}  # the version that counts
        self._set = 0  # how many: a version is never used again, so one that was replaced is never taken for a later

    def set(self, node: int, effect: SetTimer) -> None:
        """Carry out a `SetTimer`."""
        self._set += 1
        version = self._versions[node, effect.name] = self._set
        self._agenda.put(effect.after, TIMER, (node, effect.name, version))

    def fire(self, timer: tuple[int, str, int]) -> None:
        """A timer runs out; one that was replaced or stopped says nothing."""
        node, name, version = timer
        if self._versions.get((node, name)) == version:
            del self._versions[node, name]
            self._nodes.give(node, TimerFired(name))

    def stop(self, node: int) -> None:
        """A node is dead: it waits for nothing any more."""
        for timer in [timer for timer in self._versions if timer[0] == node]:
            del self._versions[timer]
