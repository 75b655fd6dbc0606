"""How far everybody is, without anyone in charge: each node counts for itself, and neighbours tell each other.

A node's own numbers only grow, so what is heard is merged by taking the larger ones, whatever the order or the path (a
grow-only counter); what goes up and down, such as a loss, is taken from whoever knows the later one. The sum over all
nodes says when the run is over, within one round of gossip. The run's clock goes along: a node that came back learns
from it how long the run has lasted.

A neighbour may be mistaken, or lie. So every field has its bounds, and one that is beyond them says nothing; with
certificates, what a node has done is its own signed word alone, passed on as it is (`signed_statements`); that is
believed, trainings and bytes alike, as far as that node can have come by the rate that it and the others are known to
have (`Pace`): neither silence nor one large number ends a run; that a node has seen the end is believed where it fits
what is known here (`progress`); and of clocks the one in the middle is believed, not the one that is furthest ahead.
Without certificates everybody is believed of everybody, within these bounds.
"""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import NamedTuple, TypeAlias

from walktalk.runtimes.peers.identity.signed_statements import SignedStatements, Statement, statements_in

TALLY_KIND = "tally"  # counts, all of one length, as version 8 of messages has them
COUNTS_KIND = "counts"  # counts with their lengths: later versions may say more of a node (`wire.versions`)
_HEAD = struct.Struct("<d")
_ENTRY = struct.Struct("<IQQBQffI")
_LENGTH = struct.Struct("<H")
_DONE, _OVER, _IDLE, _HANGS = 1, 2, 4, 8
_FLAGS = _DONE | _OVER | _IDLE | _HANGS
LONGEST_WORD = 256  # bytes of a count, with what a later version says behind
ROOM = 4000  # bytes of counts in one message, so that the note stays under 4 KiB; in larger networks a random choice
PAUSE = 0.25  # seconds until a word of a node is looked at again that another passes on: signatures take time
LATELY = 30.0  # seconds: who was not heard of for so long is not waited for
LARGEST_LOSS = 3e38  # that a neighbour is told of: it travels in 32 bits
FASTEST = 1_000.0  # words on itself that a node can say in a second, and trainings that it can complete, at most
SLACK = 4.0  # times the rate that is known of it: so much faster a node may have become
SPREAD = (
    16.0  # times the rate of the node in the middle that any node may have; a hub as many times as it has neighbours
)
FEW = 16  # trainings, or messages with a model, that anybody may have done: of so few nobody knows a rate
SLOWEST = 2.0  # of them in a second that a node may do of which there is none to compare with
SETTLED = 5.0  # seconds after which the rate of a node is that which was seen here
QUICKEST = 1e10  # bytes that a node can send in a second
LONGEST = 1e9  # seconds of a run: thirty years


class Count(NamedTuple):
    """The numbers of one node: how far it is, and what it says of itself."""

    iterations: int = 0  # local trainings that it completed
    sent: int = 0  # bytes that it sent for the protocol
    done: bool = False  # it trains no more: it has seen the end, or leaves
    over: bool = False  # it has seen the end of the run
    idle: bool = False  # nothing that it holds will ever be trained again
    moment: int = 0  # counts what it has said of itself, over all its lives, whatever clocks say; the later is believed
    loss: float = math.nan  # of a model that came to it, on its own data, before it trained on it
    score: float = math.nan  # of the same model, by the measure by which the best one is kept; NaN where none is
    samples: int = 0  # of its data
    hangs: bool = False  # its training does not end, and it trains nothing until it does
    unknown: int = 0  # flags of a later version: passed on as they are
    further: bytes = b""  # numbers of a later version, likewise

    def merged(self, heard: Count) -> Count:
        """Merge these numbers with what was heard of the same node; that it has seen the end, it says itself."""
        newer = heard if heard.moment > self.moment else self
        counts = max(self.iterations, heard.iterations), max(self.sent, heard.sent)
        return newer._replace(iterations=counts[0], sent=counts[1], over=self.over)


class Heard(NamedTuple):
    """What is believed of one node's count, and since when."""

    first: float  # moment at which it was first heard, by this node's clock
    then: int  # the count that was believed at that moment
    highest: float  # that could have been believed at that moment
    last: float  # moment at which it grew last
    so_far: int

    @property
    def rate(self) -> float:
        """How fast it grows, as it was seen here; 0 where that was too short."""
        return (self.so_far - self.then) / (self.last - self.first) if self.last > self.first + SETTLED else 0.0


