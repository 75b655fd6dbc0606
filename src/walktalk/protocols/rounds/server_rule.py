"""What protocols with a server in rounds do in a round: what is sent down and up, and what becomes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Surroundings
from walktalk.protocols.server import CHANGE, MODEL


class ServerRule(ABC):
    """What a protocol does in a round: `down` are slots that all nodes have the server's of, `up` what each makes."""

    __slots__ = ()

    @property
    def weighted(self) -> bool:
        """Whether `gather` takes what came of the first slot by how much data each node has; else all count alike."""
        return False

    @property
    @abstractmethod
    def down(self) -> tuple[str, ...]:
        """The slots that the server sends out, `MODEL` first."""

    @property
    @abstractmethod
    def up(self) -> tuple[str, ...]:
        """The slots that everybody sends back."""

    @abstractmethod
    def begin(self) -> list[Effect]:
        """At every node, before the first round."""

    @abstractmethod
    def work(self) -> tuple[list[Effect], Train]:
        """At every node, when all that comes down is there: what is to be made ready, and the training."""

    @abstractmethod
    def learn(self, event: Trained) -> list[Effect]:
        """At every node: set the slots that go up."""

    @abstractmethod
    def gather(self, parts: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> list[Effect]:
        """At the server: bring what goes down up to date.

        - `parts`: for each slot that goes up, what came of it: of the first one with equal weights that sum to one, of
          others with 1/V each, whoever is missing.
        - `shares`: what came of the first slot, with weights by how much data each node has, that sum to one.
        """


class ChangesUp(ServerRule):
    """The rule of those that send the model down and what a training changed up; what the server makes of it differs.

    Args:
        train: what every node does in a round.
    """

    __slots__ = ("train",)

    def __init__(self, train: Train) -> None:
        self.train = train

    @property
    def down(self) -> tuple[str, ...]:
        return (MODEL,)

    @property
    def up(self) -> tuple[str, ...]:
        return (CHANGE,)

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> tuple[list[Effect], Train]:
        return [], self.train

    def learn(self, event: Trained) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0})]


def gathered(
    rule: ServerRule, around: Surroundings, whole: Sequence[int], samples: Mapping[int, int]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """What the server takes in at the end of a round, as `ServerRule.gather` wants it.

    - `rule`: what is done.
    - `around`: what the server knows of the network.
    - `whole`: the others whose slots are all here.
    - `samples`: how much data each node has.
    """
    slots = {up: {peer: f"{up}_up/{peer}" for peer in whole} for up in rule.up}
    first, server = rule.up[0], around.node
    equal = {up: 1.0 / (len(whole) + 1) if up == first else 1.0 / around.nodes for up in rule.up}
    parts = {up: dict.fromkeys([up, *of.values()], equal[up]) for up, of in slots.items()}
    named = {server: first, **slots[first]}
    total = sum(samples[node] for node in named)
    return parts, {named[node]: count / total for node, count in samples.items() if node in named}
