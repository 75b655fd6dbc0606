"""A node's connections: Zenoh sessions to its neighbours, what is declared in them, and who is there.

The first session listens and connects to the neighbours of the cluster file. Whom a session connects to, and whose
words it takes in, is said when it is opened and stays so; so a node that gets a new neighbour opens another session, a
*line*, for that one alone. The threads are the same as those of the first session, so a line costs little.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

import zenoh

from walktalk.core.errors import UnavailableError, UserError
from walktalk.core.untrusted import shown
from walktalk.runtimes.peers.identity.certificates import OPERATOR, RELAY, Credentials, Revocations
from walktalk.runtimes.peers.identity.renewal import Renewal
from walktalk.runtimes.peers.relay.streams import fit_buffers
from walktalk.runtimes.peers.relay.tunnels import doors
from walktalk.runtimes.peers.wire.messages import Ack, Answer, Stamp, encode_ack
from walktalk.runtimes.peers.wire.session import (
    ACKS,
    CONTROL,
    MODELS,
    REVOKED,
    Endpoint,
    Line,
    close_session,
    open_session,
    open_tunnels,
)

log = logging.getLogger(__name__)

REOPENING = 5.0  # seconds that the old connections may take to close where new ones are opened in their place
WORDS_TRAVEL = 0.1  # seconds for the words that announce it to be on their way
CLOSING = 20.0  # seconds that a node waits until its last words are sent and connections are closed
SECONDS_BETWEEN_LOOKS = 1.0  # at the tokens of others, and at buffers
GRACE = 15.0  # seconds until a neighbour that is excused must be back

Reply: TypeAlias = Callable[[Mapping[str, str]], bytes]  # from what is asked


class Presence:
    """Which neighbours are there. One that opens its connections anew has not gone.

    It announces that before (`Answer.BACK_SOON`), and its token then goes and comes again. Only where it does not come
    in time is the node told that it is gone; walks that are on their way to it wait so long.
    """

    def __init__(self, report: Callable[[int, bool], None]) -> None:
        """report: is called with a neighbour and whether it is there; more often than it changes."""
        self._report = report
        self._lock = threading.Lock()
        self.there: set[int] = set()  # neighbours that are, those that are excused too
        self._excused: dict[int, float] = {}  # by neighbour: until when
        self._timers: dict[int, threading.Timer] = {}  # of those that have gone and are excused

    def excuse(self, peers: Iterable[int]) -> None:
        """These, or this node itself, are gone for a moment; those that are not seen again by then are gone."""
        with self._lock:
            for peer in peers:
                self._excused[peer] = time.monotonic() + GRACE

    def came(self, peer: int) -> None:
        """A neighbour's token is there."""
        with self._lock:
            self.there.add(peer)
            timer = self._timers.pop(peer, None)
            if timer is not None:
                timer.cancel()  # it is excused all the same: both sides may open their connections anew, in turn
        self._report(peer, True)

    def went(self, peer: int) -> None:
        """A neighbour's token is gone."""
        with self._lock:
            left = self._excused.get(peer, 0.0) - time.monotonic()
            if left > 0.0:
                if peer not in self._timers:
                    self._timers[peer] = threading.Timer(left, self._give_up, [peer])
                    self._timers[peer].daemon = True
                    self._timers[peer].start()
                return
            self.there.discard(peer)
        self._report(peer, False)

    def close(self) -> None:
        """Report nothing any more."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()

    def _give_up(self, peer: int) -> None:
        with self._lock:
            if self._timers.pop(peer, None) is None:
                return
            self.there.discard(peer)
        self._report(peer, False)


@dataclass(frozen=True)
class ConnectionEvents:
    """What is called with what comes, from Zenoh's threads: each must return at once."""

    heard: Callable[[str, int, bytes], None]  # a chunk or word from a neighbour: channel, number, bytes
    unknown: Callable[[str], None]  # something under a key that is no neighbour's
    broke: Callable[[int], None]  # the connection to a neighbour is gone
    peer: Callable[[int, bool], None]  # a neighbour is there, or not any more


class Phase(Enum):
    """Whether others see and hear a node."""

    SILENT = 0  # it has not started
    OPEN = 1
    ASIDE = 2  # it is as one that is gone, for all but the operator


