"""What each node of a simulated network knows of it: at first, and while nodes join and leave for good.

A node that joins is one of the study's graph that is not there at first, with its data; when it comes it has the
edges of that graph. While nodes are not there yet, or not any more, those that they would hold together are joined up
(`graphs.Changing`), as on real peers. News of it are everywhere at once.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace

from walktalk.core.errors import SpecError
from walktalk.graphs import Changing, Graph
from walktalk.protocols import NetworkView, Protocol
from walktalk.runtimes.simulator.fault_plan import FaultPlan
from walktalk.runtimes.simulator.timing import Stopwatch


def all_network_views(
    graph: Graph, stopwatch: Stopwatch | None = None, samples: tuple[int, ...] = ()
) -> list[NetworkView]:
    """What every node knows at first. Equal numbers are one object: less memory, and near each other in it.

    Of what counts in an election, machines differ here in how fast they compute: a straggler is not preferred.
    """
    names, bounds = list(range(graph.nodes)), graph.indptr.tolist()
    peers = [names[peer] for peer in graph.indices.tolist()]
    degrees = graph.degrees[graph.indices].tolist()
    alike = (0.0, 0.0, 1.0)
    slowness = stopwatch.slowness if stopwatch is not None else []
    resources = [(0.0, 0.0, 1.0 / factor) for factor in slowness] or [alike] * graph.nodes
    heard = [graph.reverse.neighbours(node) for node in names] if graph.directed else [None] * graph.nodes
    counts = samples or (1,) * graph.nodes
    return [
        NetworkView(
            node, graph.nodes, tuple(peers[start:end]), tuple(degrees[start:end]), own, heard[node], counts[node],
            graph.rounds, links=graph.neighbours,
        )
        for node, start, end, own in zip(names, bounds[:-1], bounds[1:], resources, strict=True)
    ]  # fmt: skip


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
            why = f", because {protocol.why_nodes_stay}" if protocol.why_nodes_stay else ""
            raise SpecError(
                f"faults: {protocol.label} is not made for nodes that {kinds[0].kind} while it runs{why}; take another "
                "algorithm, such as multi_walk, async_gossip or sync_gossip"
            )
        for fault in kinds:
            if isinstance(fault.node, int) and (why := protocol.irreplaceable(fault.node)):
                raise SpecError(f"node: {fault.node} cannot {fault.kind} while {protocol.label} runs: {why}")
        joining = {fault.node for fault in kinds if fault.kind == "join" and isinstance(fault.node, int)}
        _check_first(joining, protocol, graph)
        return Changes(graph, joining)

    def is_away(self, node: object) -> bool:
        """Whether a node has not joined yet, or has left for good."""
        return node in self.absent or node in self.left

    def network_view(self, known: list[NetworkView]) -> list[NetworkView]:
        """What every node knows now; `known`: what it would if all were there."""
        gone = self.absent | self.left
        without, still = (Changing(self.graph, left=frozenset(nodes)) for nodes in (gone | self.leaving, gone))
        away = sorted((node, node in self.leaving) for node in gone | self.leaving)
        version = zlib.crc32(repr(away).encode()) >> 1 if away else 0
        rows = {node: self._row(node, without, still) for node in range(self.graph.nodes)}

        def links(node: int) -> tuple[int, ...]:
            return rows[node]

        return [
            replace(
                around,
                nodes=len(without.present),
                neighbours=rows[around.node],
                degrees=tuple(len(rows[peer]) for peer in rows[around.node]),
                leaving=frozenset(self.leaving | self.left),
                first=self.graph.nodes,
                version=version,
                links=links,
            )
            for around in known
        ]

    def _row(self, node: int, without: Changing, still: Changing) -> tuple[int, ...]:
        if node in self.leaving:
            return still.rows[node]
        leaving = [peer for peer in still.rows.get(node, ()) if peer in self.leaving]
        return tuple(sorted({*without.rows.get(node, ()), *leaving}))


def _check_first(joining: set[int], protocol: Protocol, graph: Graph) -> None:
    """What the others wait for starts at nodes that are there."""
    busy = protocol.there_at_first
    for node in sorted(joining.intersection(busy)):
        free = [v for v in range(graph.nodes) if v not in busy]
        allowed = f"{free[0]} to {free[-1]}" if free else "none"
        raise SpecError(f"node: {node} cannot join later: a walk begins there, or it aggregates; allowed: {allowed}")
    if len(joining) > graph.nodes - 2:
        raise SpecError(f"node: {len(joining)} of {graph.nodes} nodes join later; two must be there at first")
