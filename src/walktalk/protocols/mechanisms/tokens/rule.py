"""What an algorithm of walks has to say: how a node trains, mixes and moves on the walks that visit it.

A `WalkRule` is one node's part of Algorithm 1, in calls that follow its lines. Who calls it is no concern of the rule:
`plain` where nothing fails, `resilient` where nodes and messages are lost and nodes come and go.

A walk brings its model, further models whose kinds the rule names (`extras`), and a few bytes (`Carried`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple, TypeAlias

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

    @property
    def extras(self) -> tuple[str, ...]:
        """Kinds of the further models that a walk carries, each in `walk_slot(walk, kind)`."""
        return ()

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
        self, node: int, peers: Sequence[int], degrees: Sequence[int], jumps: int, random: Random
    ) -> tuple[int, int]:
        """Where a walk goes next, and how many nodes it will only run through from there on.

        Args:
            node: where the walk is; as an answer it means that the walk stays.
            peers: neighbours that live.
            degrees: how many living neighbours each of those has.
            jumps: how many nodes the walk was to run through when it came here.
            random: where random bits come from.
        """

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
