"""What a protocol is: a factory of one pure state machine a node.

No sockets, no clock, no torch and no global randomness in here: time and random bits arrive from outside with every
event, so the same machine runs in virtual time and on a cluster.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.errors import SpecError
from walktalk.graphs import Graph, Rounds
from walktalk.protocols.demands import TWO_WAY, Demand
from walktalk.protocols.effects import Effect
from walktalk.protocols.events import Event
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.self_description import SelfDescribed
from walktalk.screens import Privacy


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node knows of the network before the first message."""

    node: int  # its own number
    nodes: int  # how many there are, V
    neighbours: tuple[int, ...]  # whom it can send to
    degrees: tuple[int, ...]  # how many neighbours each of those has
    resources: tuple[float, float, float] = (0.0, 0.0, 0.0)  # its own bandwidth, memory and compute, for elections
    heard: tuple[int, ...] | None = None  # who can send to it, on a directed graph; None: its neighbours
    samples: int = 1  # how much data it has
    rounds: Rounds | None = None  # on a graph that changes by round: who meets whom in which
    joined: frozenset[int] = frozenset()  # nodes that were not there at first; all others have numbers below `first`
    leaving: frozenset[int] = frozenset()  # nodes that have left for good, or are about to
    first: int = 0  # how many there were at first; 0: nobody has come or left

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


@dataclass(slots=True)
class Outside:
    """What comes from outside with every event: the time and the random bits."""

    now: float  # seconds, virtual or real
    random: random.Random  # where random bits come from; the only place
    resources: tuple[float, float, float] | None = None  # bandwidth, memory and compute, where they are measured


class Machine(ABC):
    """One node's part of a protocol."""

    __slots__ = ()

    @abstractmethod
    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        """Take one event, change the state, say what to do."""

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """The runtime has refused what came with a message, which was no model: let its sender not wait for ever."""
        return []

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """A message was lost on its way, and this node notices when it would have come; who waits for it may go on."""
        return []

    def has_work(self) -> bool:
        """Whether anything will be trained here again without a message from others; False: only if a walk comes by."""
        return True

    def may_go(self) -> bool:
        """Whether a node that leaves for good (`Leaving`) has nothing left that only it can do."""
        return True

    def keepsake(self) -> bytes:
        """What a later life must know to understand the slots of a checkpoint; kept with them, given to `Rejoined`."""
        return b""

    def farewell(self) -> bytes:
        """The same, of a node that leaves in order: what it has then is nowhere else, and can be gone on with."""
        return self.keepsake()


class Protocol(SelfDescribed):
    """One distributed algorithm with its settings: a frozen dataclass whose fields become keys of a specification."""

    pools_data: ClassVar[bool] = False  # trains on everybody's data at once: a reference, not a decentralized method
    averages_at_once: ClassVar[bool] = False  # whether a node averages its model with those of several others at once
    models_travel: ClassVar[bool] = False  # whether nodes have no model of their own, and train those that come by
    # Whether all that it adds up by weights of sum 1 are models: then models whose mean is no sum of numbers, such as
    # products, can be averaged in their own way.
    means_of_models: ClassVar[bool] = False
    on_directed_graphs: ClassVar[bool] = False  # whether links may be one-way
    nodes_come_and_go: ClassVar[bool] = False  # whether nodes may join it, and leave it for good, while it runs

    @property
    def made_for(self) -> str:
        """The name of a topology that it needs or shows best on, such as star or binary_tree; "": any."""
        return ""

    @property
    def core(self) -> Protocol:
        """Itself, or the protocol that it is wrapped around."""
        return self

    @property
    def privacy(self) -> Privacy | None:
        """What protects the data of its nodes; None: nothing does."""
        return None

    @property
    def messages(self) -> Mapping[str, Arrival]:
        """The kinds of messages that its machines send, and how each arrives; nothing else can be sent."""
        return {}

    @abstractmethod
    def machine(self, surroundings: Surroundings) -> Machine:
        """The state machine of one node."""

    def check(self, nodes: int) -> None:
        """Raise `SpecError` where this protocol cannot run on that many nodes."""
        if nodes < 1:
            raise SpecError(f"nodes: {nodes} is not possible; at least 1 is needed")

    @property
    def demands(self) -> tuple[Demand, ...]:
        """What it demands of a graph, beside links that go both ways where it does not say that others will do."""
        return ()

    @property
    def plain_sgd_only(self) -> str:
        """Why the study's optimizer may have no momentum, as it follows "because it …"; "": it may have one."""
        return ""

    def check_graph(self, graph: Graph) -> None:
        """Raise `SpecError` where this protocol cannot run on a graph."""
        self.check(graph.nodes)
        for demand in (*(() if self.on_directed_graphs else (TWO_WAY,)), *self.demands):
            demand.check(graph, self.label)

    def check_momentum(self, momentum: float) -> None:
        """Raise `SpecError` where this protocol goes astray with that momentum in the study's optimizer."""
        if momentum and self.plain_sgd_only:
            raise SpecError(
                f"optimizer.momentum: with {momentum:g} {self.label} can diverge, because it {self.plain_sgd_only}; "
                "set momentum to 0"
            )

    def active_models(self, nodes: int) -> int:
        """How many models train at the same time: R for walks, V for gossip."""
        return nodes
