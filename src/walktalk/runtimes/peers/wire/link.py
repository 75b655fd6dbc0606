"""The link of a node to its neighbours: messages in, messages out.

A model travels on the channel `models`: reliable, in chunks, one message at a time for each neighbour, the next when
the last is acknowledged. The node acknowledges when it has handled the message, not when it arrived: a node that cannot
keep up slows its senders down, and its memory stays bounded. A small message goes on the channel `control`, ahead of
any model and never waiting for one; where the connection is stuck it is dropped, as a datagram would be.

An acknowledgement can be lost with its connection, so a sender that waits asks again once in a while, and sends the
message again if the other side has never heard of it. The stamp sees to it that no message is taken twice.
"""

from __future__ import annotations

import collections
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from walktalk.core.untrusted import shown
from walktalk.core.wall_clock import wall_nanoseconds
from walktalk.runtimes.peers.identity.handshake import DuplicateNames, duplicate_name
from walktalk.runtimes.peers.wire.connections import ConnectionEvents, Connections
from walktalk.runtimes.peers.wire.messages import (
    Ack,
    Answer,
    Assembler,
    Delivery,
    Limits,
    OutlivedError,
    Parcel,
    Pool,
    Stamp,
    WireError,
    chunks,
    decode_ack,
    encode_ack,
)
from walktalk.runtimes.peers.wire.outbox import Outbox
from walktalk.runtimes.peers.wire.session import ACKS, CONTROL, MODELS, Endpoint
from walktalk.transforms.codecs import Bytes

log = logging.getLogger(__name__)

REPORTED_AT_MOST = 20  # dropped messages that are logged one by one; the rest are only counted


@dataclass
class Traffic:
    """What went over a node's links. `dropped` counts by reason what was not a message."""

    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    resent: int = 0
    dropped: collections.Counter[str] = field(default_factory=collections.Counter)


@dataclass(frozen=True)
class Listener:
    """What the link calls, from threads of its own: each must return at once."""

    arrived: Callable[[Delivery], None] = lambda delivery: None
    taken: Callable[[Parcel], None] = lambda parcel: None  # a message of ours was acknowledged
    peer: Callable[[int, bool], None] = lambda peer, there: None  # a neighbour is there, or not any more


NOBODY = Listener()


