"""What comes to a node: who is listened to, what is kept for later, what is handled and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from walktalk.core.errors import ProtocolError
from walktalk.protocols import Forget, Received
from walktalk.runtimes.peers.node.effect_runner import EffectRunner
from walktalk.runtimes.peers.node.models import Implausible, Models
from walktalk.runtimes.peers.node.neighbours import Neighbours
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeState
from walktalk.runtimes.peers.wire.assembly import Delivery
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Parcel
from walktalk.runtimes.semantics import NOTHING


class Inbox:
    """Handles every whole message of a neighbour, in the node's loop, and lets none of them end the node."""

    def __init__(
        self,
        state: NodeState,
        link: Link,
        neighbours: Neighbours,
        models: Models,
        runner: EffectRunner,
        reports: Reports,
        hear: Mapping[str, Callable[[Parcel], None]],
    ) -> None:
        """
        - `state`, `link`, `neighbours`, `models`, `runner`, `reports`: the node's.
        - `hear`: by kind, what is called with messages that are between nodes and no business of the protocol.
        """
        self.hear = dict(hear)
        self._state, self._link, self._neighbours = state, link, neighbours
        self._models, self._runner, self._reports = models, runner, reports
        self._early: list[Delivery] = []  # messages from before the start; one model for each neighbour at most

    def arrived(self, delivery: Delivery) -> None:
        """Handle a whole message that has come."""
        parcel = delivery.parcel
        if parcel.sender not in self._state.alive:
            self._link.connections.look_around()  # its last words, or we have missed that it is there
        if not self._neighbours.admit(delivery):
            return
        hear = self.hear.get(parcel.message.kind)
        if not self._state.begun and hear is None:
            self._early.append(delivery)
            return
        try:
            self.handle(delivery) if hear is None else hear(parcel)
        except Implausible as error:
            self._refuse(parcel, "refused", error)
            self._runner.refuse(parcel.sender, parcel.message)
        except (ArithmeticError, LookupError, ValueError, ProtocolError) as error:
            self._refuse(parcel, "nonsense", error)  # nonsense from a neighbour must not end the node
        self._link.acknowledge(delivery)

    def catch_up(self) -> None:
        """Handle what came before the node began."""
        for delivery in self._early:
            self.arrived(delivery)
        self._early.clear()

    def _refuse(self, parcel: Parcel, reason: str, why: Exception) -> None:
        self._reports.trace("refused", peer=parcel.sender, walk=parcel.message.walk)
        sender = self._reports.news.name_of(parcel.sender)
        self._state.refused[sender] += 1
        self._link.drop(reason, f"{parcel.message.kind} from {sender}: {why}")

    def handle(self, delivery: Delivery) -> None:
        """Let the machine handle the message first, or refuse it; only then is anything written into a slot."""
        (sender, _, message, _), stamp, models = delivery.parcel, delivery.stamp, self._models
        interpreter = models.interpreter
        into, packed = interpreter.arrives_in(sender, message), NOTHING
        if (delivery.payload is None) != (not into):
            raise ProtocolError(f"{'nothing' if into else 'a model'} came with it")
        if delivery.payload is not None:
            packed = models.unpacked(sender, message, into, delivery.payload)
        effects = self._runner.handle(Received(sender, message, into))
        interpreter.receive(models.me, sender, message.walk, packed, stamp.number, stamp.incarnation)
        try:
            self._runner.carry_out_all(effects)
        except (LookupError, ValueError, ProtocolError):
            interpreter.forget(models.me, Forget(into))  # what is refused does not stay
            raise
