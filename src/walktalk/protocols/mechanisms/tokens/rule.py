"""What an algorithm of walks has to say: how a node trains, mixes and moves on the walks that visit it.

A `WalkRule` is one node's part of Algorithm 1, in calls that follow its lines. Who calls it is no concern of the rule:
`plain` where nothing fails, `resilient` where nodes and messages are lost and nodes come and go.

A walk brings its model, further models whose kinds the rule names (`extras`), and a few bytes (`Carried`).
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import ClassVar, NamedTuple, TypeAlias

from walktalk.protocols.effects import Combine, Effect, Forget
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView


class Carried(NamedTuple):
    """The few bytes that a walk brings along beside its models."""

    jumps: int = 0  # nodes that it only runs through, before the next visit
    state: bytes = b""  # the rule's own; empty: the walk has no past, because it was begun anew

    def encode(self) -> bytes:
        """Bytes for the end of a message's note; none where there is nothing to say."""
        return bytes((self.jumps, *self.state)) if self.jumps or self.state else b""


NOTHING = Carried()


def carried_in(note: bytes) -> Carried:
    """Reads what `Carried.encode` has written."""
    return Carried(note[0], note[1:]) if note else NOTHING


class WalkRule(ABC):
    """What one node does with the walks that visit it.

    A walk's model is in `walk_slot(walk)` while it is here; the aggregator keeps a copy of each walk, as it was when it
    left last, in `copy_slot(walk)`.
    """

    __slots__ = ()

    extras: ClassVar[tuple[str, ...]] = ()  # kinds of the further models of a walk, each in `walk_slot(walk, kind)`

    @property
    def nodes_keep_notes(self) -> bool:
        """Whether nodes keep what they have put into a walk: then nothing of another copy can be mixed into it."""
        return bool(self.extras)

    @property
    def first_state(self) -> bytes:
        """The state that walks carry when the run begins."""
        return b""

    @abstractmethod
    def work(self, walk: int, state: bytes, random: Random) -> tuple[list[Effect], bytes]:
        """A walk visits: effects that end with a training, and the state that it carries from now on."""

    @abstractmethod
    def learn(self, event: Trained, state: bytes) -> tuple[list[Effect], bytes]:
        """That training is done, or was given up (`event.steps` is 0): effects, and the state that the walk carries."""

    @abstractmethod
    def mix(self, walk: int, latest: int, share: float) -> list[Effect]:
        """The aggregator mixes a walk with the copy of the one that came before it, and keeps a new copy.

        Args:
            walk: the walk that is here.
            latest: the walk whose copy is the latest.
            share: of what the walk has learned since its last visit that goes into the mix (`share_of_a_walk`).
        """

    @abstractmethod
    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], carried: Carried, random: Random
    ) -> tuple[int, Carried]:
        """Where a walk goes next, and what it carries there; with jumps, that node is one that it only runs through.

        Args:
            node: where the walk is; as an answer it means that the walk stays.
            peers: neighbours that live.
            degrees: how many living neighbours each of those has.
            carried: what the walk has brought, with the jumps that it had when it came here.
            random: where random bits come from.
        """

    def turned_back(self, carried: Carried) -> Carried:
        """What a walk carries that goes elsewhere because the node that it was sent to is dead.

        It may have been there all the same, and go on from there: what nodes noted of it is that copy's from now on.
        """
        return NOTHING

    def changed(self, around: NetworkView) -> None:
        """Nodes have joined or left: the network is this one from now on."""
        return

    def rejoined(self) -> None:
        """The node is back after a death: its slots may be older than what walks remember of it."""
        return


def share_of_a_walk(walks: int, part: float = 1.0) -> float:
    """The share of a walk's progress that the aggregator mixes in: 1/R, or a part of that. Weights of walks go here."""
    return part / walks


# -- slots ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)  # asked for several times at every iteration
def walk_slot(walk: int, kind: str = "") -> str:
    """The slot of a walk that is visiting, or of one of its extras."""
    return f"{kind or 'walk'}/{walk}"


