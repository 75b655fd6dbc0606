"""What goes wrong in a run, and when: by the clock, or at random rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from walktalk.errors import SpecError
from walktalk.seeds import Seed

FaultKind: TypeAlias = Literal[
    "kill", "revive", "pause", "partition", "slow", "lose", "swallow", "corrupt", "join", "leave"
]
How: TypeAlias = Literal["flip", "scale", "noise"]
AGGREGATOR, RANDOM = "aggregator", "random"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong. Give `at`, a time, or `rate`, how often a second on average.

    Every blow stands for itself: a node is dead, or hangs, while any that hit it lasts. Only `revive` ends all that
    killed a node; and a node that dies hangs no longer.
    """

    kind: FaultKind  # what goes wrong
    at: float | None = None  # seconds of virtual time
    rate: float | None = None  # times a second
    seconds: float | None = None  # how long until it is undone; None: for good
    node: int | str | None = None  # kill, pause, leave and others: a node, "aggregator" or "random"; join: a node
    nodes: tuple[int, ...] = ()  # partition: one side; the others are the other. corrupt: all of them, for node
    link: tuple[int, int] | None = None  # slow: a link, in place of a node
    factor: float = 10.0  # slow: how many times slower; corrupt: how many times larger models or their noise are
    share: float | None = None  # lose: of the messages, a tenth unless given; swallow: of the walks, all unless given
    how: How = "flip"  # corrupt: the signs of what is sent, its scale, or noise on it

    def __post_init__(self) -> None:
        if self.kind not in get_args(FaultKind):
            raise SpecError(f"kind: {self.kind!r} is unknown; allowed: {', '.join(get_args(FaultKind))}")
        if (self.at is None) == (self.rate is None):
            raise SpecError(f"at: {self.kind} needs either at, a time, or rate, how often a second")
        if self.at is not None and self.at < 0:
            raise SpecError(f"at: {self.at} is not possible; a number, 0 or more, is needed")
        for name in ("rate", "seconds", "factor"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"{name}: {value} is not possible; a number above 0 is needed")
        if self.share is not None and not 0 <= self.share <= 1:
            raise SpecError(f"share: {self.share} is not possible; a number from 0 to 1 is needed")
        self._check_target()

    def _check_target(self) -> None:
        named = self.node in (AGGREGATOR, RANDOM) or self.node is None
        if not named and (not isinstance(self.node, int) or isinstance(self.node, bool)):
            raise SpecError(f"node: {self.node!r} is not possible; allowed: a number, {AGGREGATOR}, {RANDOM}")
        if self.kind == "partition" and not self.nodes:
            raise SpecError("nodes: is missing; a partition needs the nodes of one side")
        if self.kind == "slow" and (self.node is None) == (self.link is None):
            raise SpecError("node: slow needs either node or link")
        if self.link is not None and self.link[0] == self.link[1]:
            raise SpecError(f"link: {list(self.link)} is not a link; two different nodes are needed")
        if self.kind == "join" and (not isinstance(self.node, int) or self.at is None):
            raise SpecError("node: join needs a node's number, and at, a time: until then it is not there")
        if self.kind in ("join", "leave") and self.seconds is not None:
            raise SpecError(f"seconds: {self.kind} is for good; leave it out")
        if self.kind in ("kill", "revive", "pause", "swallow", "leave") and self.node is None:
            raise SpecError(f"node: is missing; {self.kind} needs a number, {AGGREGATOR} or {RANDOM}")
        if self.kind == "corrupt" and (self.node is None) == (not self.nodes):
            raise SpecError("node: corrupt needs either node or nodes")
        if self.how not in get_args(How):
            raise SpecError(f"how: {self.how!r} is not possible; allowed: {', '.join(get_args(How))}")
        if self.kind == "pause" and self.seconds is None:
            raise SpecError("seconds: is missing; a paused node goes on after a while, or it is killed")

    @property
    def chance(self) -> float:
        """The share that it hits."""
        return self.share if self.share is not None else 1.0 if self.kind == "swallow" else 0.1

    def check(self, nodes: int | None, links: bool) -> None:
        """Raise `SpecError` where it names something that is not there.

        nodes: how many the graph has; None where that is not known yet. links: whether messages take time of their own.
        """
        if self.link is not None and not links:
            raise SpecError(
                f"link: {list(self.link)} cannot be slow in Poisson timing, where messages take no time; "
                "use timing.model: network, or slow a node"
            )
        if nodes is not None:
            self._check_nodes(nodes)

    @property
    def is_failure(self) -> bool:
        """Whether anything is lost or late by it: then protocols must be of the kind that survives that."""
        return self.kind != "corrupt"

    @property
    def spoils(self) -> str:
        """How a corrupt node spoils what it sends, as the interpreter takes it."""
        return self.how if self.how == "flip" else f"{self.how}({self.factor:g})"

    def _check_nodes(self, nodes: int) -> None:
        alone = (self.node,) if isinstance(self.node, int) else ()
        for key, named in (("nodes", self.nodes), ("link", self.link or ()), ("node", alone)):
            for node in named:
                if not 0 <= node < nodes:
                    raise SpecError(f"{key}: there is no node {node}; allowed: 0 to {nodes - 1}")


@dataclass(frozen=True)
class FaultPlan:
    """All faults of a run, and the dice for those that happen at random: the same for all algorithms of a study."""

    faults: tuple[Fault, ...] = ()
    seed: Seed = Seed(0)  # noqa: RUF009 - immutable

    @property
    def has_failures(self) -> bool:
        """Whether anything is lost or late: where nothing is, protocols need no hardening."""
        return any(fault.is_failure for fault in self.faults)

    def __bool__(self) -> bool:
        return bool(self.faults)
