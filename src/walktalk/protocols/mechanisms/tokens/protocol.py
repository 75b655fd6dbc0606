"""What all algorithms of walks say of themselves, and the choice between the plain node and the resilient one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from annotated_types import Ge, Gt

from walktalk.core.errors import SpecError
from walktalk.protocols.machine import Machine, NetworkView, Protocol
from walktalk.protocols.mechanisms.tokens.hops import ACK, WALK
from walktalk.protocols.mechanisms.tokens.membership import BEAT
from walktalk.protocols.mechanisms.tokens.plain import WalkNode
from walktalk.protocols.mechanisms.tokens.resilient import ResilientNode
from walktalk.protocols.mechanisms.tokens.rule import WalkRule
from walktalk.protocols.message import Arrival
from walktalk.protocols.self_description import InLabel

Guard = Literal["aggregator", "decentralized", "average_crossing", "create_if_late", "none"]

# The settings that all algorithms of walks share, as each lists them after its own.
Aggregator: TypeAlias = Annotated[int, Ge(0), InLabel("-at{}")]
Heartbeat: TypeAlias = Annotated[float, Gt(0), InLabel("-beat{:g}")]


class Walks(Protocol):
    """An algorithm whose models walk from node to node. It survives failures, and lets nodes come and go.

    A protocol adds `walks`, or says how many there are, and the four settings below; `rule` says what it does.
    """

    family: ClassVar[str] = "walks"
    nodes_come_and_go: ClassVar[bool] = True
    extras: ClassVar[tuple[str, ...]] = ()  # kinds of the further models that a walk carries

    @property
    @abstractmethod
    def walks(self) -> int:
        """How many walks there are, R."""

    @property
    @abstractmethod
    def aggregator(self) -> int:
        """The node that mixes them at first."""

    @property
    @abstractmethod
    def resilient(self) -> bool | None:
        """Whether it survives failures; None: where there may be any."""

    @property
    @abstractmethod
    def heartbeat(self) -> float:
        """Seconds between two heartbeats of the aggregator."""

    @property
    @abstractmethod
    def guard(self) -> Guard:
        """Who notices that a walk is lost."""

    @abstractmethod
    def rule(self, around: NetworkView) -> WalkRule:
        """What a node does with the walks that visit it."""

    def __post_init__(self) -> None:
        if not self.heartbeat > 0:
            raise SpecError(f"heartbeat: {self.heartbeat} is not possible; a number above 0 is needed")
        if self.guard not in get_args(Guard):
            raise SpecError(f"guard: {self.guard!r} is unknown; allowed: {', '.join(get_args(Guard))}")

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if not 1 <= self.walks <= nodes:
            raise SpecError(f"walks: {self.walks} is not possible on {nodes} nodes; allowed: 1 to {nodes} (R ≤ V)")
        if not 0 <= self.aggregator < nodes:
            raise SpecError(f"aggregator: there is no node {self.aggregator}; allowed: 0 to {nodes - 1}")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if not self.resilient:
            return {WALK: Arrival("walk/{walk}"), **{kind: Arrival(f"{kind}/{{round}}") for kind in self.extras}}
        extras = {kind: Arrival(f"in/{kind}/{{round}}") for kind in self.extras}
        return {WALK: Arrival("in/{walk}"), ACK: Arrival(), BEAT: Arrival(), **extras}

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, network_view: NetworkView) -> Machine:
        rule = self.rule(network_view)
        if self.resilient:
            return ResilientNode(network_view, self.walks, self.aggregator, self.heartbeat, self.guard, rule)
        return WalkNode(network_view, self.walks, self.aggregator, rule)