class Link:
    """Messages of one node, both ways. Use as a context manager; nothing is received before `start`."""

    def __init__(
        self, endpoint: Endpoint, limits: Limits, listener: Listener = NOBODY, incarnation: int | None = None
    ) -> None:
        """
        - `endpoint`: the node's place.
        - `limits`: what neighbours may send.
        - `listener`: who is told what; can be set until `start`.
        - `incarnation`: of the node, a number that grows with each (`handshake.next_life`); the time if left out.
        """
        self.limits, self.listener = limits, listener
        self.traffic = Traffic()
        self.incarnation = wall_nanoseconds() if incarnation is None else incarnation
        self.duplicate_names = DuplicateNames(self.incarnation)
        self._numbers = collections.Counter[int]()
        self._pending: dict[int, Stamp] = {}  # by sender: arrived whole, and not yet handled by the node
        self._pool = Pool()
        self._models: dict[int, Assembler] = {}
        self._control: dict[int, Assembler] = {}
        self._outboxes: dict[int, Outbox] = {}
        for number in endpoint.neighbours.values():
            self._expect(endpoint, number)
        ears = ConnectionEvents(
            lambda channel, sender, data: self.receive(channel, sender, data),
            lambda key: self.drop("stranger", key),
            self._abandon,
            lambda peer, there: self.listener.peer(peer, there),
        )
        self.connections = Connections(endpoint, ears)

    @property
    def endpoint(self) -> Endpoint:
        """The node's place, with the neighbours and certificates of now."""
        return self.connections.endpoint

    def _expect(self, endpoint: Endpoint, number: int) -> None:
        """Be ready to send to a neighbour and to hear it; of one that was a neighbour before, what is known is kept."""
        if number not in self._outboxes:
            self._models[number] = Assembler(number, endpoint.number, self.limits, self._pool)
            self._control[number] = Assembler(number, endpoint.number, self.limits, self._pool, models=False)
            self._outboxes[number] = self._outbox(number)

    def _outbox(self, number: int) -> Outbox:
        return Outbox(
            lambda chunk: self.connections.put(number, MODELS, chunk),
            lambda word: self.connections.say(number, ACKS, word),
            lambda parcel: self.listener.taken(parcel),
            self._count_resent,
            self.incarnation,
        )

    def _count_resent(self) -> None:
        self.traffic.resent += 1

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Announce that this node is alive, and listen to the others."""
        self.connections.start()

    def close(self) -> None:
        """Leave. What is not acknowledged by now may be lost: `drain` first."""
        self.connections.begin_to_leave()
        for outbox in self._outboxes.values():
            outbox.close()
        self.connections.close()

    def step_aside(self) -> None:
        """Be as one that is gone, for all but the operator: say nothing any more, hear nobody, be seen by nobody."""
        self.connections.step_aside()
        for outbox in self._outboxes.values():
            outbox.cancel()

    def change(self, endpoint: Endpoint, dial: Mapping[str, str]) -> None:
        """Have other neighbours from now on.

        - `endpoint`: the node's place as it is now.
        - `dial`: names of new neighbours that do not connect by themselves, and where they are; "": at the relay.
        """
        for name, number in self.endpoint.neighbours.items():
            if name not in endpoint.neighbours:
                self._outboxes[number].cancel()
                self._pending.pop(number, None)
        for number in endpoint.neighbours.values():
            self._expect(endpoint, number)
        self.connections.change(endpoint, dial)

    # -- messages out -------------------------------------------------------------------------------------------------

    def send(self, parcel: Parcel, payload: Bytes | None) -> Stamp:
        """Send a message: a payload waits its turn and is acknowledged, a word goes out at once. Never blocks."""
        traffic = self.traffic
        traffic.sent_messages += 1
        traffic.sent_bytes += 64 + parcel.body_bytes
        if payload is not None:
            return self._outboxes[parcel.receiver].put(parcel, payload)
        self._numbers[parcel.receiver] += 1
        stamp = Stamp(self.incarnation, self._numbers[parcel.receiver])
        for chunk in chunks(parcel, None, stamp):
            self.connections.say(parcel.receiver, CONTROL, chunk)
        return stamp

    @property
    def bandwidth(self) -> float:
        """Bytes a second that models took to neighbours, the mean over those that were sent any; 0 where none were.

        Rounded to a power of two: nodes that are as good as equal shall be equal in an election.
        """
        rates = [outbox.rate for outbox in self._outboxes.values() if outbox.rate]
        return 2.0 ** round(math.log2(sum(rates) / len(rates))) if rates else 0.0

    def drain(self, seconds: float, peers: Iterable[int] | None = None) -> bool:
        """Wait until all that was sent to these is acknowledged, at most so long; whether it is."""
        end = time.monotonic() + seconds
        return all(outbox.wait_idle(end - time.monotonic()) for outbox in self._boxes(peers))

    def cancel(self, to: int) -> list[Parcel]:
        """Give up what this neighbour has not acknowledged: it is dead, and the node sends it elsewhere."""
        return self._outboxes[to].cancel()

    def withdraw(self, to: int, kind: str, walk: int) -> list[tuple[Parcel, Stamp]]:
        """Take back what waits for a neighbour and is of this kind and walk: a later one takes its place."""
        return self._outboxes[to].withdraw(kind, walk)

    def holds(self, parcel: Parcel) -> bool:
        """Whether this very message is still on its way, and will arrive without being sent again."""
        return self._outboxes[parcel.receiver].holds(parcel)

    def is_deaf(self, peer: int) -> bool:
        """Whether a neighbour acknowledges nothing any more."""
        return self._outboxes[peer].is_deaf

    def there_again(self, peer: int) -> None:
        """A neighbour has come: from now on it has the time that it takes to acknowledge what waits for it."""
        self._outboxes[peer].there_again()

    def ask_again(self, parcel: Parcel) -> None:
        """The algorithm asks once more for an answer to a message that is not on its way any more."""
        self._outboxes[parcel.receiver].ask_again(parcel.message)

    def is_mute(self, peer: int) -> bool:
        """Whether a neighbour takes what comes, and its algorithm answers nothing."""
        return self._outboxes[peer].is_mute

    def forget(self, peer: int) -> None:
        """Wait no more for what a neighbour has sent and nobody has handled: it may send the next."""
        self._pending.pop(peer, None)

    def taken(self, peer: int) -> int:
        """How many messages a neighbour has acknowledged."""
        return self._outboxes[peer].taken

    def waiting(self, peers: Iterable[int] | None = None) -> int:
        """Messages with models that these have not acknowledged yet."""
        return sum(len(outbox) for outbox in self._boxes(peers))

    def _boxes(self, peers: Iterable[int] | None) -> list[Outbox]:
        return [self._outboxes[peer] for peer in (self._outboxes if peers is None else peers)]

    # -- messages in --------------------------------------------------------------------------------------------------

    def receive(self, channel: str, sender: int, data: bytes) -> None:
        """A chunk, a word or an acknowledgement of a neighbour has come; called in Zenoh's threads."""
        try:
            self._receive(channel, sender, data)
        except Exception as error:  # whatever a stranger's bytes make somebody raise
            self.drop("refused", f"from {self._called(sender)}: {shown(error)}")

    def _receive(self, channel: str, sender: int, data: bytes) -> None:
        if channel == ACKS:
            self._receive_ack(sender, data)
        elif channel == CONTROL:
            delivery = self._assemble(self._control[sender], data)
            if delivery is not None:
                self._deliver(delivery)
        elif sender in self._pending:  # it was not asked for a second one
            self.drop("uncalled", f"from {self._called(sender)}")
        else:
            delivery = self._assemble(self._models[sender], data)
            if delivery is not None:
                if delivery.payload is not None:
                    self._pending[sender] = delivery.stamp
                self._deliver(delivery)

    def acknowledge(self, delivery: Delivery) -> None:
        """The node has handled this message: its sender may send the next."""
        sender = delivery.parcel.sender
        if delivery.payload is not None and self._pending.get(sender) == delivery.stamp:
            del self._pending[sender]
            self.connections.say(sender, ACKS, encode_ack(Ack(delivery.stamp, Answer.TAKEN, self.incarnation)))

    def _receive_ack(self, sender: int, data: bytes) -> None:
        try:
            ack = decode_ack(data)
        except WireError as error:
            self.drop(error.reason, f"from {self._called(sender)}: {error}")
            return
        if ack.answer is Answer.ASKED:
            said = Ack(ack.stamp, self._progress(sender, ack.stamp), self.incarnation)
            self.connections.say(sender, ACKS, encode_ack(said))
        elif ack.answer is Answer.BACK_SOON:
            self.connections.excuse(sender)
        elif ack.answer is Answer.OUTLIVED:
            if self.duplicate_names.told(ack.stamp.incarnation, sender):
                log.warning("%s: is not heard: %s", self.endpoint.name, duplicate_name(self.endpoint.name))
        elif ack.incarnation < (later := self._incarnation_of(sender)):
            # Taken, it could lose a walk with the one that nobody hears.
            self.drop("replayed", f"from {self._called(sender)}: an answer of {ack.incarnation} after {later}")
            self._answer_duplicate(sender, later)
        else:
            self._outboxes[sender].answered(ack)

    def _incarnation_of(self, sender: int) -> int:
        """The latest incarnation of a neighbour of which something came; 0 where nothing did."""
        return max(heard[sender].incarnation for heard in (self._models, self._control))

    def _progress(self, sender: int, stamp: Stamp) -> Answer:
        """How far a message is on this side."""
        if self._pending.get(sender) == stamp or self._models[sender].arriving == stamp:
            return Answer.WAITING
        return Answer.TAKEN if stamp <= self._models[sender].last else Answer.UNKNOWN

    def _abandon(self, number: int) -> None:
        """The connection to a neighbour broke: the rest of what was arriving will not come."""
        for assembler in (self._models[number], self._control[number]):
            assembler.abandon()

    def _assemble(self, assembler: Assembler, data: bytes) -> Delivery | None:
        try:
            delivery = assembler.add(data, time.monotonic())
        except WireError as error:
            self.drop(error.reason, f"from {self._called(assembler.sender)}: {error}")
            if isinstance(error, OutlivedError):
                self._answer_duplicate(assembler.sender, assembler.incarnation)
            return None
        if delivery is not None:  # on whatever channel: a walk of an incarnation that is over would be there twice
            for other in (self._models[assembler.sender], self._control[assembler.sender]):
                other.incarnation = max(other.incarnation, assembler.incarnation)
        return delivery

    def _answer_duplicate(self, sender: int, incarnation: int) -> None:
        """Words of an earlier incarnation keep coming: say here and there that two nodes have one name."""
        new = sender not in self.duplicate_names.doubled()
        if self.duplicate_names.dropped(sender):
            self.connections.say(sender, ACKS, encode_ack(Ack(Stamp(incarnation, 0), Answer.OUTLIVED)))
            if new:
                log.warning("%s: %s", self.endpoint.name, duplicate_name(self._called(sender)))

    def _deliver(self, delivery: Delivery) -> None:
        self.traffic.received_messages += 1
        self.traffic.received_bytes += 64 + delivery.parcel.body_bytes
        self.listener.arrived(delivery)

    def _called(self, number: int) -> str:
        """A neighbour's name, for the log."""
        return next((name for name, known in self.endpoint.neighbours.items() if known == number), str(number))

    def drop(self, reason: str, detail: str) -> None:
        """Count what is not a message, and say so the first few times."""
        dropped = self.traffic.dropped
        dropped[reason] += 1
        if dropped.total() <= REPORTED_AT_MOST:
            log.warning("%s: dropped a message (%s): %s", self.endpoint.name, reason, detail)