class Pace:
    """Believes nodes' counts of one thing, trainings or bytes, as far as they can have come.

    A count may grow `SLACK` times as fast as it did, or as that of the node in the middle does, and by no more than
    `SPREAD` times that in all. Who is truly faster than it was is soon known to be, and nothing that it says is lost:
    counts are told whole, again and again. So a lie about a count is worth what the fastest honest node may have done.
    """

    def __init__(self, unit: int = 1) -> None:
        """unit: what is counted at once at least, e.g. the bytes of a message with a model."""
        self._unit = unit
        self._listens = math.inf  # since when counts are heard here
        self._heard: dict[int, Heard] = {}
        self._claims: dict[int, int] = {}  # what was said last, believed or not
        self._kept: dict[int, tuple[float, int]] = {}  # of an earlier life: seconds of the run, and the count

    def remember(self, node: int, count: int, seconds: float) -> None:
        """An earlier life of this node knew of this count when the run had lasted so long."""
        self._kept[node] = seconds, count

    def see(self, node: int, count: int, now: float) -> None:
        """A node has truly come so far: this one itself."""
        heard = self._heard.get(node, Heard(now, count, count, now, 0))
        if count > heard.so_far:
            self._heard[node] = heard._replace(last=now, so_far=count)

    def believed(
        self, node: int, claimed: int, others: Mapping[int, int], times: tuple[float, float], spread: float
    ) -> int:
        """How much of what is claimed of a node is believed now.

        - `others`: the counts of nodes that it is compared with, of now.
        - `times`: now, and when the run began, by this node's clock.
        - `spread`: times the rate of the node in the middle that this one may have.
        """
        now, began = times
        self._listens, self._claims[node] = min(self._listens, now), claimed
        heard, few = self._heard.get(node) or self._first_heard(node, claimed, others, times, spread), FEW * self._unit
        if heard is None:
            return min(claimed, int(max(SLACK * SLOWEST * self._unit * (now - self._listens), few)))
        usual = self._usual(others, now, began)
        rate = max(heard.rate, heard.so_far / max(heard.last - began, 1.0), usual)
        at_most = heard.highest + spread * usual * (now - heard.first)
        count = min(claimed, int(max(min(heard.so_far + SLACK * rate * (now - heard.last), at_most), few)))
        if count > heard.so_far:
            self._heard[node] = heard._replace(last=now, so_far=count)
        return max(count, heard.so_far)

    def _first_heard(
        self, node: int, claimed: int, others: Mapping[int, int], times: tuple[float, float], spread: float
    ) -> Heard | None:
        """What is believed of a node of which nothing was heard before; None where there is nothing to compare it with.

        Others are believed what they claim: of one that lies the one in the middle is no worse.
        """
        now, began = times
        (seconds, then), lasted = self._kept.get(node, (0.0, 0)), max(now - began, 1.0)
        claims = {other: self._claims.get(other, count) for other, count in others.items()}
        if not claimed or not (then or any(claims.values())):
            return None
        rate = max(then / max(seconds, 1.0), self._usual(claims, now, began, whole=True))
        passed = lasted - min(seconds, lasted)
        count = min(claimed, int(max(then + SLACK * rate * passed, FEW * self._unit)))
        self._heard[node] = Heard(now, count, then + spread * rate * passed, now, count)
        return self._heard[node]

    def _usual(self, others: Mapping[int, int], now: float, began: float, whole: bool = False) -> float:
        """The rate of the node in the middle while it trained, since it was first heard; or over the whole run."""
        rates = []
        for node, count in others.items():
            heard = self._heard.get(node)
            seen = heard.rate if heard is not None and not whole else 0.0
            grew = now if heard is None or whole else heard.last
            rates += [seen or count / max(grew - began, 1.0)] if count else []
        return median_low(rates) if rates else SLOWEST * self._unit


