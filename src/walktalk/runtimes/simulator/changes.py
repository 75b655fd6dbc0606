"""Nodes that join a run in virtual time, and leave it for good: who is whose neighbour meanwhile.

A node that joins is one of the study's graph that is not there at first, with its data; when it comes it has the
edges of that graph. While nodes are not there yet, or not any more, those that they would hold together are joined up
(`graphs.Changing`), as on real peers. News of it are everywhere at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from walktalk.errors import SpecError
from walktalk.graphs import Changing, Graph
from walktalk.protocols import Protocol, Surroundings
from walktalk.runtimes.simulator.fault_plan import FaultPlan


@dataclass
class Changes:
    """Who is there in one run.

    Args:
        graph: the study's.
        absent: those who have not joined yet.
        leaving: those who are about to leave: still neighbours, but nobody gives them anything to do any more.
        left: those who have left for good.
    """

    graph: Graph
    absent: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)

    @staticmethod
    def of(plan: FaultPlan, graph: Graph, protocol: Protocol) -> Changes | None:
        """Those of a plan; None where nobody joins or leaves. `SpecError` where the protocol cannot have it."""
        kinds = [fault for fault in plan.faults if fault.kind in ("join", "leave")]
        if not kinds or protocol.pools_data:
            return None
        if not protocol.nodes_come_and_go:
            raise SpecError(
                f"faults: {protocol.label} is not made for nodes that {kinds[0].kind} while it runs; multi_walk and "
                "gossip are"
            )
        joining = {fault.node for fault in kinds if fault.kind == "join" and isinstance(fault.node, int)}
        _check_first(joining, protocol, graph)
        return Changes(graph, joining)

    def is_away(self, node: object) -> bool:
        """Whether a node has not joined yet, or has left for good."""
        return node in self.absent or node in self.left

    def surroundings(self, known: list[Surroundings]) -> list[Surroundings]:
        """What every node knows now; `known`: what it would if all were there."""
        gone = self.absent | self.left
        without, still = (Changing(self.graph, left=frozenset(nodes)) for nodes in (gone | self.leaving, gone))
        rows = {node: self._row(node, without, still) for node in range(self.graph.nodes)}
        return [
            replace(
                around,
                nodes=len(without.present),
                neighbours=rows[around.node],
                degrees=tuple(len(rows[peer]) for peer in rows[around.node]),
                leaving=frozenset(self.leaving | self.left),
                first=self.graph.nodes,
            )
            for around in known
        ]

    def _row(self, node: int, without: Changing, still: Changing) -> tuple[int, ...]:
        if node in self.leaving:
            return still.rows[node]
        leaving = [peer for peer in still.rows.get(node, ()) if peer in self.leaving]
        return tuple(sorted({*without.rows.get(node, ()), *leaving}))


def _check_first(joining: set[int], protocol: Protocol, graph: Graph) -> None:
    """Walks, and the aggregator, start at nodes that are there."""
    settings = protocol.settings
    busy = {*range(int(settings.get("walks", 0))), *([settings["aggregator"]] if "aggregator" in settings else ())}
    for node in sorted(joining & busy):
        free = [v for v in range(graph.nodes) if v not in busy]
        allowed = f"{free[0]} to {free[-1]}" if free else "none"
        raise SpecError(f"node: {node} cannot join later: a walk begins there, or it aggregates; allowed: {allowed}")
    if len(joining) > graph.nodes - 2:
        raise SpecError(f"node: {len(joining)} of {graph.nodes} nodes join later; two must be there at first")
