"""The link of a node to its neighbours: messages in, messages out, and who is there.

A model travels on the channel `models`: reliable, in chunks, one message at a time for each neighbour, the next when
the last is acknowledged. The node acknowledges when it has taken the message, not when it arrived: a node that cannot
keep up slows its senders down, and its memory stays bounded. A small message goes on the channel `control`, ahead of
any model and never waiting for one; where the connection is stuck it is dropped, as a datagram would be.

An acknowledgement can be lost with its connection, so a sender that waits asks again once in a while, and sends the
message again if the other side has never heard of it. The stamp sees to it that no message is taken twice.
"""

from __future__ import annotations

import collections
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import zenoh

from walktalk.codecs import Bytes
from walktalk.errors import StudyError, UnavailableError, UserError
from walktalk.runtimes.peers.assembly import Assembler, Delivery, Limits, OutlivedError, Pool
from walktalk.runtimes.peers.buffers import fit_buffers
from walktalk.runtimes.peers.certificates import OPERATOR, RELAY, Credentials
from walktalk.runtimes.peers.line import Line, declared, take_back
from walktalk.runtimes.peers.namesakes import Namesakes, two_called
from walktalk.runtimes.peers.outbox import Outbox
from walktalk.runtimes.peers.presence import Presence
from walktalk.runtimes.peers.renewal import Renewal
from walktalk.runtimes.peers.revocations import Revocations
from walktalk.runtimes.peers.session import ACKS, CONTROL, MODELS, REVOKED, Endpoint, close_session, open_session
from walktalk.runtimes.peers.tunnels import doors, open_tunnels
from walktalk.runtimes.peers.wire import Ack, Answer, Parcel, Stamp, WireError, chunks, decode_ack, encode_ack

log = logging.getLogger(__name__)

REOPENING = 5.0  # seconds that the old connections may take to close where new ones are opened in their place
WORDS_TRAVEL = 0.1  # seconds for the words that say so to be on their way
CLOSING = 20.0  # seconds that a node waits until its last words are sent and connections are closed
REPORTED_AT_MOST = 20  # dropped messages that are logged one by one; the rest are only counted
SECONDS_BETWEEN_LOOKS = 1.0  # at the tokens of others


Reply: TypeAlias = Callable[[Mapping[str, str]], bytes]  # from what is asked


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

    arrived: Callable[[Delivery], None]
    taken: Callable[[Parcel], None]  # a message of ours was acknowledged
    peer: Callable[[int, bool], None]  # a neighbour is there, or not any more


