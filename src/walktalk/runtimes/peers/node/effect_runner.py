"""Gives events to a node's protocol machine, and carries out the effects that it asks for."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from walktalk.core.errors import UnavailableError
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
    Record,
    Send,
    SetTimer,
    Train,
    control_bytes,
)
from walktalk.runtimes.peers.node.models import Models
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.state import NodeState, TrainingRequest
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Parcel
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
                known = not (interpreter.secret and rule_named(effect.rule).releases)
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
