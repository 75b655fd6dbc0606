"""What a protocol is: a factory of one pure state machine a node.

No sockets, no clock, no torch and no global randomness in here: time and random bits arrive from outside with every
event, so the same machine runs in virtual time and on a cluster.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from walktalk.core.errors import SpecError
from walktalk.core.old_names import warn_of
from walktalk.graphs import Graph, WeightedRounds
from walktalk.protocols.effects import Arrival, Effect, Message
from walktalk.protocols.events import Event
from walktalk.protocols.events import NetworkView as NetworkView
from walktalk.protocols.self_description import TWO_WAY, Demand, SelfDescribed
from walktalk.transforms.rules import Privacy

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(slots=True)
class Context:
    """What comes from outside with every event: the time and the random bits."""

    now: float  # seconds, virtual or real
    random: random.Random  # where random bits come from; the only place
    resources: tuple[float, float, float] | None = None  # bandwidth, memory and compute, where they are measured


class Machine(ABC):
    """A node's part of a protocol: takes events one by one and answers each with effects."""

    __slots__ = ()

    @abstractmethod
    def handle(self, event: Event, context: Context) -> list[Effect]:
        """Take one event, change the state, say what to do."""

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """The runtime has refused what came with a message, which was no model: let its sender not wait for ever."""
        return []

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
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
        """What a later life of a node that leaves in order must know; what it has is nowhere else."""
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
    elastic: ClassVar[bool] = False  # whether its machines know nodes that join, and leave for good, while it runs

    def __init_subclass__(cls, **more: Any) -> None:
        """Takes a class's own `hardened`, as walktalk 0.1 called it, for its `resilient_form`."""
        super().__init_subclass__(**more)
        if "hardened" in vars(cls) and "resilient_form" not in vars(cls):
            warn_of(f"{cls.__name__}.hardened", f"{cls.__name__}.resilient_form")
            cls.resilient_form = cls.hardened  # type: ignore[method-assign, assignment]

    def hardened(self) -> Self:
        """The name that `resilient_form` had in walktalk 0.1; it goes with the next release."""
        warn_of("Protocol.hardened", "Protocol.resilient_form")
        return self.resilient_form()

    @property
    def nodes_come_and_go(self) -> bool:
        """Whether nodes may join it, and leave it for good, while it runs."""
        return self.elastic and not self.why_nodes_stay

    @property
    def why_nodes_stay(self) -> str:
        """Why they may not, as it follows "because "."""
        plain = self.elastic and self.settings.get("resilient") is False
        return "its form for a world without failures is chosen (resilient: false)" if plain else ""

    @classmethod
    def other_forms(cls) -> tuple[Self, ...]:
        """Settings besides the first of the usual ones with which it may survive less, or keep its nodes."""
        return cls.usual()[1:]

    @property
    def made_for(self) -> str:
        """The name of a topology that it needs or shows best on, such as star or binary_tree; "": any."""
        return ""

    @property
    def weighs_nodes(self) -> bool:
        """Whether it weighs nodes itself, by `NetworkView.samples`, as a server that averages may do."""
        return bool(self.settings.get("weighted", False))

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
    def machine(self, network_view: NetworkView) -> Machine:
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
    def meets_newcomers(self) -> tuple[int, ...]:
        """Whom a node that joins must have as neighbours, such as a server; (): those that suit the graph."""
        return ()

    def irreplaceable(self, node: int) -> str:
        """Why a node can neither join late nor leave for good where others can, as a sentence; "" where it can."""
        return ""

    @property
    def there_at_first(self) -> Collection[int]:
        """Nodes that others wait for from the start, as those where a walk begins: they cannot join late."""
        return ()

    @property
    def plain_sgd_only(self) -> str:
        """Why the study's optimizer may have no momentum, as it follows "because it …"; "": it may have one."""
        return ""

    @property
    def needs_own_gradients(self) -> str:
        """Why a training must be ours, as it follows "because it …"; "": any loop will do, from a model to a model."""
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


# -- The weights that neighbours mix with: p_ij of the Metropolis–Hastings matrix (Section 4.1), the same on both sides
# They are those of the whole graph, whoever is alive: both sides of an exchange know them without asking. The weight of
# one that does not come stays with the node itself, so rows still sum to one, and so do columns where both leave each
# other out.


def weight(around: NetworkView, peer: int) -> float:
    """The Metropolis–Hastings weight of one neighbour."""
    degree = around.degrees[around.neighbours.index(peer)]
    return 1.0 / (max(len(around.neighbours), degree) + 1)


def weights(around: NetworkView, there: Collection[int]) -> dict[int, float]:
    """The weights of those neighbours that are there, in the order of the graph."""
    own = len(around.neighbours)
    everyone = zip(around.neighbours, around.degrees, strict=True)
    return {peer: 1.0 / (max(own, degree) + 1) for peer, degree in everyone if peer in there}


def row_of(around: NetworkView, round_: int) -> dict[int, float]:
    """The row of W in a round: for everybody whom the node hears; the rest is its own.

    On a fixed graph and on one that changes those of Metropolis and Hastings, unless the rounds have weights of their
    own; with one-way links, equal shares.
    """
    rounds, node = around.rounds, around.node
    if rounds is None:
        equal = 1.0 / (len(around.sources) + 1)
        return weights(around, around.neighbours) if around.heard is None else dict.fromkeys(around.heard, equal)
    sources = rounds.sources(node, round_)
    if isinstance(rounds, WeightedRounds):
        return {peer: rounds.weight(node, peer, round_) for peer in sources}
    return {peer: 1.0 / (max(len(sources), len(rounds.sources(peer, round_))) + 1) for peer in sources}
