"""What a protocol may demand of the graph that it runs on: a list in the protocol, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from walktalk.core.errors import SpecError
from walktalk.graphs import Graph


class Demand(NamedTuple):
    """Something that a protocol needs of a graph, and what is said where it is not so."""

    words: str  # what the graph has to be, as it ends "needs …"
    is_met: Callable[[Graph], bool]  # whether a graph is that
    otherwise: str  # the error where it is not, with {graph} and {label} for the names of the graph and the protocol

    def check(self, graph: Graph, label: str) -> None:
        """Raise `SpecError` where it is not met."""
        if not self.is_met(graph):
            raise SpecError(self.otherwise.format(graph=graph.name, label=label))


TWO_WAY = Demand(
    "links that go both ways",
    lambda graph: not graph.directed,
    "network: {graph} has one-way links, on which {label} cannot run; take an undirected graph, or an algorithm for "
    "directed ones",
)
FIXED = Demand(
    "a graph that does not change by round",
    lambda graph: graph.rounds is None,
    "network: {graph} changes by round, on which {label} cannot run; take a fixed graph",
)
BALANCED = Demand(
    "weights whose rows and columns sum to one: with one-way links, as many in as out, everywhere",
    lambda graph: not graph.directed or len({*graph.degrees.tolist(), *graph.reverse.degrees.tolist()}) <= 1,
    "network: on {graph} nodes hear more or fewer than they send to, and {label} needs as many at all; take sgp, or a "
    "graph such as exponential",
)
COMPLETE = Demand(
    "a link between any two nodes",
    lambda graph: graph.edges == graph.nodes * (graph.nodes - 1) // 2,
    "network: {label} sends to anybody, but {graph} is not complete; take complete",
)


def there_is(node: int) -> Demand:
    """A server's own node."""
    return Demand(
        f"a node {node}",
        lambda graph: node < graph.nodes,
        f"server: there is no node {node} on {{graph}}; nodes are numbered from 0",
    )


def tree_with(node: int) -> tuple[Demand, ...]:
    """A server that is the root of a tree."""
    tree = Demand(
        "a tree",
        lambda graph: graph.rounds is None and graph.edges == graph.nodes - 1,
        "network: {graph} is no tree, along which {label} hands models; take binary_tree, spanning_tree, path or star",
    )
    return there_is(node), tree


def server_at(node: int) -> tuple[Demand, ...]:
    """A server that has a link with everybody."""
    linked = Demand(
        f"links of node {node}, the server, with all others",
        lambda graph: graph.rounds is None and len(graph.neighbours(node)) >= graph.nodes - 1,
        f"network: {{label}} has node {node} as its server, which has no link with all others on {{graph}}; take star",
    )
    return there_is(node), linked
