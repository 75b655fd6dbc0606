"""A graph edge by edge, as a specification can hold it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from walktalk.core.errors import GraphError
from walktalk.graphs.graph import Graph


def edges(
    edges: list[tuple[int | str, int | str]],
    nodes: int | None = None,
    names: list[str] | None = None,
    directed: bool = False,
    called: str = "graph",
) -> Graph:
    """A graph made of a list of edges, given one by one.

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


# A graph from a file: one edge a line, two node names separated by blanks or a comma; `#` begins a comment.


def edge_list(file: str | PathLike[str]) -> Graph:
    """The graph in this file. Whole numbers as names are put in order; other names come as they do, and are kept.

    Args:
        file: A text file with two node names a line; `#` begins a comment.
    """
    path = Path(file)
    name = f"edge_list({path.name})"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise GraphError(f"edge_list: file = {str(file)!r} cannot be read: {reason}") from error
    edges = [_ends(line, number, name) for number, line in enumerate(lines, 1) if line.split("#")[0].strip()]
    if not edges:
        raise GraphError(f"{name}: the file has no edges; it should have two node names a line")
    labels = list(dict.fromkeys(end for edge in edges for end in edge))
    if all(label.isdecimal() for label in labels):
        labels.sort(key=int)
    number_of = {label: number for number, label in enumerate(labels)}
    graph = Graph.from_edges(len(labels), [[number_of[end] for end in edge] for edge in edges], name).connected()
    return graph if all(label.isdecimal() for label in labels) else graph.named(labels)


def _ends(line: str, number: int, name: str) -> tuple[str, str]:
    words = line.split("#")[0].replace(",", " ").split()
    if len(words) != 2:
        raise GraphError(f"{name}: line {number} is {line.strip()!r}, but it must have two node names")
    return words[0], words[1]