def kept_slot(walk: int, kind: str = "") -> str:
    """The slot in which a sender keeps a walk that is on its way."""
    return f"hop/{kind}/{walk}" if kind else f"hop/{walk}"


def next_slot(walk: int, kind: str = "") -> str:
    """The slot in which a walk waits until an older copy of it has been trained."""
    return f"next/{kind}/{walk}" if kind else f"next/{walk}"


def in_slot(walk: int, kind: str = "") -> str:
    """The slot in which a walk arrives."""
    return f"in/{kind}/{walk}" if kind else f"in/{walk}"


def copy_slot(walk: int) -> str:
    """The slot of u_r, the aggregator's copy of walk r."""
    return f"copy/{walk}"


Slots: TypeAlias = Callable[[int, str], str]  # one of the first four above


def moved(walk: int, extras: Sequence[str], source: Slots, target: Slots) -> list[Effect]:
    """Moves all models of a walk to other slots."""
    effects: list[Effect] = []
    for kind in ("", *extras):
        effects += (Combine(target(walk, kind), {source(walk, kind): 1.0}), Forget(source(walk, kind)))
    return effects


def forgotten(walk: int, extras: Sequence[str], source: Slots) -> list[Effect]:
    """Drops all models of a walk."""
    return [Forget(source(walk, kind)) for kind in ("", *extras)]


# -- Notes of nodes --------------------------------------------------------------------------------------------------
# A node may note something that the walk itself has counted: token SAGA a gradient, Walkman a model and a dual.
# That fits only if both speak of the same walk. A walk that was lost and is begun again has no past, one that was sent
# to two nodes goes on as two, a node that died may have forgotten what it noted last, and one that leaves takes its
# notes along. So a walk carries the name of its *lineage*: a number and random bits. Where it comes with none, finds a
# later one than its own, comes to a node that has been dead, or counts over another network than there is now, it
# begins a new lineage, later than what it found. What nodes noted under an earlier one counts for nothing from then
# on. So after a failure, and after nodes have joined or left, what is noted and what is counted fit again as soon as
# the walk has been at the nodes that it concerns; while nothing of this happens they fit always.

_NAME = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_NETWORK = 2**16 - 1  # the random bits of a name that say which network it counts over, once nodes come and go


class Name(NamedTuple):
    """The name of a lineage; the later one is the greater."""

    number: int = 0
    bits: int = 0  # at random: two lineages that begin at different places at once are told apart

    def encode(self) -> bytes:
        """The first bytes of the state of a walk."""
        return _NAME.pack(*self)


def name_in(state: bytes) -> Name | None:
    """The lineage that a walk carries; None where it has none; `ValueError` where it is something else."""
    if not state:
        return None
    if len(state) < _NAME.size:
        raise ValueError("a lineage is longer")
    return Name(*_NAME.unpack_from(state))


def count_in(state: bytes) -> int:
    """How many nodes a walk has counted, where it carries that; `ValueError` where it is something else."""
    try:
        (count,) = _COUNT.unpack_from(state, _NAME.size)
    except struct.error as error:
        raise ValueError(f"no count: {error}") from error
    return int(count)


