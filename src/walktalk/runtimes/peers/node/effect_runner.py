"""What comes to a node goes to its protocol machine, or is refused; what the machine asks for is carried out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from walktalk.core.errors import ProtocolError, UnavailableError
from walktalk.core.undo import remembered
from walktalk.core.untrusted import Boundary, shown
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
    Note,
    Received,
    Record,
    Send,
    SetTimer,
    Train,
    control_bytes,
)
from walktalk.runtimes.peers.node.models import Implausible, Models
from walktalk.runtimes.peers.node.neighbours import Neighbours
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeState, TrainingRequest
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Delivery, Parcel
from walktalk.runtimes.semantics import NOTHING, Packed
from walktalk.transforms.rules import rule_named

MACHINE = "machine/"  # before the name of a timer that the machine has set


class EffectRunner:
    """Runs one node's machine: an event goes in, and what the machine answers is done by models, link and trainings."""

    def __init__(
        self,
        machine: Machine,
        context: Context,
        models: Models,
        link: Link,
        state: NodeState,
        progress: Progress,
        train: Callable[[TrainingRequest], None],
    ) -> None:
        """
        - `machine`: the protocol's, for this node.
        - `context`: time and random bits, as the machine sees them; brought up to date before every event.
        - `models`, `link`, `state`, `progress`: the node's.
        - `train`: begins a training, or queues it.
        """
        self.machine = machine
        self._context, self._models, self._link = context, models, link
        self._state, self._progress, self._train = state, progress, train

    def give(self, event: Event) -> None:
        """Let the machine handle an event, and carry out what it asks for."""
        self.carry_out_all(self.handle(event))

    def handle(self, event: Event) -> list[Effect]:
        """Let the machine handle an event; returns the effects that it asks for, which are not carried out yet."""
        return self.machine.handle(event, self._current_context())

    def refuse(self, sender: int, message: Message) -> None:
        """Tell the machine that what came with a message was no model, so that the sender does not wait for ever."""
        self.carry_out_all(self.machine.refused(sender, message, self._current_context()))

    def _current_context(self) -> Context:
        self._context.now = self._state.clock.elapsed
        if self._context.resources is not None:
            self._context.resources = (self._link.bandwidth, *self._context.resources[1:])
        return self._context

    def carry_out_all(self, effects: list[Effect]) -> None:
        """Carry out effects, one after the other."""
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        models, me = self._models, self._models.me
        interpreter = models.interpreter
        match effect:
            case Combine():
                interpreter.combine(me, effect)
            case Record():
                interpreter.record(me, effect)
                models.recorded = effect
            case Send():
                self._send(effect)
            case Train() | Differentiate():
                self._train(effect)
            case Forget():
                interpreter.forget(me, effect)
            case Encode():
                interpreter.encode(me, effect, models.draw_key())
            case Decode():
                interpreter.decode(me, effect)
            case Apply():
                # Whoever knows the study knows its seed: noise that is to hide something is made of nothing else.
                known = not (interpreter.releases.secret and rule_named(effect.rule).releases)
                interpreter.apply(me, effect, models.draw_key() if known else secrets.randbits(63))
            case Note():
                interpreter.note(me, effect)
            case SetTimer(name, after):
                self._state.clock.set_timer(f"{MACHINE}{name}", after)
            case _:
                raise UnavailableError(f"{type(effect).__name__} needs the simulator; use --engine sim")

    def _send(self, effect: Send) -> None:
        models, message = self._models, effect.message
        packed = models.interpreter.pack(models.me, effect)
        payload = models.bytes_of(packed, message)
        parcel = Parcel(models.me, effect.to, message, -1 if payload is None else len(payload))
        withdrawn = 0
        if payload is not None:
            self._progress.announce(effect.to)  # where a model goes, training goes on: it should know how far we are
            if effect.again and self._link.holds(parcel):
                return  # the protocol is impatient, but the link does not lose it
            if effect.again and models.interpreter.arrival(message).prompt:
                self._link.ask_again(parcel)
            if models.interpreter.arrival(message).latest:
                withdrawn = self._withdraw(effect, packed.payload)
        stamp = self._link.send(parcel, payload)
        size = models.interpreter.sent(models.me, effect, packed, stamp.number, stamp.incarnation)
        self._progress.tally.add(sent=max(0, size - withdrawn))

    def _withdraw(self, effect: Send, payload: int) -> int:
        """Take back what waits for the same neighbour and is out of date; its bytes."""
        models, total = self._models, 0
        for parcel, stamp in self._link.withdraw(effect.to, effect.message.kind, effect.message.walk):
            size = control_bytes(parcel.message) + payload
            models.interpreter.superseded(models.me, effect.to, effect.slot, size, payload, *reversed(stamp))
            total += size
        return total


