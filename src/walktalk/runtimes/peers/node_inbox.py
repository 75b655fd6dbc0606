"""What comes to a node: who may be listened to, what is kept for later, what is taken and what refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.errors import ProtocolError
from walktalk.protocols import Forget, Received
from walktalk.runtimes.meaning import NOTHING
from walktalk.runtimes.peers import node_members, own_words
from walktalk.runtimes.peers import tally as tallies
from walktalk.runtimes.peers.assembly import Delivery
from walktalk.runtimes.peers.judging import Refused
from walktalk.runtimes.peers.wire import Parcel

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node


class Inbox:
    """One node's."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._early: list[Delivery] = []  # messages from before the start; one model for each neighbour at most

    def arrived(self, delivery: Delivery) -> None:
        """A whole message is here."""
        node, parcel = self._node, delivery.parcel
        if parcel.sender not in node.state.alive:
            node.link.look_around()  # its last words, or we have missed that it is there
        if not node.neighbours.admit(delivery):
            return
        words = {
            tallies.KIND: self.hear_tally,
            node_members.KIND: node.members.hear,
            own_words.KIND: self.hear_certificate,
        }
        hear = words.get(parcel.message.kind)
        if not node.begun and hear is None:
            self._early.append(delivery)
            return
        try:
            self.take(delivery) if hear is None else hear(parcel)
        except Refused as error:
            self._refuse(parcel, error)
            node.deeds.carry_out_all(node.machine.refused(parcel.sender, parcel.message, node.look_outside()))
        except (ArithmeticError, LookupError, ValueError, ProtocolError) as error:
            self._refuse(parcel, error)  # nonsense from a neighbour must not end the node
        node.link.take(delivery)

    def catch_up(self) -> None:
        """The node has begun: what came before is taken now."""
        for delivery in self._early:
            self.arrived(delivery)
        self._early.clear()

    def _refuse(self, parcel: Parcel, why: Exception) -> None:
        node = self._node
        node.note("refused", peer=parcel.sender, walk=parcel.message.walk)
        reason, sender = ("refused" if isinstance(why, Refused) else "nonsense"), node.news.name_of(parcel.sender)
        node.state.refused[sender] += 1
        node.link.drop(reason, f"{parcel.message.kind} from {sender}: {why}")

    def hear_tally(self, parcel: Parcel) -> None:
        """How far others are."""
        node = self._node
        lasted = node.state.tally.hear(parcel.sender, parcel.message.note)
        if node.begun:
            node.clock.hear(lasted)
            node.lessons.see_the_end()

    def hear_certificate(self, parcel: Parcel) -> None:
        """By which to tell whose words are heard; a new one is passed on."""
        node = self._node
        if node.words is not None and node.words.learn(parcel.message.note):
            for peer in node.state.alive - {parcel.sender}:
                node.tell_certificate(peer, parcel.message.note)

    def take(self, delivery: Delivery) -> None:
        """The machine takes the message first, or refuses it; only then is anything written into a slot."""
        node, (sender, _, message, _), stamp = self._node, delivery.parcel, delivery.stamp
        what = node.interpreter
        arrival, into, packed = what.arrival(message), what.arrives_in(sender, message), NOTHING
        if (delivery.payload is None) != (not into):
            raise ProtocolError(f"{'nothing' if into else 'a model'} came with it")
        if delivery.payload is not None:
            packed = node.tensors.from_wire(delivery.payload, into, arrival.codec)
            node.judge.check(sender, message.kind, packed)
            node.judge.check_room(sender, into, what.slots[node.me])
        effects = node.answer(Received(sender, message, into))
        what.receive(node.me, sender, message.walk, packed, stamp.number, stamp.incarnation)
        try:
            node.deeds.carry_out_all(effects)
        except (LookupError, ValueError, ProtocolError):
            what.forget(node.me, Forget(into))  # what is refused does not stay
            raise
