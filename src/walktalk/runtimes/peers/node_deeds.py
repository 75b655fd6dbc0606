"""What a node's machine asks for is done here: effect by effect, by the interpreter, the link and the trainings."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from walktalk.errors import UnavailableError
from walktalk.protocols import (
    Apply,
    Combine,
    Decode,
    Differentiate,
    Effect,
    Encode,
    Forget,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
    control_bytes,
)
from walktalk.runtimes.peers.slots import to_wire
from walktalk.runtimes.peers.wire import Parcel
from walktalk.screens import rule_named

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node


class Deeds:
    """One node's hands."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def carry_out_all(self, effects: list[Effect]) -> None:
        """One after the other."""
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        node = self._node
        what, me = node.interpreter, node.me
        match effect:
            case Combine():
                what.combine(me, effect)
            case Record():
                what.record(me, effect)
                node.recorded = effect
            case Send():
                self._send(effect)
            case Train() | Differentiate():
                node.lessons.ask(effect)
            case Forget():
                what.forget(me, effect)
            case Encode():
                what.encode(me, effect, node.keys.getrandbits(63))
            case Decode():
                what.decode(me, effect)
            case Apply():
                # Whoever knows the study knows its seed: noise that is to hide something is made of nothing else.
                known = not (what.secret and rule_named(effect.rule).releases)
                what.apply(me, effect, node.keys.getrandbits(63) if known else secrets.randbits(63))
            case Note():
                what.note(me, effect)
            case SetTimer(name, after):
                node.clock.set_timer(f"machine/{name}", after)
            case _:
                raise UnavailableError(f"{node.setup.protocol.label}: {type(effect).__name__} needs the simulator")

    def _send(self, effect: Send) -> None:
        node, message = self._node, effect.message
        what = node.interpreter
        packed = what.pack(node.me, effect)
        if node.me in what.corrupt:
            packed = what.corrupted(node.me, effect.slot, packed, node.keys.getrandbits(63))
        travels = node.setup.optimizer_state == "walk" and message.walk > 0
        payload = to_wire(packed, node.trainer.state_width if travels else 0)
        parcel = Parcel(node.me, effect.to, message, -1 if payload is None else len(payload))
        withdrawn = 0
        if payload is not None:
            node.tell_tally(effect.to)  # where a model goes, training goes on: that node should know how far we are
            if effect.again and node.link.holds(parcel):
                return  # the protocol is impatient, but the link does not lose it
            if what.arrival(message).latest:
                withdrawn = self._withdraw(effect, packed.payload)
        stamp = node.link.send(parcel, payload)
        size = what.sent(node.me, effect, packed, stamp.number, stamp.incarnation)
        node.state.tally.add(sent=max(0, size - withdrawn))

    def _withdraw(self, effect: Send, payload: int) -> int:
        """Take back what waits for the same neighbour and is out of date; its bytes."""
        node = self._node
        old, total = node.link.withdraw(effect.to, effect.message.kind, effect.message.walk), 0
        for parcel, stamp in old:
            size = control_bytes(parcel.message) + payload
            node.interpreter.superseded(node.me, effect.to, effect.slot, size, payload, *reversed(stamp))
            total += size
        return total