@dataclass
class Tally:
    """How far every node of a cluster is, as one node knows it."""

    node: int
    nodes: int  # how many there are now
    knows: Callable[[int], bool] | None = None  # whether there is or was such a node, where they come and go
    words: SignedStatements | None = None  # signatures; None without certificates
    message: int = 1 << 20  # bytes of a message with a model
    edges: Callable[[int], int] = lambda node: 0  # how many neighbours a node has, as far as it is known

    def __post_init__(self) -> None:
        self.counts: dict[int, Count] = {self.node: Count()}
        self._began: dict[int, float] = {}  # by neighbour: when the run began, by this node's clock
        self._heard: dict[int, float] = {}  # by node: when something new was last heard of it
        self._trainings, self._bytes = Pace(), Pace(self.message)
        self._said: dict[int, Statement] = {}  # by node: its last word on itself, signed
        self._looked: dict[int, float] = {}  # by node: when a word of it was looked at that another had passed on
        self._signed: Count | None = None  # what this node's last word says
        self.impossible: dict[int, int] = {}  # by node: more trainings than anybody can have done, of which it says so

    @property
    def own(self) -> Count:
        """The numbers of this node itself."""
        return self.counts[self.node]

    @property
    def iterations(self) -> int:
        """Iterations of all nodes, as far as it is known here."""
        return sum(count.iterations for count in self.counts.values())

    @property
    def sent(self) -> int:
        """Bytes sent by all nodes, as far as it is known here."""
        return sum(count.sent for count in self.counts.values())

    def over(self, neighbours: Iterable[int]) -> int:
        """How many of these say that they have seen the end of the run."""
        return sum(self.counts.get(peer, Count()).over for peer in neighbours)

    @property
    def loss(self) -> float:
        """The training loss: the mean over all data of the losses that nodes measured last; NaN where one is missing.

        Nobody sees all the data, so this is the one number that a running cluster can know of its models.
        """
        there = self._heard_lately(done=True)  # what those measured who have seen the end is true still
        samples = sum(count.samples for count in there)
        if 2 * len(there) <= self.nodes or not samples:
            return math.nan
        return sum(count.loss * count.samples for count in there) / samples

    @property
    def score(self) -> float:
        """What the best model is kept by: the mean, over those who measure it, of what each measured last.

        NaN where these are fewer than half of the nodes.
        """
        known = [count for count in self._heard_lately(done=True) if not math.isnan(count.score) and count.samples]
        if 2 * len(known) < self.nodes:
            return math.nan
        return sum(count.score * count.samples for count in known) / sum(count.samples for count in known)

    @property
    def stalled(self) -> bool:
        """Whether nobody holds anything that will ever be trained again."""
        there = self._heard_lately()
        return 2 * len(there) > self.nodes and all(count.idle for count in there)

    def remembers(self, node: int) -> bool:
        """Whether anything is known of what a node has done."""
        count = self.counts.get(node)
        return count is not None and count.iterations > 0

    def there(self) -> set[int]:
        """Nodes of which something new was heard lately, and that have not left."""
        since = time.monotonic() - LATELY
        return {node for node, heard in self._heard.items() if heard > since and not self.counts[node].done}

    def _heard_lately(self, done: bool = False) -> list[Count]:
        since = time.monotonic() - LATELY
        there = (self.counts[node] for node, heard in self._heard.items() if heard > since)
        return [count for count in there if count.moment and (done or not count.done)]

    def add(self, iterations: int = 0, sent: int = 0) -> None:
        """Count something of this node's own."""
        own = self.own
        self.counts[self.node] = own._replace(iterations=own.iterations + iterations, sent=own.sent + sent)

    def end(self, over: bool) -> None:
        """This node trains no more; `over`: it has seen the end of the run."""
        self.counts[self.node] = self.own._replace(done=True, over=over or self.own.over, moment=self._next_moment())

    def remember(self, iterations: int, sent: int) -> None:
        """Take over the numbers of an earlier life, where they are larger than what neighbours have told already."""
        own = self.own
        self.counts[self.node] = own._replace(iterations=max(own.iterations, iterations), sent=max(own.sent, sent))

    @property
    def others(self) -> dict[int, tuple[int, int]]:
        """Iterations and bytes of all others, as far as they are known here: for a later life of this node."""
        found = {node: (count.iterations, count.sent) for node, count in self.counts.items() if node != self.node}
        return {node: counts for node, counts in found.items() if any(counts)}

    def remember_others(self, kept: Mapping[int, tuple[int, int]], seconds: float = 0.0) -> None:
        """What an earlier life knew of them when the run had lasted so long: who has left for good says it no more."""
        for node, (iterations, sent) in kept.items():
            if node != self.node and (node < self.nodes if self.knows is None else self.knows(node)):
                known = self.counts.get(node, Count())
                counts = max(known.iterations, iterations), max(known.sent, sent)
                self.counts[node] = known._replace(iterations=counts[0], sent=counts[1])
                self._trainings.remember(node, iterations, seconds)
                self._bytes.remember(node, sent, seconds)

    def say(self, idle: bool, loss: float | None, samples: int, hangs: bool = False, score: float = math.nan) -> None:
        """Set what this node says of itself right now."""
        told = [within_32_bits(math.nan if number is None else number) for number in (loss, score)]
        own = self.own._replace(idle=idle, moment=self._next_moment(), loss=told[0], score=told[1])
        self.counts[self.node] = own._replace(samples=samples, hangs=hangs)
        self._heard[self.node] = time.monotonic()

    def _next_moment(self) -> int:
        """A moment that is later than all that was heard of this node's earlier lives."""
        return self.own.moment + 1

    def encode(self, clock: float, rng: random.Random, lengths: bool = False) -> bytes:
        """What to tell a neighbour: the run's clock, oneself, and of the others as many as fit.

        - `clock`: how long the run has lasted.
        - `rng`: chooses among the others.
        - `lengths`: each count has its length before it; without, those are left out of which a later version says
          more, and what is told is as in version 8 of messages.
        """
        others = self._signed_words(self.words) if self.words is not None else self._unsigned_words(lengths)
        own = others.pop(self.node)
        words = [word for word in others.values() if lengths or word.fits_version_8]
        rng.shuffle(words)
        told, room = [own.packed(lengths)], ROOM - len(own.packed(lengths))
        for word in words:
            packed = word.packed(lengths)
            room -= len(packed)
            if room < 0:
                break
            told.append(packed)
        return _HEAD.pack(clock) + b"".join(told)

    def _unsigned_words(self, further: bool) -> dict[int, Word]:
        return {node: Word(packed_count(node, count, further)) for node, count in self.counts.items()}

    def _signed_words(self, words: SignedStatements) -> dict[int, Word]:
        if self.own != self._signed:  # of two words the later one is told by its moment
            self._signed = self.counts[self.node] = self.own._replace(moment=self._next_moment())
            self._said[self.node] = words.statement(packed_count(self.node, self.own))
        return {node: Word(*statement) for node, statement in self._said.items()}

    def hear(self, sender: int, note: bytes, lengths: bool = False) -> float:
        """Merge what a neighbour tells; returns how long the run has lasted. `ValueError` where it is nonsense.

        What it remembers of this node's own life before a restart counts too, or the total would go back.

        - `sender`: the neighbour.
        - `note`: of its message.
        - `lengths`: whether each count has its length before it.
        """
        if len(note) < _HEAD.size:
            raise ValueError(f"a tally is not {len(note)} bytes long")
        lasted, now = float(_HEAD.unpack_from(note)[0]), time.monotonic()
        if not 0.0 <= lasted <= LONGEST:
            raise ValueError(f"no run lasts {lasted:g} s")
        words = words_in(note[_HEAD.size :], self.words is not None, lengths)
        heard = {entry[0]: self._checked(entry, word, lengths) for entry, word in self._entries(sender, words)}
        self._began[sender] = now - lasted
        began = -median_low([-moment for moment in self._began.values()])  # of two that differ, the later one
        for node, count in heard.items():
            self._merge(node, count, sender, now, began)
        return now - began

    def _entries(self, sender: int, told: Iterable[Word]) -> Iterator[tuple[Fields, Word]]:
        """Read what a neighbour tells of nodes: where statements are signed, only those that are new and genuine."""
        for word in told:
            entry: Fields = _ENTRY.unpack_from(word.content)
            node, moment = entry[0], entry[4]
            if self.words is None:
                yield entry, word
            elif self._is_due(sender, node, moment) and self.words.holds(node, *word):
                self._looked[node] = time.monotonic()
                yield entry, word
                if node != self.node:
                    self._said[node] = Statement(*word)

    def _is_due(self, sender: int, node: int, moment: int) -> bool:
        """Whether a statement is later than what is known, and to be looked at now."""
        if moment <= self.counts.get(node, Count()).moment:
            return False
        return node == sender or time.monotonic() >= self._looked.get(node, -math.inf) + PAUSE

    def _merge(self, node: int, count: Count, sender: int, now: float, began: float) -> None:
        """Merge what was heard of one node; `began`: when the run did, by this node's clock."""
        known, passed = self.counts.get(node, Count()), now - self._heard.get(node, began)
        iterations, sent = count.iterations, count.sent
        if node == sender:  # of itself: of others it may have been told
            self.impossible.pop(node, None)
            if iterations > FEW + FASTEST * max(now - began, 1.0):
                self.impossible[node] = iterations
        if node != self.node or self.words is None:  # what this node has signed itself in an earlier life is true
            there = {other for other, heard in self._heard.items() if heard > now - LATELY}
            others = {other: self.counts[other] for other in there | {self.node} if other != node}
            self._trainings.see(self.node, self.own.iterations, now)
            self._bytes.see(self.node, self.own.sent, now)
            spread, times = max(SPREAD, self.edges(node)), (now, began)
            done = {other: one.iterations for other, one in others.items()}
            told = {other: one.sent for other, one in others.items()}
            iterations = self._trainings.believed(node, iterations, done, times, spread)
            sent = self._bytes.believed(node, sent, told, times, spread)
        iterations, sent = max(known.iterations, iterations), max(known.sent, sent)
        moment = min(count.moment, known.moment + int(FASTEST * passed) + 1)
        if node == self.node:
            self.remember(iterations, sent)
            self.counts[node] = self.own._replace(moment=max(known.moment, moment))
            return
        if moment > known.moment or iterations > known.iterations:
            self._heard[node] = now
        merged = known.merged(count._replace(iterations=iterations, sent=sent, moment=moment))
        self.counts[node] = merged._replace(over=count.over) if node == sender else merged

    def _checked(self, entry: Fields, word: Word, lengths: bool) -> Count:
        """The numbers of one node as they came, or `ValueError` where a field is out of its bounds."""
        node, iterations, sent, flags, moment, loss, score, samples = entry
        known = node < self.nodes if self.knows is None else self.knows(node)
        if not known or (flags & ~_FLAGS and not lengths):
            raise ValueError(f"in a tally: node {node}, flags {flags}")
        if (
            max(moment, iterations) > FASTEST * LONGEST
            or sent > QUICKEST * LONGEST
            or math.inf in (abs(loss), abs(score))
        ):
            raise ValueError(
                f"in a tally: node {node} did {iterations} iterations, sent {sent} bytes, loss {loss}, word {moment}"
            )
        done, over, idle, hangs = (bool(flags & flag) for flag in (_DONE, _OVER, _IDLE, _HANGS))
        further = flags & ~_FLAGS, word.content[_ENTRY.size :]
        return Count(iterations, sent, done, over, idle, moment, loss, score, samples, hangs, *further)