# -- What comes to a node: who is listened to, what is kept for later, what is handled and what is refused ------------


class Inbox:
    """Handles every whole message of a neighbour, in the node's loop, and lets none of them end the node.

    It is the boundary behind which nobody needs to be careful: whatever a message makes somebody raise, it is refused,
    counted and named, and the machine is as it was before.
    """

    def __init__(
        self,
        later: Callable[[Callable[[], None]], None],
        state: NodeState,
        link: Link,
        neighbours: Neighbours,
        models: Models,
        runner: EffectRunner,
        reports: Reports,
        hear: Mapping[str, Callable[[Parcel], None]],
    ) -> None:
        """
        - `later`: has the node's loop make a call when its turn comes.
        - `state`, `link`, `neighbours`, `models`, `runner`, `reports`: the node's.
        - `hear`: by kind, what is called with messages that are between nodes and no business of the protocol.
        """
        self.hear, self._later = dict(hear), later
        self._state, self._link, self._neighbours = state, link, neighbours
        self._models, self._runner, self._reports = models, runner, reports
        self.boundary = Boundary(self._refused)
        self._early: list[Delivery] = []  # messages from before the start; one model for each neighbour at most

    def put(self, delivery: Delivery) -> None:
        """Have the loop handle a whole message that has come; called in the link's threads."""
        self._later(partial(self.arrived, delivery))

    def arrived(self, delivery: Delivery) -> None:
        """Handle a whole message that has come."""
        sender, kind = delivery.parcel.sender, delivery.parcel.message.kind
        if sender not in self._state.alive:
            self._link.connections.look_around()  # its last words, or we have missed that it is there
        if self.boundary(str(sender), kind, partial(self._is_dealt_with, delivery), True):
            self._link.acknowledge(delivery)

    def _is_dealt_with(self, delivery: Delivery) -> bool:
        """Handle a message; whether nothing more is to be done with it. Raises whatever is wrong with it."""
        parcel = delivery.parcel
        try:
            if not self._neighbours.admit(delivery):
                return False
            hear = self.hear.get(parcel.message.kind)
            if not self._state.begun and hear is None:
                self._early.append(delivery)
                return False
            self.handle(delivery) if hear is None else hear(parcel)
        except Exception as error:
            self._reports.trace("refused", peer=parcel.sender, walk=parcel.message.walk)
            reason, name = "nonsense", self._reports.news.name_of(parcel.sender)
            if isinstance(error, Implausible):
                reason = "refused"
                with suppress(Exception):  # it is refused whatever its other parts are
                    self._or_as_before(lambda: self._runner.refuse(parcel.sender, parcel.message))
            self._link.drop(reason, f"{parcel.message.kind} from {name}: {shown(error)}")
            raise
        return True

    def _or_as_before(self, call: Callable[[], None]) -> None:
        """Make a call; where it raises anything, the machine is put back to what it was before."""
        put_back = remembered(self._runner.machine)
        try:
            call()
        except Exception:
            put_back()
            raise

    def catch_up(self) -> None:
        """Handle what came before the node began."""
        for delivery in self._early:
            self.arrived(delivery)
        self._early.clear()

    def _refused(self, sender: str, kind: str, why: str) -> None:
        name = self._reports.news.name_of(int(sender))
        self._state.refused[name] += 1
        self._state.refusals[name] = f"a {kind}: {why}"

    def handle(self, delivery: Delivery) -> None:
        """Let the machine handle the message first, or refuse it; only then is anything written into a slot."""
        (sender, _, message, _), models = delivery.parcel, self._models
        interpreter = models.interpreter
        into, packed = interpreter.arrives_in(sender, message), NOTHING
        if (delivery.payload is None) != (not into):
            raise ProtocolError(f"{'nothing' if into else 'a model'} came with it")
        if delivery.payload is not None:
            packed = models.unpacked(sender, message, into, delivery.payload)
        self._or_as_before(lambda: self._receive(delivery, into, packed))

    def _receive(self, delivery: Delivery, into: str, packed: Packed) -> None:
        (sender, _, message, _), stamp, models = delivery.parcel, delivery.stamp, self._models
        before = {into: models.slots[into]} if into in models.slots else {}
        effects = self._runner.handle(Received(sender, message, into))
        models.interpreter.receive(models.me, sender, message.walk, packed, stamp.number, stamp.incarnation)
        try:
            self._runner.carry_out_all(effects)
        except Exception:
            models.interpreter.forget(models.me, Forget(into))  # what is refused does not stay
            models.slots.update(before)
            raise
