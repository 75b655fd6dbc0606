"""The network: nodes and edges, sites as boxes where there are any, the aggregator marked (the paper's Figure 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from walktalk.errors import GraphError
from walktalk.graphs import Graph, GraphLike, Sites, as_graph
from walktalk.plots.layout import NAMED, Points, positions
from walktalk.plots.style import new_figure, styled

LARGEST = 3000  # nodes; beyond, a drawing is a grey blot
LONGEST_WITHIN = 3  # letters of a name that fit into a node; longer ones stand above it


def network(graph: GraphLike, *, aggregator: int | None = 0, title: str | None = None) -> Figure:
    """A drawing of the graph; the same graph gives the same drawing.

    Args:
        graph: The graph, at its sites where it has them.
        aggregator: The node that is marked; None for none.
        title: Above the figure; none if left out.
    """
    graph = as_graph(graph)
    if graph.nodes > LARGEST:
        raise GraphError(f"{graph.name} has {graph.nodes} nodes, but at most {LARGEST} can be drawn")
    places = positions(graph)
    size = 4.6 if graph.nodes <= NAMED else 6.0
    with styled():
        figure = new_figure(size * (1.35 if graph.sites is not None else 1.1), size)
        panel = figure.subplots()
        panel.set_axis_off()
        panel.set_aspect("equal")
        if graph.sites is not None:
            _draw_sites(panel, places, graph.sites)
        edges = LineCollection(
            list(places[graph.edge_list()]), colors="#8aa0b4", linewidths=_line_width(graph), zorder=2
        )
        panel.add_collection(edges)
        _draw_nodes(panel, places, graph, aggregator)
        panel.autoscale_view()
        panel.margins(0.06)
        panel.set_title(title if title is not None else f"{graph.name}: {graph.nodes} nodes, {graph.edges} edges")
    return figure


def _draw_sites(panel: Any, places: Points, sites: Sites) -> None:
    for site, name in enumerate(sites.names):
        members = places[sites.site_of == site]
        if len(members) == 0:
            continue
        low, high = members.min(axis=0) - 0.04, members.max(axis=0) + 0.04
        box = FancyBboxPatch(
            (low[0], low[1]),
            high[0] - low[0],
            high[1] - low[1],
            boxstyle="round,pad=0.1",
            facecolor="#f3f3f3",
            edgecolor="#a8a8a8",
            zorder=1,
        )
        panel.add_patch(box)
        above = members.mean(axis=0)[1] >= 0
        y, side = (high[1] + 0.13, "bottom") if above else (low[1] - 0.13, "top")
        panel.text((low[0] + high[0]) / 2, y, name, ha="center", va=side, fontweight="bold")


def _draw_nodes(panel: Any, places: Points, graph: Graph, aggregator: int | None) -> None:
    named = graph.nodes <= NAMED
    size = 170 if named else max(4, 9000 / graph.nodes)
    others = np.arange(graph.nodes) != (-1 if aggregator is None else aggregator)
    look = {"edgecolors": "white", "linewidths": 0.8 if named else 0.3, "zorder": 3}
    panel.scatter(*places[others].T, s=size, c="#0072B2", **look)
    if aggregator is not None:
        panel.scatter(*places[~others].T, s=1.9 * size, c="#D55E00", marker="s", label="aggregator", **look)
        panel.figure.legend(loc="outside lower center", handletextpad=0.3, markerscale=0.6)
    if named:
        for node, (x, y) in enumerate(places):
            name, inside = graph.name_of(node), len(graph.name_of(node)) <= LONGEST_WITHIN
            place = {"va": "center_baseline", "color": "white"} if inside else {"va": "bottom", "color": "#333333"}
            panel.text(x, y if inside else y + 0.06, name, fontsize=6.5, ha="center", zorder=4, **place)


def _line_width(graph: Graph) -> float:
    return float(np.clip(60 / max(graph.edges, 1), 0.25, 1.1))