class Lineages:
    """Under which lineage a node has noted something of each walk."""

    __slots__ = ("met", "network", "noted", "unsure")

    def __init__(self) -> None:
        self.noted: dict[int, Name] = {}
        self.met: dict[int, Name] = {}  # the latest that was trained here: what was noted before it may be overwritten
        self.unsure = False  # it has been dead; what its slots hold may be older than what walks have counted
        # A walk that comes then begins anew, once; it is in `met` after that.
        self.network = 0  # which nodes there are, in 16 bits; 0: nobody has joined or left

    def meets(self, walk: int, carries: Name | None, random: Random) -> tuple[Name, bool]:
        """A walk visits: its lineage from now on, and whether that begins now."""
        found = self.met.get(walk)
        lost = self.unsure and found is None
        other = carries is not None and self.network and carries.bits & _NETWORK != self.network
        if carries is None or lost or other or (found is not None and found > carries):
            number = max(found.number if found is not None else 0, carries.number if carries is not None else 0)
            bits = random.getrandbits(32)
            return Name(min(number + 1, 2**32 - 1), bits & ~_NETWORK | self.network if self.network else bits), True
        return carries, False

    def has(self, walk: int, name: Name) -> bool:
        """Whether something of that walk was noted here, under this lineage."""
        return self.noted.get(walk) == name

    def begins_here(self, walk: int, name: Name) -> None:
        """A training of this lineage begins, over the notes of another: they are gone, though it should end in vain."""
        self.noted.pop(walk, None)
        self.met[walk] = name

    def notes(self, walk: int, name: Name) -> None:
        """Something of that walk is noted here."""
        self.noted[walk] = self.met[walk] = name

    def rejoined(self) -> None:
        """The node is back after a death."""
        self.noted.clear()
        self.met.clear()
        self.unsure = True

    def changed(self, around: NetworkView) -> None:
        """Lineages count over these nodes from now on."""
        if around.first:
            who = around.nodes, sorted(around.joined), sorted(around.leaving)
            self.network = zlib.crc32(repr(who).encode()) & _NETWORK or 1


class Counted(NamedTuple):
    """What a walk has counted of the node at which it was trained, and how many nodes it has counted now."""

    noted: bool  # whether it has counted what the node has noted
    at_first: bool  # else: whether it has counted the node as all were when the run began, with the initial model
    over: int  # how many nodes it has counted, with this one; 0 where it does not carry that


class NotingRule(WalkRule):
    """A rule whose nodes keep notes of the walks that visit them, and whose walks count over all nodes."""

    __slots__ = ("lineages", "nodes")

    carries_count: ClassVar[bool] = False  # whether a walk carries how many nodes it has counted

    def __init__(self, around: NetworkView) -> None:
        self.nodes = around.nodes  # V
        self.lineages = Lineages()
        self.lineages.changed(around)

    @property
    def nodes_keep_notes(self) -> bool:
        return True

    @property
    def first_state(self) -> bytes:
        return Name().encode() + _COUNT.pack(self.nodes) if self.carries_count else b""

    @abstractmethod
    def visit(self, walk: int, begins: bool, noted: bool) -> list[Effect]:
        """A walk visits: effects that end with a training.

        Args:
            walk: the walk.
            begins: whether it counts from nothing.
            noted: whether this node has noted something that the walk has counted.
        """

    @abstractmethod
    def trained(self, event: Trained, counted: Counted) -> list[Effect]:
        """That training is done: effects that note and count it."""

    def given_up(self, walk: int) -> list[Effect]:
        """That training was given up: the walk goes on as it came."""
        return []

    def work(self, walk: int, state: bytes, random: Random) -> tuple[list[Effect], bytes]:
        name, begins = self.lineages.meets(walk, name_in(state), random)
        # Who forges a count only makes the mean one over 1 node, or all of them.
        count = 0 if begins or not self.carries_count else min(max(count_in(state), 1), self.nodes)
        noted = self.lineages.has(walk, name)
        if not noted:
            self.lineages.begins_here(walk, name)
        return self.visit(walk, begins, noted), self._state(name, count)

    def learn(self, event: Trained, state: bytes) -> tuple[list[Effect], bytes]:
        name, walk = name_in(state), event.walk
        if not event.steps or name is None:
            return self.given_up(walk), state
        noted, count = self.lineages.has(walk, name), count_in(state) if self.carries_count else 0
        at_first = not noted and not name.number and count == self.nodes
        over = count if noted or at_first else count + 1
        self.lineages.notes(walk, name)
        return self.trained(event, Counted(noted, at_first, over)), self._state(name, over)

    def _state(self, name: Name, count: int) -> bytes:
        return name.encode() + _COUNT.pack(count) if self.carries_count else name.encode()

    def changed(self, around: NetworkView) -> None:
        self.nodes = around.nodes
        self.lineages.changed(around)

    def rejoined(self) -> None:
        self.lineages.rejoined()