Fields: TypeAlias = tuple[int, int, int, int, int, float, float, int]


class Word(NamedTuple):
    """What is told of one node, as it travels."""

    content: bytes
    mark: bytes = b""  # of the certificate that it is signed with
    signature: bytes = b""  # empty: nothing is signed

    @property
    def fits_version_8(self) -> bool:
        """Whether it says nothing that a node which knows no later version refuses."""
        return len(self.content) == _ENTRY.size and not _ENTRY.unpack(self.content)[3] & ~_FLAGS

    def packed(self, lengths: bool) -> bytes:
        """Its bytes, with its length before it, or without."""
        before = _LENGTH.pack(len(self.content)) if lengths else b""
        return before + (Statement(*self).packed if self.signature else self.content)


def words_in(told: bytes, signed: bool, lengths: bool) -> Iterator[Word]:
    """Take a tally apart; `ValueError` where it is none.

    - `told`: all that stands behind the clock.
    - `signed`: whether each count has a signature.
    - `lengths`: whether each has its length before it.
    """
    at = 0
    while at < len(told):
        size = _ENTRY.size
        if lengths:
            (size,) = _LENGTH.unpack_from(told, at) if at + _LENGTH.size <= len(told) else (0,)
            at += _LENGTH.size
        if not _ENTRY.size <= size <= LONGEST_WORD or at + size > len(told):
            raise ValueError(f"a tally with a count of {size} bytes, of which {len(told) - at} came")
        if signed:
            statement, at = statements_in(told, at, size)
            yield Word(*statement)
        else:
            yield Word(told[at : at + size])
            at += size


def within_32_bits(number: float) -> float:
    """The number, or the largest that can be told: no loss is so large that its node may not talk."""
    return number if math.isnan(number) else max(-LARGEST_LOSS, min(LARGEST_LOSS, number))


def packed_count(node: int, count: Count, further: bool = False) -> bytes:
    """What is told of one node, as it travels.

    - `node`: its number.
    - `count`: its numbers.
    - `further`: with what a later version says of it.
    """
    flags = _DONE * count.done | _OVER * count.over | _IDLE * count.idle | _HANGS * count.hangs
    numbers = (count.iterations, count.sent, flags | (count.unknown if further else 0), count.moment)
    packed = _ENTRY.pack(node, *numbers, count.loss, count.score, count.samples)
    return packed + count.further if further else packed
