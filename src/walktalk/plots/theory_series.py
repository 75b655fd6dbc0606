"""The series of theory's figures, such as "MW R=8, cycle": whose they are, on which graph, and so how they look."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from walktalk.plots.style import ANY_R, colours, in_order, line_style, title_of

MATRIX, PAIRWISE = "async_gossip-matrix", "async_gossip-pairwise"  # Theorem 2's gossip, and the one that people run
MARKS = {"cycle": "o", "complete": "s", "": "D"}  # empty: the graph is what changes along the line
OTHERS = "^vPX*"
DOTTED: Any = (0, (1, 1.2))  # a bound, in every figure
BOUND_WIDTH = 1.2
MARK_SIZE = 4.0
GRAPHS = {"cycle": "cycle", "complete": "complete graph", "": "cycle to complete graph"}  # as a legend names them


class Look(NamedTuple):
    """How a series is drawn: its algorithm's colour and line, as in every figure, and a mark for its graph."""

    label: str  # the algorithm's, as a study would give it
    graph: str  # empty if none is named
    colour: str
    line: Any
    mark: str
    fill: str  # of the mark: on the complete graph it is empty, and so told apart in grey

    @property
    def title(self) -> str:
        return title_of(self.label)


def looks(names: Iterable[str], gossip: str) -> dict[str, Look]:
    """For series such as "MW R=8, cycle" and "gossip, complete"; `gossip`: the label of what is called so."""
    names = [str(name) for name in names]
    labels = {name: _label(name, gossip) for name in names}
    chosen = colours(labels.values())
    graphs = {name: _graph(name) for name in names}
    others = dict(zip((graph for graph in dict.fromkeys(graphs.values()) if graph not in MARKS), OTHERS, strict=False))
    found = {}
    for name in names:
        colour, graph = chosen[labels[name]], graphs[name]
        mark = MARKS.get(graph, others.get(graph, "o"))
        fill = "white" if graph == "complete" else colour
        found[name] = Look(labels[name], graph, colour, line_style(labels[name]), mark, fill)
    return found


def _label(name: str, gossip: str) -> str:
    """The algorithm's label, as a study would give it."""
    if "gossip" in name.lower():
        return MATRIX if "matrix" in name else gossip
    walks = re.search(r"R=(\d+)", name)
    return f"multi_walk-{walks[1]}" if walks else ANY_R


def _graph(name: str) -> str:
    """What stands behind the algorithm: "cycle" in "MW R=8, cycle", nothing in "Multi-Walk, R=8"."""
    behind = name.rpartition(", ")[2] if ", " in name else ""
    return "" if "R=" in behind else behind


def handles_of(found: Mapping[str, Look], more: Sequence[Line2D] = ()) -> list[Line2D]:
    """A legend's lines: algorithms by colour and line, then `more`, then graphs by mark."""
    labels = in_order(look.label for look in found.values())
    chosen = colours(labels)
    graphs = dict.fromkeys(look.graph for look in found.values())
    lines = [Line2D([], [], color=chosen[one], linestyle=line_style(one), label=title_of(one)) for one in labels]
    return [*lines, *more, *(_graph_handle(graph) for graph in GRAPHS if graph in graphs)]


def bound_handle() -> Line2D:
    return Line2D([], [], color="#444444", linestyle=DOTTED, linewidth=BOUND_WIDTH, label="bound, same colour")


def _graph_handle(graph: str) -> Line2D:
    look: Any = {"marker": MARKS[graph], "markerfacecolor": "white" if graph == "complete" else "#444444"}
    return Line2D([], [], color="#444444", linestyle="", markersize=MARK_SIZE, label=GRAPHS[graph], **look)
