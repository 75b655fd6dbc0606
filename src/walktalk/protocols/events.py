"""What can happen to a node. Events are nouns; a protocol answers each with effects.

They are named tuples, not frozen dataclasses: just as immutable, and four times cheaper to make, which a simulation
of a hundred thousand nodes notices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from walktalk.graphs import Rounds
from walktalk.protocols.effects import Message

# -- What a node knows of the network: its neighbours, who can send to it, who has joined and left --------------------


@dataclass(frozen=True, slots=True)
class NetworkView:
    """What a node knows of the network before the first message."""

    node: int  # its own number
    nodes: int  # how many there are, V
    neighbours: tuple[int, ...]  # whom it can send to
    degrees: tuple[int, ...]  # how many neighbours each of those has
    resources: tuple[float, float, float] = (0.0, 0.0, 0.0)  # its own bandwidth, memory and compute, for elections
    heard: tuple[int, ...] | None = None  # who can send to it, on a directed graph; None: its neighbours
    samples: int = 1  # how much it counts in what is minimized; how much data it has, where nothing else was said
    rounds: Rounds | None = None  # on a graph that changes by round: who meets whom in which
    joined: frozenset[int] = frozenset()  # nodes that were not there at first; all others have numbers below `first`
    leaving: frozenset[int] = frozenset()  # nodes that have left for good, or are about to
    first: int = 0  # how many there were at first; 0: nobody has come or left
    version: int = 0  # a number for who has come and left: two nodes with the same one know the same network
    links: Callable[[int], tuple[int, ...]] | None = field(  # whom any node can send to, where the network is known
        default=None, compare=False, repr=False
    )

    def knows(self, node: int) -> bool:
        """Whether there is such a node, or was."""
        return 0 <= node < (self.first or self.nodes) or node in self.joined

    @property
    def sources(self) -> tuple[int, ...]:
        """Who can send to this node."""
        return self.neighbours if self.heard is None else self.heard

    def meets(self, round_: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Whom this node can send to in a round, and who can send to it; the same in all rounds of a fixed graph."""
        if self.rounds is None:
            return self.neighbours, self.sources
        return self.rounds.targets(self.node, round_), self.rounds.sources(self.node, round_)


# -- What can happen to a node. Events are nouns; a protocol answers each with effects --------------------------------


class Started(NamedTuple):
    """The node begins, with the initial model in slot `INITIAL`."""

    late: bool = False  # it was part of this run before, and nothing of that is left: the others are in its middle


class Rejoined(NamedTuple):
    """The node is back after a death, in place of `Started`: its slots are those of its last checkpoint."""

    memory: bytes = b""  # what `Machine.keepsake` said when that checkpoint was made, or `farewell`


class Received(NamedTuple):
    """A message has arrived whole."""

    sender: int  # the node that sent it
    message: Message  # what it says
    slot: str  # where what came with it is when the effects of this event are carried out; "" when nothing came


class Trained(NamedTuple):
    """What `Train` or `Differentiate` asked for is done: one iteration."""

    slot: str  # the slot that was named; the result is in slot `UPDATE` or `GRADIENT`
    walk: int = -1  # the walk that was named
    lr: float = 0.0  # the learning rate of that moment, by the study's schedule
    steps: int = 1  # local steps that were done, or batches that the gradient is the mean over
    # 0: it was given up, because the node leaves; a walk is to be handed on as it is.


class TimerFired(NamedTuple):
    """A timer set by `SetTimer` has run out."""

    name: str  # the timer's name


class PeerLost(NamedTuple):
    """The runtime believes that a neighbour is gone: a connection broke, or a message could not be delivered."""

    peer: int  # the neighbour


class PeerFound(NamedTuple):
    """A neighbour that was lost can be reached again."""

    peer: int  # the neighbour


class NetworkChanged(NamedTuple):
    """A node has joined, or is about to leave for good, or has left: the graph around this node is another from now on.

    Given to machines of protocols that say so (`Protocol.nodes_come_and_go`). New neighbours count as lost until
    `PeerFound`; of those that are none any more nothing is heard again.
    """

    around: NetworkView  # what this node knows of the network now


class Leaving(NamedTuple):
    """This node is to leave for good: let others take over what only it does, until `Machine.may_go`."""


Event: TypeAlias = (
    Started | Rejoined | Received | Trained | TimerFired | PeerLost | PeerFound | NetworkChanged | Leaving
)