class Connections:
    """All Zenoh sessions of one node; nothing is received before `start`."""

    def __init__(self, endpoint: Endpoint, ears: ConnectionEvents) -> None:
        """
        - `endpoint`: the node's place.
        - `ears`: what is called with what comes.
        """
        self.endpoint = endpoint
        self.closed = False  # whether all connections are
        self._ears = ears
        self._fitted = -math.inf  # when buffers were looked at
        self._looked = -math.inf  # when it was asked who is there
        self._out: dict[tuple[int, str], zenoh.Publisher] = {}
        self._lines: dict[int, Line] = {}  # to neighbours that came while it ran
        self._presence = Presence(ears.peer)
        self._replies: dict[tuple[str, str], Reply] = {}  # by who asks and the question
        self._phase = Phase.SILENT
        self._leaving = threading.Event()
        self._changing = threading.Lock()  # held by whoever opens or closes connections
        self.tunnels = open_tunnels(endpoint)  # None without a relay
        try:
            self._first = self._open_first()
        except BaseException:
            self._close_tunnels()
            raise
        for name, number in endpoint.neighbours.items():
            self._declare_publishers(name, number)
        self.renewal = self._watch_certificates()  # None without certificates

    def _open_first(self) -> Line:
        endpoint = self.endpoint
        return Line(open_session(endpoint, doors(self.tunnels)), (*endpoint.neighbours, *endpoint.admits))

    # -- certificates -------------------------------------------------------------------------------------------------

    def _watch_certificates(self) -> Renewal | None:
        own = self.endpoint
        if own.credentials is None:
            return None
        self.answer(REVOKED, self._receive_revocations)
        return Renewal(own.credentials, own.name, self._whose_certificates_matter, self._renew, self._who_is_there)

    def _who_is_there(self) -> tuple[set[str], set[str]]:
        """Names of neighbours that are there, and of those that are missing."""
        there = {name for name, number in self.endpoint.neighbours.items() if number in self._presence.there}
        return there, self.endpoint.neighbours.keys() - there

    @property
    def credentials(self) -> Credentials | None:
        """The node's newest certificate, by which it signs; its connections may be of one before. None: it has none."""
        return None if self.renewal is None else self.renewal.newest

    def _whose_certificates_matter(self) -> tuple[str, ...]:
        return (*self.endpoint.neighbours, *self.endpoint.admits, OPERATOR, RELAY)

    def _renew(self, files: Credentials) -> None:
        own = self.endpoint
        now, then = files.revocations, own.credentials.revocations if own.credentials is not None else Revocations()
        refused = [number for name, number in own.neighbours.items() if now.accepted(name) != then.accepted(name)]
        if self.tunnels is not None:
            self.tunnels.renew(files)
        self.reopen(replace(own, credentials=files), refused)

    def _receive_revocations(self, asked: Mapping[str, str]) -> bytes:
        """The operator brings a list of revoked certificates."""
        said: dict[str, object] = {"taken": False, "why": ""}
        try:
            said["taken"] = self.renewal is not None and self.renewal.receive_list(asked.get("said", ""))
        except (OSError, UserError) as error:
            said["why"] = str(error)
        return json.dumps(said).encode()

    # -- opening and closing ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Announce that this node is alive, and listen to the others."""
        with self._changing:
            self._phase = Phase.OPEN
            self._declare(self._first)

    def step_aside(self) -> None:
        """Be as one that is gone, for all but the operator: say nothing any more, hear nobody, be seen by nobody."""
        with self._changing:
            self._phase = Phase.ASIDE
            for line in (self._first, *self._lines.values()):
                line.undeclare()

    def close(self) -> None:
        """Close all connections; what is on its way may be lost."""
        self.begin_to_leave()
        with self._changing:
            for line in self._lines.values():
                line.close()
            self.closed = close_session(self._first.session, CLOSING)
            self._presence.close()
            self._close_tunnels()

    def begin_to_leave(self) -> None:
        """Open nothing any more, and look at certificates no more."""
        self._leaving.set()
        if self.renewal is not None:
            self.renewal.close()

    def _close_tunnels(self) -> None:
        if self.tunnels is not None:
            self.tunnels.close()

    def reopen(self, endpoint: Endpoint, refused: Iterable[int] = ()) -> None:
        """Close all connections and open them anew, as this endpoint says: other certificates, other permissions.

        Neighbours are told before: for them, and for this node, nobody has gone, and what was under way is sent again.
        But for those that are `refused` from now on: they have gone.
        Takes about a second, longer where the old connections do not close; nobody else needs to wait for it.
        """
        with self._changing:
            staying = set(self.endpoint.neighbours.values()) - set(refused)
            for number in staying:
                self.say(number, ACKS, encode_ack(Ack(Stamp(0, 0), Answer.BACK_SOON)))
            self._presence.excuse(staying)
            self._leaving.wait(WORDS_TRAVEL)
            close_session(self._first.session, REOPENING)
            for number in self.endpoint.neighbours.values():
                self._gone(number)
            self.endpoint = endpoint
            self._first = self._open_again()
            for name, number in endpoint.neighbours.items():
                line = self._lines.get(number)
                if line is not None:
                    line.close()
                    self._lines[number] = self._open_line(name, number, line.address)
                self._declare_publishers(name, number)
            for asked in self._replies:
                self._declare_answer(*asked)
            if self._phase is Phase.OPEN:
                self._declare(self._first)
            for number in self._lines:
                self._declare_on_line(number)

    def _open_again(self) -> Line:
        """The port may be taken for a while, by connections of before that linger."""
        end = time.monotonic() + CLOSING
        while True:
            try:
                return self._open_first()
            except UnavailableError:
                if time.monotonic() > end or self._leaving.wait(0.2):
                    raise

    # -- neighbours that change ---------------------------------------------------------------------------------------

    def change(self, endpoint: Endpoint, dial: Mapping[str, str]) -> None:
        """Have other neighbours from now on.

        - `endpoint`: the node's place as it is now.
        - `dial`: names of new neighbours that do not connect by themselves, and where they are; "": at the relay.
        """
        with self._changing:
            endpoint = replace(endpoint, credentials=self.endpoint.credentials)  # which may be newer
            before, self.endpoint = self.endpoint.neighbours, endpoint
            for name, number in before.items():
                if name not in endpoint.neighbours:
                    self._drop_line(number)
            for name, number in endpoint.neighbours.items():
                if name not in before:
                    if name in dial:
                        self._dial(name, number, dial[name])
                    self._declare_publishers(name, number)
                    self._declare_on_line(number)
            unheard = endpoint.neighbours.keys() - before.keys() - self._first.admitted - dial.keys()
        if unheard and endpoint.credentials is not None and not self._leaving.is_set():
            threading.Thread(target=self._admit, args=(endpoint,), name="admitting", daemon=True).start()

    def _admit(self, endpoint: Endpoint) -> None:
        """Let those in that connect, and of whom nobody knew when this node began to listen: two joined at once."""
        try:
            self.reopen(replace(endpoint, credentials=self.endpoint.credentials, neighbours=self.endpoint.neighbours))
        except UnavailableError as error:
            log.warning("%s: cannot listen to its new neighbours: %s", endpoint.name, error)

    def redial(self, name: str, address: str) -> None:
        """Connect to a neighbour that is elsewhere now; "": at the relay."""
        with self._changing:
            number = self.endpoint.neighbours[name]
            self._drop_line(number)
            self._dial(name, number, address)
            self._declare_publishers(name, number)
            self._declare_on_line(number)

    def _dial(self, name: str, number: int, address: str) -> None:
        """Open a line to a neighbour; what it says of where it is may be nonsense, and then it is not reached.

        Not to one that was a neighbour when this node began, has left and is back where it was: the first session has
        called there all along, and on two connections everything would come twice.
        """
        if name in self._first.admitted and self._calls(name, address):
            return
        try:
            self._lines[number] = self._open_line(name, number, address)
        except UnavailableError as error:
            where = address or "the relay"
            log.warning("%s: %s cannot be dialled at %s: %s", self.endpoint.name, name, where, error)

    def _calls(self, name: str, address: str) -> bool:
        """Whether the first session keeps calling there."""
        if address:
            return address in self.endpoint.connect
        return self.tunnels is not None and name in self.tunnels.addresses

    def _open_line(self, name: str, number: int, address: str) -> Line:
        alone = replace(self.endpoint, listen="", neighbours={name: number}, connect=(), admits=())
        if address or self.tunnels is None:
            session = open_session(replace(alone, connect=(address,), relay=None))
        else:
            session = open_session(alone, [self.tunnels.door(name)])
        return Line(session, [name], address)

    def _drop_line(self, number: int) -> None:
        line = self._lines.pop(number, None)
        if line is not None:
            threading.Thread(target=line.close, name="line", daemon=True).start()

    def _declare_on_line(self, number: int) -> None:
        if number in self._lines and self._phase is Phase.OPEN:
            self._declare(self._lines[number])

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _declare(self, line: Line) -> None:
        ears = {channel: self._on(channel) for channel in (MODELS, CONTROL, ACKS)}
        line.declare(self.endpoint, ears, self._on_token)

    def _on(self, channel: str) -> Callable[[zenoh.Sample], None]:
        def heard(sample: zenoh.Sample) -> None:
            sender = self._sender(sample)
            if sender is not None:
                self._ears.heard(channel, sender, sample.payload.to_bytes())

        return heard

    def _sender(self, sample: zenoh.Sample) -> int | None:
        """The neighbour that the key names; with certificates Zenoh has compared it with the common name."""
        key = str(sample.key_expr)
        number = self.endpoint.neighbours.get(key.rsplit("/", 2)[1])
        if number is None:
            self._ears.unknown(key)
        return number

    def _on_token(self, sample: zenoh.Sample) -> None:
        number = self.endpoint.neighbours.get(str(sample.key_expr).rsplit("/", 1)[-1])
        if number is None:
            return
        if sample.kind == zenoh.SampleKind.PUT:
            self._presence.came(number)
        else:
            self._gone(number)

    def _gone(self, number: int) -> None:
        self._ears.broke(number)
        self._presence.went(number)

    def excuse(self, peer: int) -> None:
        """A neighbour announces that it opens its connections anew: it has not gone."""
        self._presence.excuse([peer])

    def look_around(self) -> None:
        """Ask which neighbours are there; the answers come as those of the tokens do.

        Tokens are announced once, and where both sides of a connection have just started, an announcement can get
        lost on the way (seen with Zenoh 1.x: messages come, a query finds the token, the subscriber never hears of it).
        """
        now = time.monotonic()
        if now >= self._looked + SECONDS_BETWEEN_LOOKS:
            self._looked = now
            with suppress(zenoh.ZError):  # where it is being opened anew
                for line in (self._first, *tuple(self._lines.values())):
                    tokens = line.session.liveliness()
                    tokens.get(self.endpoint.alive("*"), self._on_living, timeout=SECONDS_BETWEEN_LOOKS)

    def _on_living(self, reply: zenoh.Reply) -> None:
        if reply.ok is not None:
            self._on_token(reply.ok)

    # -- what is said -------------------------------------------------------------------------------------------------

    def put(self, number: int, channel: str, data: bytes) -> None:
        """Send a chunk to a neighbour; waits while the network is busy, and fails where connections are opened anew."""
        self._out[number, channel].put(data)

    def say(self, number: int, channel: str, data: bytes) -> None:
        """Send a word, which may get lost: nobody hears it while connections are opened anew."""
        if self._phase is Phase.ASIDE:
            return
        with suppress(zenoh.ZError):
            self._out[number, channel].put(data)

    def answer(self, question: str, reply: Reply, asker: str = OPERATOR) -> None:
        """Answer questions of this kind, the operator's unless told otherwise; `*`: anybody's.

        The reply gets their parameters, and under `said` what came with them.
        """
        with self._changing:
            self._replies[asker, question] = reply
            self._declare_answer(asker, question)

    def _declare_answer(self, asker: str, question: str) -> None:
        key, reply = self.endpoint.key(self.endpoint.name, asker, question), self._replies[asker, question]

        def handle(query: zenoh.Query) -> None:
            try:
                asked = dict(part.split("=", 1) for part in str(query.parameters).split(";") if "=" in part)
                if query.payload is not None:
                    asked["said"] = query.payload.to_string()
                query.reply(query.key_expr, reply(asked))
            except Exception as error:  # no such file, a number that is none, a full disk, or what nobody thought of
                query.reply_err(shown(error))

        self._first.held.append(self._first.session.declare_queryable(key, handle))

    def _declare_publishers(self, name: str, number: int) -> None:
        for channel in (ACKS, CONTROL, MODELS):
            self._out[number, channel] = self._publisher(name, number, channel)

    def _publisher(self, name: str, number: int, channel: str) -> zenoh.Publisher:
        """Models wait for room in the queue; words and acknowledgements never do, and go first."""
        control, priorities = zenoh.CongestionControl, zenoh.Priority
        ranks = {MODELS: priorities.DATA, CONTROL: priorities.INTERACTIVE_HIGH, ACKS: priorities.REAL_TIME}
        line = self._lines.get(number, self._first)
        return line.session.declare_publisher(
            self.endpoint.key(name, self.endpoint.name, channel),
            congestion_control=control.BLOCK if channel == MODELS else control.DROP,
            priority=ranks[channel],
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )

    def fit_buffers(self) -> None:
        """See to it that nothing waits long in the system's buffers; costs little, and is to be called now and then."""
        now = time.monotonic()
        if now >= self._fitted + SECONDS_BETWEEN_LOOKS:
            self._fitted = now
            relay = [self.endpoint.relay.address] if self.endpoint.relay is not None else []
            lines = [line.address for line in self._lines.values()]
            addresses = (self.endpoint.listen, *self.endpoint.connect, *relay, *lines)
            fit_buffers(int(port) for *_, port in (address.rsplit(":", 1) for address in addresses) if port.isdecimal())
