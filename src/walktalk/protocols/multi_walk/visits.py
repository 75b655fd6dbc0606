"""What is done with a walk at a node, and where it goes next: the two things in which algorithms of walks differ.

A `Visiting` trains it (line 6 of Algorithm 1), a `Stepping` moves it on (lines 11 and 12). Everything else is the same
for all: `plain` for a world without failures, `resilient` for one with them. What a walk brings along beside its model
is its *luggage*, further models of kinds that the visiting names, and a few bytes, `Carried`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple, TypeAlias

from walktalk.chains import metropolis_step
from walktalk.protocols.effects import Combine, Effect, Forget, Train, apply_update
from walktalk.protocols.events import Trained


class Carried(NamedTuple):
    """The small part of what a walk brings along."""

    jumps: int = 0  # nodes that it only runs through, before the next visit
    more: bytes = b""  # the visiting's own; empty: the walk has no past, it was begun anew

    def encode(self) -> bytes:
        """As the end of a note; nothing for nothing."""
        return bytes((self.jumps, *self.more)) if self.jumps or self.more else b""


NOTHING = Carried()


def carried_in(note: bytes) -> Carried:
    """Back again."""
    return Carried(note[0], note[1:]) if note else NOTHING


class Visiting(ABC):
    """One node's: what it does with walks that come by."""

    __slots__ = ()

    @property
    def luggage(self) -> tuple[str, ...]:
        """Kinds of the further models that a walk carries."""
        return ()

    @property
    def noted(self) -> bool:
        """Whether nodes keep what they have put into a walk: then nothing of another copy can be mixed into it."""
        return bool(self.luggage)

    @property
    def first(self) -> bytes:
        """What a walk carries when the run begins."""
        return b""

    @abstractmethod
    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        """A walk is here: what to do, a training at last, and what it carries now."""

    @abstractmethod
    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        """That training is done, or was given up (`steps` is 0); what it carries away."""

    def rejoined(self) -> None:
        """The node is back after a death: what its slots hold may be out of date."""
        return


class Stepping(ABC):
    """How walks move."""

    __slots__ = ()

    @abstractmethod
    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], jumps: int, random: Random
    ) -> tuple[int, int]:
        """Where a walk goes, and how many nodes it will only run through from there on.

        node: where it is. peers, degrees: the neighbours that live, and how many of those each has. jumps: the number
        of nodes that it was to run through when it came here.
        """


class PlainTraining(Visiting):
    """Line 6: the walk is trained on the node's data."""

    __slots__ = ()

    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        return [_training(walk)], more

    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        return [apply_update(walk_slot(event.walk))], more


@lru_cache(maxsize=4096)
def _training(walk: int) -> Train:
    return Train(walk_slot(walk), walk)


class MetropolisHastings(Stepping):
    """Line 11: by the paper's matrix P."""

    __slots__ = ()

    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], jumps: int, random: Random
    ) -> tuple[int, int]:
        return metropolis_step(node, len(peers), peers, degrees, random), 0


@lru_cache(maxsize=4096)  # asked for several times at every iteration
def walk_slot(walk: int, kind: str = "") -> str:
    """Where a node keeps a walk that is visiting, or a kind of its luggage."""
    return f"{kind or 'walk'}/{walk}"


def kept_slot(walk: int, kind: str = "") -> str:
    """Where the sender keeps a walk that is on its way."""
    return f"hop/{kind}/{walk}" if kind else f"hop/{walk}"


def next_slot(walk: int, kind: str = "") -> str:
    """Where a walk waits for the training of an older copy to end."""
    return f"next/{kind}/{walk}" if kind else f"next/{walk}"


def in_slot(walk: int, kind: str = "") -> str:
    """Where a walk arrives."""
    return f"in/{kind}/{walk}" if kind else f"in/{walk}"


Slots: TypeAlias = Callable[[int, str], str]  # one of the four above


def moved(walk: int, luggage: Sequence[str], source: Slots, target: Slots) -> list[Effect]:
    """Everything that a walk has is put elsewhere."""
    effects: list[Effect] = []
    for kind in ("", *luggage):
        effects += (Combine(target(walk, kind), {source(walk, kind): 1.0}), Forget(source(walk, kind)))
    return effects


def forgotten(walk: int, luggage: Sequence[str], source: Slots) -> list[Effect]:
    """Everything that a walk has is dropped."""
    return [Forget(source(walk, kind)) for kind in ("", *luggage)]
