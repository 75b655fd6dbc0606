"""The series of theory's figures, such as "MW R=8, cycle": whose they are, on which graph, and so how they look."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from walktalk.plots.style import ANY_WALKS, line_style
from walktalk.protocols import AsyncGossip, Described, MultiWalk, Protocol, described, known, together

MATRIX, PAIRWISE = AsyncGossip("matrix"), AsyncGossip("pairwise")  # Theorem 2's gossip, and the one that people run
MARKS = {"cycle": "o", "complete": "s", "": "D"}  # empty: the graph is what changes along the line
OTHERS = "^vPX*"
DOTTED: Any = (0, (1, 1.2))  # a bound, in every figure
BOUND_WIDTH = 1.2
MARK_SIZE = 4.0
GRAPHS = {"cycle": "cycle", "complete": "complete graph", "": "cycle to complete graph"}  # as a legend names them


class Look(NamedTuple):
    """How a series is drawn: its algorithm's colour and line, as in every figure, and a mark for its graph."""

    algorithm: Described
    graph: str  # empty if none is named
    colour: str
    line: Any
    mark: str
    fill: str  # of the mark: on the complete graph it is empty, and so told apart in grey

    @property
    def title(self) -> str:
        return self.algorithm.heading


def looks(names: Iterable[str], gossip: Protocol) -> dict[str, Look]:
    """For series such as "MW R=8, cycle" and "gossip, complete"; `gossip`: what is called so."""
    names = [str(name) for name in names]
    found_in = {name: _algorithm(name, gossip) for name in names}
    chosen = together({one.label: one for one in found_in.values()}.values())
    graphs = {name: _graph(name) for name in names}
    others = dict(zip((graph for graph in dict.fromkeys(graphs.values()) if graph not in MARKS), OTHERS, strict=False))
    found = {}
    for name in names:
        algorithm, graph = chosen[found_in[name].label], graphs[name]
        colour = algorithm.colour
        mark = MARKS.get(graph, others.get(graph, "o"))
        fill = "white" if graph == "complete" else colour
        found[name] = Look(algorithm, graph, colour, line_style(algorithm.family), mark, fill)
    return found


def _algorithm(name: str, gossip: Protocol) -> Described:
    """Whose series it is; one of walks without their number is for any."""
    walks = re.search(r"R=(\d+)", name)
    if "gossip" not in name.lower() and not walks:
        return ANY_WALKS
    protocol = MultiWalk(int(walks[1])) if walks else MATRIX if "matrix" in name else gossip
    return described(protocol.label, protocol)


def _graph(name: str) -> str:
    """What stands behind the algorithm: "cycle" in "MW R=8, cycle", nothing in "Multi-Walk, R=8"."""
    behind = name.rpartition(", ")[2] if ", " in name else ""
    return "" if "R=" in behind else behind


def handles_of(found: Mapping[str, Look], more: Sequence[Line2D] = ()) -> list[Line2D]:
    """A legend's lines: algorithms by colour and line, then `more`, then graphs by mark."""
    each = {look.algorithm.label: look.algorithm for look in found.values()}
    ordered = known(each, each).values()
    graphs = dict.fromkeys(look.graph for look in found.values())
    lines = [Line2D([], [], color=x.colour, linestyle=line_style(x.family), label=x.heading) for x in ordered]
    return [*lines, *more, *(_graph_handle(graph) for graph in GRAPHS if graph in graphs)]


def bound_handle() -> Line2D:
    return Line2D([], [], color="#444444", linestyle=DOTTED, linewidth=BOUND_WIDTH, label="bound, same colour")


def _graph_handle(graph: str) -> Line2D:
    look: Any = {"marker": MARKS[graph], "markerfacecolor": "white" if graph == "complete" else "#444444"}
    return Line2D([], [], color="#444444", linestyle="", markersize=MARK_SIZE, label=GRAPHS[graph], **look)
