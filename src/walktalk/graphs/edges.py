"""A graph edge by edge, as a specification can hold it."""

from __future__ import annotations

from collections.abc import Sequence

from walktalk.errors import GraphError
from walktalk.graphs.graph import Graph


def edges(
    edges: list[tuple[int | str, int | str]],
    nodes: int | None = None,
    names: list[str] | None = None,
    directed: bool = False,
    called: str = "graph",
) -> Graph:
    """Edge by edge.

    Args:
        edges: pairs of nodes, by number or by name.
        nodes: how many nodes, V; as many as the edges or the names say if left out.
        names: of the nodes, in the order of their numbers; as they come in the edges if left out.
        directed: whether a pair is a one-way link, from the first to the second.
        called: how the graph is called.
    """
    ends = [end for edge in edges for end in edge]
    if names is None and any(isinstance(end, str) for end in ends):
        names = list(dict.fromkeys(str(end) for end in ends))
    count = nodes if nodes is not None else len(names) if names is not None else 1 + max(map(int, ends), default=0)
    pairs = [[_number(end, names) for end in edge] for edge in edges]
    make = Graph.from_arcs if directed else Graph.from_edges
    graph = make(count, pairs, called).connected()
    return graph if names is None else graph.named(names)


def _number(end: int | str, names: Sequence[str] | None) -> int:
    if not isinstance(end, str):
        return end
    if names is None or end not in names:
        raise GraphError(f"edges: there is no node {end!r}; names: {', '.join(names or ())}")
    return names.index(end)
