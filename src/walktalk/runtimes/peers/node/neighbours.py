"""Which neighbours there are, and which of them a node listens to.

A neighbour counts as there when its token has come and its hello fits (`handshake`); one whose hello does not is a
stranger until it starts anew, and the log of both says what differs. A hello is a small message, and may be lost: it is
said again until the other's has come. It is good for one life of its sender, by which all its messages are known.

One that acknowledges nothing is not there, whatever else it says: it gets nothing more, and is not heard. After a while
it is asked again, each time later, until it acknowledges something.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from walktalk.core.errors import UserError
from walktalk.core.untrusted import shown
from walktalk.learning import heard_schema, schema_differences
from walktalk.protocols import Message
from walktalk.runtimes.peers.identity.editions import Edition, Sight, heard_edition, older_kit
from walktalk.runtimes.peers.identity.handshake import (
    HELLO_KIND,
    Hello,
    about_this_node,
    decode_hello,
    encode_hello,
    objections,
)
from walktalk.runtimes.peers.node.news import News
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Delivery, Parcel
from walktalk.runtimes.peers.wire.versions import MESSAGES

LATER_KIND = "later"
LONGEST_SCHEMA = 2000  # characters of a schema in a hello, which is a short message; of a longer one its digest
AGAIN = 0.25  # seconds until a hello is repeated
BACK_OFF = 20.0  # seconds until one that acknowledged nothing is asked again; each time twice as long
LONGEST = 600.0  # seconds until then at most, and those after which one that was left out counts as mended

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reactions:
    """What the node does when neighbours come and go."""

    found: Callable[[int], None]
    lost: Callable[[int], None]
    arrived: Callable[[Delivery], None]  # takes what came before its sender's hello
    remembers: Callable[[int], bool]  # whether it knows of anything that a neighbour has done in this run


@dataclass(frozen=True)
class Deaf:
    """One that has acknowledged nothing, and when it is asked again."""

    life: int  # of it, that has not
    until: float
    times: int  # in a row
    taken: int  # what it had acknowledged before


class Neighbours:
    """Decides which neighbours of a node are there and listened to, by their tokens and hellos."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        link: Link,
        news: News,
        alive: set[int],
        reactions: Reactions,
        life: Callable[[], bytes] = bytes,
        speaks: dict[int, int] | None = None,
        sight: Sight | None = None,
    ) -> None:
        """
        - `facts`: what must be the same on both sides.
        - `link`, `news`: the node's.
        - `alive`: is kept up to date: who is there and no stranger.
        - `reactions`: the node's.
        - `life`: this node's life, signed; empty without certificates.
        - `speaks`: is kept up to date: by neighbour the version of messages that both sides go by.
        - `sight`: the form of its data, and the kit that it was started with; None: neither is known.
        """
        self._sight = sight or Sight(facts, None, None)
        edition, schema = self._sight.edition, self._sight.schema
        self._schema = {} if schema is None else schema.said(most=LONGEST_SCHEMA)
        self.old_kits: dict[int, str] = {}  # by neighbour: that its kit or this node's is the older one
        self.speaks: dict[int, int] = {} if speaks is None else speaks
        kit = {} if edition is None else edition.said()
        self.own_about = about_this_node(**kit)  # what this node says of itself in a hello
        self.about: dict[int, dict[str, str]] = {}  # by neighbour: what it said of itself last, refused or not
        self._life, self._proofs = life, dict[int, bytes]()  # by neighbour: its life, signed
        self.facts, self.alive = dict(facts), alive
        self.strangers: dict[int, str] = {}  # neighbours that are not listened to, and why
        self.known = False  # whether others know of an earlier life of this node
        self._link, self._news, self._reactions = link, news, reactions
        self._there: set[int] = set()  # who has a connection
        self._said: dict[int, float] = {}  # by neighbour: when it was said hello to
        self._lives: dict[int, int] = {}  # by neighbour: the life of it that is listened to
        self._deaf: dict[int, Deaf] = {}  # by neighbour: that it acknowledged nothing, the last time it was asked
        self._unheard: dict[int, Delivery] = {}  # by neighbour: a model that came before its hello

    @property
    def own_edition(self) -> Edition | None:
        """The edition of the kit that this node was started with; None without one."""
        return self._sight.edition

    def look_around(self) -> None:
        """Ask who is there, and say hello to those that have not said theirs."""
        self._link.connections.look_around()
        now = time.monotonic()
        for peer in self._there - self.alive - set(self.strangers):
            if now >= self._said.get(peer, -math.inf) + AGAIN:
                self._say_hello(peer)

    def leave_out_the_deaf(self) -> None:
        """Leave out those that acknowledge nothing, and ask those again that were left out for long enough."""
        now = time.monotonic()
        for peer in tuple(self.alive):
            if self._link.is_deaf(peer):
                self._leave_out(peer, now, "it acknowledges nothing, though it says that it is there")
            elif self._link.is_mute(peer):
                self._leave_out(peer, now, "it takes what comes, and its algorithm answers nothing")
        for peer in [peer for peer, deaf in self._deaf.items() if peer in self.strangers and now >= deaf.until]:
            del self.strangers[peer]
            self._link.forget(peer)
            self._say_hello(peer)

    def tell_of_later_lives(self) -> None:
        """Show those of whose name there are two what the later one has signed."""
        for peer in self._link.duplicate_names.doubled():
            if proof := self._proofs.get(peer, b""):
                self._link.send(Parcel(self._link.endpoint.number, peer, Message(LATER_KIND, note=proof)), None)

    def _leave_out(self, peer: int, now: float, why: str) -> None:
        before, taken = self._deaf.get(peer), self._link.taken(peer)
        mended = before is None or (before.taken != taken and now > before.until + LONGEST)
        times = 1 if before is None or mended else before.times + 1
        pause = min(BACK_OFF * 2.0 ** (times - 1), LONGEST)
        self._deaf[peer] = Deaf(self._lives.get(peer, 0), now + pause, times, taken)
        log.warning("%s: leaves %s out: %s", self._link.endpoint.name, self._news.name_of(peer), why)
        self._set_aside(peer, why)

    def token(self, peer: int, there: bool) -> None:
        """A neighbour's token has come, or is gone."""
        if there and peer not in self._there:
            self._there.add(peer)
            self._say_hello(peer)
        elif not there and peer in self._there:
            self._there.discard(peer)
            self.strangers.pop(peer, None)
            self._lose(peer)

    def drop(self, peer: int) -> None:
        """Forget one that is no neighbour any more; if it becomes one again, it says hello again."""
        self._there.discard(peer)
        self.strangers.pop(peer, None)
        self._lives.pop(peer, None)
        self.speaks.pop(peer, None)
        self.about.pop(peer, None)
        self.old_kits.pop(peer, None)
        self._unheard.pop(peer, None)
        self.alive.discard(peer)

    def admit(self, delivery: Delivery) -> bool:
        """Whether a message is to be handled now; a hello is dealt with here."""
        sender, kind = delivery.parcel.sender, delivery.parcel.message.kind
        if kind == HELLO_KIND:
            self._hear_hello(delivery)
            return False
        if self._lives.get(sender) == delivery.stamp.incarnation:
            return True
        if sender in self.strangers and sender in self._deaf:  # it is to send its walks elsewhere, not wait for answers
            self._link.drop("stranger", f"{kind} from {self._news.name_of(sender)}")
            return False
        if sender in self.strangers or delivery.payload is None:  # before a hello, a word is lost and a model waits
            self._link.drop("stranger", f"{kind} from {self._news.name_of(sender)}")
            self._link.acknowledge(delivery)
        else:
            self._unheard[sender] = delivery
            self._say_hello(sender)
        return False

    def _say_hello(self, peer: int) -> None:
        self._said[peer] = time.monotonic()
        met = peer in self.alive or peer in self.strangers  # strangers, too, would answer each other without end
        remembers, life = self._reactions.remembers(peer), self._life().hex()
        hello = Hello(self.facts, met, remembers, life, MESSAGES, self.own_about, self._schema)
        self._link.send(Parcel(self._link.endpoint.number, peer, Message(HELLO_KIND, note=encode_hello(hello))), None)

    def _hear_hello(self, delivery: Delivery) -> None:
        peer, life = delivery.parcel.sender, delivery.stamp.incarnation
        try:
            hello = decode_hello(delivery.parcel.message.note)
        except ValueError as error:
            self._link.drop("nonsense", f"from {self._news.name_of(peer)}: {error}")
            return
        deaf = self._deaf.get(peer)
        if deaf is not None and deaf.life == life and time.monotonic() < deaf.until:
            return
        self.about[peer] = dict(hello.about)
        self._compare_kits(peer, hello)
        if differ := [*objections(self.facts, hello), *self._objections_to_data(peer, hello)]:
            self._turn_away(peer, "; ".join(filter(None, (*differ, self.old_kits.get(peer)))))
        elif self._lives.get(peer) != life or peer not in self.alive:
            self._proofs[peer] = bytes.fromhex(hello.life)
            self.speaks[peer] = MESSAGES.agreed(hello.speaks or MESSAGES) or MESSAGES.oldest
            self._welcome(peer, life, hello.knows)
        elif not hello.met:
            self._link.forget(peer)  # it had left this node out, and given up what it waited for an answer to
        if not hello.met:
            self._say_hello(peer)  # it has not heard ours

    def _objections_to_data(self, peer: int, hello: Hello) -> list[str]:
        """What of a neighbour's data has another form, so that a model would mean something else there."""
        try:
            theirs = heard_schema(hello.schema)
        except (ValueError, TypeError) as error:
            return [f"the form of its data cannot be read: {shown(error)}"]
        return schema_differences(self._sight.schema, theirs)

    def _compare_kits(self, peer: int, hello: Hello) -> None:
        """Say once whether a neighbour was started with an older kit than this node, or this node with an older one."""
        own, name = self._link.endpoint, self._news.name_of(peer)
        authority = own.credentials.authority if own.credentials is not None else None
        try:
            line = older_kit(self._sight.edition, heard_edition(own.cluster, hello.about, authority), (own.name, name))
        except (ValueError, UserError) as error:
            line = f"{name} shows a kit that does not count: {shown(error)}" if self._sight.edition is not None else ""
        if line and self.old_kits.get(peer) != line:
            self._news.say(line, logging.WARNING)
        self.old_kits.pop(peer, None)
        if line:
            self.old_kits[peer] = line

    def _turn_away(self, peer: int, why: str) -> None:
        if self.strangers.get(peer) != why:
            self._news.stranger(peer, why)
        self._set_aside(peer, why)

    def _set_aside(self, peer: int, why: str) -> None:
        """Do not listen to a neighbour any more, nor send it anything."""
        self.strangers[peer] = why
        self._lives.pop(peer, None)
        aside = self._unheard.pop(peer, None)
        if aside is not None:
            self._link.acknowledge(aside)
        self._lose(peer)

    def _welcome(self, peer: int, life: int, knows: bool) -> None:
        """Listen to this life of a neighbour from now on: its study is ours."""
        if self._lives.get(peer) not in (None, life):
            self._lose(peer)  # an earlier one, whose end went unnoticed
        self._lives[peer], self.known = life, self.known or knows
        if self.strangers.pop(peer, None) is not None:
            self._link.forget(peer)  # what it sent meanwhile was not answered, and keeps out what it sends next
        self._there.add(peer)
        self.alive.add(peer)
        self._link.there_again(peer)
        self._reactions.found(peer)
        aside = self._unheard.pop(peer, None)
        if aside is not None:
            self._reactions.arrived(aside)

    def _lose(self, peer: int) -> None:
        if peer in self.alive:
            self.alive.discard(peer)
            self._reactions.lost(peer)
