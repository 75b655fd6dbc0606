"""A graph from a file: one edge a line, two node names separated by blanks or a comma; `#` begins a comment."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from walktalk.errors import GraphError
from walktalk.graphs.graph import Graph


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