class Link:
    """One node's connections. Use as a context manager; nothing is received before `start`."""

    def __init__(self, endpoint: Endpoint, limits: Limits, listener: Listener, life: int | None = None) -> None:
        """
        - `endpoint`: the node's place.
        - `limits`: what neighbours may send.
        - `listener`: who is told what.
        - `life`: of the node, a number that grows with each (`lives`); the time if left out.
        """
        self.endpoint, self.limits, self.listener = endpoint, limits, listener
        self.traffic = Traffic()
        self.blocked: frozenset[int] = frozenset()  # neighbours that are not heard: a cut cable, for tests
        self.incarnation = time.time_ns() if life is None else life
        self.namesakes = Namesakes(self.incarnation)
        self.closed = False  # whether all connections are
        self._fitted = -math.inf  # when buffers were looked at
        self._looked = -math.inf  # when it was asked who is there
        self._numbers = collections.Counter[int]()
        self._pending: dict[int, Stamp] = {}  # by sender: arrived whole, and not yet taken by the node
        self._pool = Pool()
        self._models: dict[int, Assembler] = {}
        self._control: dict[int, Assembler] = {}
        self._outboxes: dict[int, Outbox] = {}
        self._out: dict[tuple[int, str], zenoh.Publisher] = {}
        self._lines: dict[int, Line] = {}  # to neighbours that came while it ran
        self._presence = Presence(listener.peer)
        self._answers: dict[tuple[str, str], Reply] = {}  # by who asks and the question
        self._started = False
        self._aside = False  # whether it says nothing any more
        self._leaving = threading.Event()
        self._changing = threading.Lock()  # held by whoever opens or closes connections
        self.tunnels = open_tunnels(endpoint)  # None without a relay
        try:
            self._session = open_session(endpoint, doors(self.tunnels))
        except BaseException:
            self._close_tunnels()
            raise
        self._admitted = _admitted(endpoint)
        self._held: list[object] = []  # what is declared: kept, or Zenoh would take it back
        for name, number in endpoint.neighbours.items():
            self._expect(name, number)
        self.renewal = self._watch_certificates()  # None without certificates

    def _watch_certificates(self) -> Renewal | None:
        own = self.endpoint
        if own.credentials is None:
            return None
        self.answer(REVOKED, self._take_list)
        return Renewal(own.credentials, own.name, self._others, self._renew)

    def _others(self) -> tuple[str, ...]:
        """Whose certificates matter here."""
        return (*self.endpoint.neighbours, *self.endpoint.admits, OPERATOR, RELAY)

    def _renew(self, files: Credentials) -> None:
        own = self.endpoint
        now, then = files.revocations, own.credentials.revocations if own.credentials is not None else Revocations()
        refused = [number for name, number in own.neighbours.items() if now.accepted(name) != then.accepted(name)]
        if self.tunnels is not None:
            self.tunnels.renew(files)
        self.reopen(replace(own, credentials=files), refused)

    def _take_list(self, asked: Mapping[str, str]) -> bytes:
        """The operator brings a list of revoked certificates."""
        said: dict[str, object] = {"taken": False, "why": ""}
        try:
            said["taken"] = self.renewal is not None and self.renewal.take_list(asked.get("said", ""))
        except (OSError, UserError) as error:
            said["why"] = str(error)
        return json.dumps(said).encode()

    def _expect(self, name: str, number: int) -> None:
        """Be ready to send to a neighbour and to hear it; of one that was a neighbour before, what is known is kept."""
        me, pool = self.endpoint.number, self._pool
        if number not in self._outboxes:
            self._models[number] = Assembler(number, me, self.limits, pool)
            self._control[number] = Assembler(number, me, self.limits, pool, models=False)
            self._outboxes[number] = self._outbox(number)
        for channel in (ACKS, CONTROL, MODELS):
            self._out[number, channel] = self._publisher(name, number, channel)

    def change(self, endpoint: Endpoint, dial: Mapping[str, str]) -> None:
        """Other neighbours from now on.

        - `endpoint`: the node's place as it is now.
        - `dial`: names of new neighbours that do not connect by themselves, and where they are; "": at the relay.
        """
        with self._changing:
            endpoint = replace(endpoint, credentials=self.endpoint.credentials)  # which may be newer
            before, self.endpoint = self.endpoint.neighbours, endpoint
            for name, number in before.items():
                if name not in endpoint.neighbours:
                    self._outboxes[number].cancel()
                    self._pending.pop(number, None)
                    line = self._lines.pop(number, None)
                    if line is not None:
                        threading.Thread(target=line.close, name="line", daemon=True).start()
            for name, number in endpoint.neighbours.items():
                if name not in before:
                    if name in dial:
                        self._dial(name, number, dial[name])
                    self._expect(name, number)
                    self._declare_on_line(number)
            unheard = endpoint.neighbours.keys() - before.keys() - self._admitted - dial.keys()
        if unheard and endpoint.credentials is not None and not self._leaving.is_set():
            threading.Thread(target=self._admit, args=(endpoint,), name="admitting", daemon=True).start()

    def _admit(self, endpoint: Endpoint) -> None:
        """Let those in that connect, and of whom nobody knew when this node began to listen: two joined at once."""
        try:
            self.reopen(replace(endpoint, credentials=self.endpoint.credentials, neighbours=self.endpoint.neighbours))
        except UnavailableError as error:
            log.warning("%s: cannot listen to its new neighbours: %s", endpoint.name, error)

    def redial(self, name: str, address: str) -> None:
        """A neighbour is elsewhere now; "": at the relay."""
        with self._changing:
            number = self.endpoint.neighbours[name]
            line = self._lines.pop(number, None)
            if line is not None:
                threading.Thread(target=line.close, name="line", daemon=True).start()
            self._dial(name, number, address)
            self._expect(name, number)
            self._declare_on_line(number)

    def _dial(self, name: str, number: int, address: str) -> None:
        """Open a line to a neighbour; what it says of where it is may be nonsense, and then it is not reached.

        Not to one that was a neighbour when this node began, has left and is back where it was: the first session has
        called there all along, and on two connections everything would come twice.
        """
        if name in self._admitted and self._calls(name, address):
            return
        try:
            self._lines[number] = Line(self.endpoint, name, number, address, self.tunnels)
        except UnavailableError as error:
            where = address or "the relay"
            log.warning("%s: %s cannot be dialled at %s: %s", self.endpoint.name, name, where, error)

    def _calls(self, name: str, address: str) -> bool:
        """Whether the first session keeps calling there."""
        if address:
            return address in self.endpoint.connect
        return self.tunnels is not None and name in self.tunnels.addresses

    def _declare_on_line(self, number: int) -> None:
        if number in self._lines and self._started:
            line = self._lines[number]
            line.held = self._ears(line.session)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Say that this node is alive, and listen to the others."""
        with self._changing:
            self._started = True
            self._declare_ears()

    def step_aside(self) -> None:
        """Be as one that is gone, for all but the operator: say nothing any more, hear nobody, be seen by nobody."""
        with self._changing:
            self._aside, self._started = True, False
            for held in (self._held, *(line.held for line in self._lines.values())):
                take_back(held)
            for outbox in self._outboxes.values():
                outbox.cancel()

    def _declare_ears(self) -> None:
        self._held += self._ears(self._session)

    def _ears(self, session: zenoh.Session) -> list[object]:
        channels = {MODELS: self._on_models, CONTROL: self._on_control, ACKS: self._on_ack}
        return declared(session, self.endpoint, channels, self._on_token)

    def reopen(self, endpoint: Endpoint, refused: Iterable[int] = ()) -> None:
        """Close all connections and open them anew, as this endpoint says: other certificates, other permissions.

        Neighbours are told before: for them, and for this node, nobody has gone, and what was under way is sent again.
        But for those that are `refused` from now on: they have gone.
        Takes about a second, longer where the old connections do not close; nobody else needs to wait for it.
        """
        with self._changing:
            staying = set(self.endpoint.neighbours.values()) - set(refused)
            for number in staying:
                self._put(number, ACKS, encode_ack(Ack(Stamp(0, 0), Answer.BACK_SOON)))
            self._presence.excuse(staying)
            self._leaving.wait(WORDS_TRAVEL)
            close_session(self._session, REOPENING)
            for number in self.endpoint.neighbours.values():
                self._gone(number)
            self.endpoint = endpoint
            self._session = self._open_again()
            self._admitted = _admitted(endpoint)
            self._held = []
            for number, line in self._lines.items():
                line.close()
                self._lines[number] = Line(endpoint, line.name, number, line.address, self.tunnels)
            for name, number in endpoint.neighbours.items():
                self._expect(name, number)
            for asked in self._answers:
                self._declare_answer(*asked)
            if self._started:
                self._declare_ears()
            for number in self._lines:
                self._declare_on_line(number)

    def _open_again(self) -> zenoh.Session:
        """The port may be taken for a while, by connections of before that linger."""
        end = time.monotonic() + CLOSING
        while True:
            try:
                return open_session(self.endpoint, doors(self.tunnels))
            except UnavailableError:
                if time.monotonic() > end or self._leaving.wait(0.2):
                    raise

    def fit_buffers(self) -> None:
        """See to it that nothing waits long in the system's buffers; costs little, and is to be called now and then."""
        now = time.monotonic()
        if now >= self._fitted + SECONDS_BETWEEN_LOOKS:
            self._fitted = now
            relay = [self.endpoint.relay.address] if self.endpoint.relay is not None else []
            lines = [line.address for line in self._lines.values()]
            addresses = (self.endpoint.listen, *self.endpoint.connect, *relay, *lines)
            fit_buffers(int(port) for *_, port in (address.rsplit(":", 1) for address in addresses) if port.isdecimal())

    def look_around(self) -> None:
        """Ask which neighbours are there; the answers come as those of the tokens do.

        Tokens are announced once, and where both sides of a connection have just started, an announcement can get
        lost on the way (seen with Zenoh 1.x: messages come, a query finds the token, the subscriber never hears of it).
        """
        now = time.monotonic()
        if now >= self._looked + SECONDS_BETWEEN_LOOKS:
            self._looked = now
            with suppress(zenoh.ZError):  # where it is being opened anew
                for session in (self._session, *(line.session for line in tuple(self._lines.values()))):
                    tokens = session.liveliness()
                    tokens.get(self.endpoint.alive("*"), self._on_living, timeout=SECONDS_BETWEEN_LOOKS)

    def answer(self, question: str, reply: Reply, asker: str = OPERATOR) -> None:
        """Answer questions of this kind, the operator's unless told otherwise; `*`: anybody's.

        The reply gets their parameters, and under `said` what came with them.
        """
        with self._changing:
            self._answers[asker, question] = reply
            self._declare_answer(asker, question)

    def _declare_answer(self, asker: str, question: str) -> None:
        key, reply = self.endpoint.key(self.endpoint.name, asker, question), self._answers[asker, question]

        def handle(query: zenoh.Query) -> None:
            try:
                asked = dict(part.split("=", 1) for part in str(query.parameters).split(";") if "=" in part)
                if query.payload is not None:
                    asked["said"] = query.payload.to_string()
                query.reply(query.key_expr, reply(asked))
            except (OSError, ValueError, StudyError) as error:  # no such file, a number that is none, a full disk
                query.reply_err(str(error))

        self._held.append(self._session.declare_queryable(key, handle))

    def close(self) -> None:
        """Leave. What is not acknowledged by now may be lost: `drain` first."""
        self._leaving.set()
        if self.renewal is not None:
            self.renewal.close()
        for outbox in self._outboxes.values():
            outbox.close()
        with self._changing:
            for line in self._lines.values():
                line.close()
            self.closed = close_session(self._session, CLOSING)
            self._presence.close()
            self._close_tunnels()

    def _close_tunnels(self) -> None:
        if self.tunnels is not None:
            self.tunnels.close()

    def _put(self, number: int, channel: str, data: bytes) -> None:
        """A word, which may get lost: nobody hears it while connections are opened anew."""
        if self._aside:
            return
        with suppress(zenoh.ZError):
            self._out[number, channel].put(data)

    def drain(self, seconds: float, peers: Iterable[int] | None = None) -> bool:
        """Wait until all that was sent to these is acknowledged, at most so long; whether it is."""
        end = time.monotonic() + seconds
        return all(outbox.wait_idle(end - time.monotonic()) for outbox in self._boxes(peers))

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
            self._put(parcel.receiver, CONTROL, chunk)
        return stamp

    @property
    def bandwidth(self) -> float:
        """Bytes a second that models took to neighbours, the mean over those that were sent any; 0 where none were.

        Rounded to a power of two: nodes that are as good as equal shall be equal in an election.
        """
        rates = [outbox.rate for outbox in self._outboxes.values() if outbox.rate]
        return 2.0 ** round(math.log2(sum(rates) / len(rates))) if rates else 0.0

    def cancel(self, to: int) -> list[Parcel]:
        """Give up what this neighbour has not acknowledged: it is dead, and the node sends it elsewhere."""
        return self._outboxes[to].cancel()

    def withdraw(self, to: int, kind: str, walk: int) -> list[tuple[Parcel, Stamp]]:
        """Take back what waits for a neighbour and is of this kind and walk: a later one takes its place."""
        return self._outboxes[to].withdraw(kind, walk)

    def holds(self, parcel: Parcel) -> bool:
        """Whether this very message is still on its way, and will arrive without being sent again."""
        return self._outboxes[parcel.receiver].holds(parcel)

    def waiting(self, peers: Iterable[int] | None = None) -> int:
        """Messages with models that these have not acknowledged yet."""
        return sum(len(outbox) for outbox in self._boxes(peers))

    def _boxes(self, peers: Iterable[int] | None) -> list[Outbox]:
        return [self._outboxes[peer] for peer in (self._outboxes if peers is None else peers)]

    def take(self, delivery: Delivery) -> None:
        """The node has taken this message: its sender may send the next."""
        sender = delivery.parcel.sender
        if delivery.payload is not None and self._pending.get(sender) == delivery.stamp:
            del self._pending[sender]
            self._put(sender, ACKS, encode_ack(Ack(delivery.stamp, Answer.TAKEN, self.incarnation)))

    def _on_models(self, sample: zenoh.Sample) -> None:
        sender = self._sender(sample)
        if sender is None:
            return
        if sender in self._pending:  # it was not asked for a second one
            self.drop("uncalled", f"from {self._called(sender)}")
            return
        delivery = self._assemble(self._models[sender], sample)
        if delivery is not None:
            if delivery.payload is not None:
                self._pending[sender] = delivery.stamp
            self._deliver(delivery)

    def _on_control(self, sample: zenoh.Sample) -> None:
        sender = self._sender(sample)
        if sender is not None:
            delivery = self._assemble(self._control[sender], sample)
            if delivery is not None:
                self._deliver(delivery)

    def _on_ack(self, sample: zenoh.Sample) -> None:
        sender = self._sender(sample)
        if sender is None:
            return
        try:
            ack = decode_ack(sample.payload.to_bytes())
        except WireError as error:
            self.drop(error.reason, f"from {self._called(sender)}: {error}")
            return
        if ack.answer is Answer.ASKED:
            said = Ack(ack.stamp, self._progress(sender, ack.stamp), self.incarnation)
            self._put(sender, ACKS, encode_ack(said))
        elif ack.answer is Answer.BACK_SOON:
            self._presence.excuse([sender])
        elif ack.answer is Answer.OUTLIVED:
            if self.namesakes.told(ack.stamp.incarnation, sender):
                log.warning("%s: is not heard: %s", self.endpoint.name, two_called(self.endpoint.name))
        elif ack.life < (later := self._life_of(sender)):  # else a walk could be lost with the one that nobody hears
            self.drop("replayed", f"from {self._called(sender)}: an answer of its life {ack.life} after {later}")
            self._answer_namesake(sender, later)
        else:
            self._outboxes[sender].answered(ack)

    def _life_of(self, sender: int) -> int:
        """The latest life of a neighbour of which something came; 0 where nothing did."""
        return max(heard[sender].life for heard in (self._models, self._control))

    def _progress(self, sender: int, stamp: Stamp) -> Answer:
        """How far a message is on this side."""
        if self._pending.get(sender) == stamp or self._models[sender].arriving == stamp:
            return Answer.WAITING
        return Answer.TAKEN if stamp <= self._models[sender].last else Answer.UNKNOWN

    def _on_token(self, sample: zenoh.Sample) -> None:
        number = self.endpoint.neighbours.get(str(sample.key_expr).rsplit("/", 1)[-1])
        if number is None:
            return
        if sample.kind == zenoh.SampleKind.PUT:
            self._presence.came(number)
        else:
            self._gone(number)

    def _gone(self, number: int) -> None:
        for assembler in (self._models[number], self._control[number]):
            assembler.abandon()
        self._presence.went(number)

    def _on_living(self, reply: zenoh.Reply) -> None:
        if reply.ok is not None:
            self._on_token(reply.ok)

    def _assemble(self, assembler: Assembler, sample: zenoh.Sample) -> Delivery | None:
        try:
            delivery = assembler.add(sample.payload.to_bytes(), time.monotonic())
        except WireError as error:
            self.drop(error.reason, f"from {self._called(assembler.sender)}: {error}")
            if isinstance(error, OutlivedError):
                self._answer_namesake(assembler.sender, assembler.life)
            return None
        if delivery is not None:  # a walk of a life that is over would be there twice, whatever channel says that it is
            for other in (self._models[assembler.sender], self._control[assembler.sender]):
                other.life = max(other.life, assembler.life)
        return delivery

    def _answer_namesake(self, sender: int, life: int) -> None:
        """Words of an earlier life keep coming: say here and there that two nodes have one name."""
        new = sender not in self.namesakes.doubled()
        if self.namesakes.dropped(sender):
            self._put(sender, ACKS, encode_ack(Ack(Stamp(life, 0), Answer.OUTLIVED)))
            if new:
                log.warning("%s: %s", self.endpoint.name, two_called(self._called(sender)))

    def _deliver(self, delivery: Delivery) -> None:
        self.traffic.received_messages += 1
        self.traffic.received_bytes += 64 + delivery.parcel.body_bytes
        self.listener.arrived(delivery)

    def _sender(self, sample: zenoh.Sample) -> int | None:
        """The neighbour that the key names; with certificates Zenoh has compared it with the common name."""
        key = str(sample.key_expr)
        number = self.endpoint.neighbours.get(key.rsplit("/", 2)[1])
        if number is None:
            self.drop("stranger", key)
        return number if number not in self.blocked else None

    def _called(self, number: int) -> str:
        """A neighbour's name, for the log."""
        return next((name for name, known in self.endpoint.neighbours.items() if known == number), str(number))

    def drop(self, reason: str, detail: str) -> None:
        """Count what is not a message, and say so the first few times."""
        dropped = self.traffic.dropped
        dropped[reason] += 1
        if dropped.total() <= REPORTED_AT_MOST:
            log.warning("%s: dropped a message (%s): %s", self.endpoint.name, reason, detail)

    def _outbox(self, number: int) -> Outbox:
        return Outbox(
            lambda chunk: self._out[number, MODELS].put(chunk),  # that of now: connections may be opened anew
            lambda word: self._put(number, ACKS, word),
            self.listener.taken,
            self._count_resent,
            self.incarnation,
        )

    def _count_resent(self) -> None:
        self.traffic.resent += 1

    def _publisher(self, name: str, number: int, channel: str) -> zenoh.Publisher:
        """Models wait for room in the queue; words and acknowledgements never do, and go first."""
        control, priorities = zenoh.CongestionControl, zenoh.Priority
        ranks = {MODELS: priorities.DATA, CONTROL: priorities.INTERACTIVE_HIGH, ACKS: priorities.REAL_TIME}
        session = self._lines[number].session if number in self._lines else self._session
        return session.declare_publisher(
            self.endpoint.key(name, self.endpoint.name, channel),
            congestion_control=control.BLOCK if channel == MODELS else control.DROP,
            priority=ranks[channel],
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )


def _admitted(endpoint: Endpoint) -> frozenset[str]:
    """Whose words a session takes in that is opened with this endpoint."""
    return frozenset((*endpoint.neighbours, *endpoint.admits))
