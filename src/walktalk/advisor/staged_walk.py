"""Multi-Walk whose aggregator dies at known times: what Theorem 3 speaks of (Section 5, case (i)).

When the aggregator of a stage dies, every neighbour forgets it and the living node with most neighbours takes over; it
starts all copies from the first walk that arrives. Nobody has to find out: the times are given, so this is for checking
the theorem and not for running. No walk is lost: one that is being trained by the dying node is trained to the end and
sent on. Everything else is Algorithm 1's own machines, a new one at each stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.core.errors import SpecError
from walktalk.graphs import Graph
from walktalk.protocols import (
    UPDATE,
    Arrival,
    Combine,
    Context,
    Effect,
    Event,
    Machine,
    MultiWalk,
    NetworkView,
    Protocol,
    Runtime,
    SetTimer,
    Started,
    TimerFired,
    Trained,
)


@dataclass(frozen=True)
class Stage:
    """The network between two deaths, in the numbers of the whole graph."""

    aggregator: int
    living: frozenset[int]
    degrees: dict[int, int]  # of the living, among the living


@dataclass(frozen=True)
class StagedWalk(Protocol):
    """R walks; the aggregator of stage k dies `deaths[k]` seconds after the start."""

    graph: Graph
    walks: int = 1
    deaths: tuple[float, ...] = ()
    name: ClassVar[str] = "staged_walk"
    runtimes: ClassVar[tuple[Runtime, ...]] = ("sim",)

    @property
    def label(self) -> str:
        return f"multi_walk-{self.walks}-deaths{len(self.deaths)}"

    def check(self, nodes: int) -> None:
        MultiWalk(self.walks).check(nodes)
        if len(self.deaths) >= nodes or self.walks > nodes - len(self.deaths):
            raise SpecError(f"deaths: {len(self.deaths)} of {nodes} nodes leave too few for {self.walks} walks")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MultiWalk(self.walks).messages

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, network_view: NetworkView) -> Machine:
        return StagedNode(network_view, self)

    def stages(self) -> list[Stage]:
        """As `theory.stages` has them, from node 0 on."""
        living, aggregator = set(range(self.graph.nodes)), 0
        found: list[Stage] = []
        for _ in range(len(self.deaths) + 1):
            degrees = {v: sum(peer in living for peer in self.graph.neighbours(v)) for v in living}
            if found:
                aggregator = min(living, key=lambda v: (-degrees[v], v))
            found.append(Stage(aggregator, frozenset(living), degrees))
            living.discard(aggregator)
        return found


class StagedNode(Machine):
    """A node: Algorithm 1's machine for the stage of now."""

    __slots__ = ("around", "fresh", "inner", "protocol", "stages")

    def __init__(self, network_view: NetworkView, protocol: StagedWalk) -> None:
        self.around = network_view
        self.protocol = protocol
        self.stages = protocol.stages()
        self.fresh = False  # whether this is a new aggregator that no walk has reached yet
        self.inner = self.machine_of(self.stages[0])

    def machine_of(self, stage: Stage) -> Machine:
        neighbours = tuple(peer for peer in self.around.neighbours if peer in stage.living)
        degrees = tuple(stage.degrees[peer] for peer in neighbours)
        around = NetworkView(self.around.node, self.around.nodes, neighbours, degrees)
        return MultiWalk(self.protocol.walks, stage.aggregator).machine(around)

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, TimerFired):
            return self.next_stage(self.stages[int(event.name)])
        effects: list[Effect] = []
        if isinstance(event, Started):
            effects += [SetTimer(str(k + 1), after) for k, after in enumerate(self.protocol.deaths)]
        if self.fresh and isinstance(event, Trained):
            # All copies from the first walk that arrives; line 8 then gives this walk back as it is.
            self.fresh = False
            copies = range(1, self.protocol.walks + 1)
            effects += [Combine(f"copy/{r}", {event.slot: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}) for r in copies]
        return effects + self.inner.handle(event, context)

    def next_stage(self, stage: Stage) -> list[Effect]:
        self.inner = self.machine_of(stage)
        self.fresh = self.around.node == stage.aggregator
        return []
