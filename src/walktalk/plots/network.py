"""The network: nodes and edges, sites as boxes where there are any, the aggregator marked (the paper's Figure 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from scipy.sparse.linalg import eigsh

from walktalk.errors import GraphError
from walktalk.graphs import Graph, GraphLike, Sites, as_graph
from walktalk.plots.style import new_figure, styled

Points = npt.NDArray[np.float64]
LARGEST = 3000  # nodes; beyond, a drawing is a grey blot
CORNERS = 0.62  # radians; not quite a square, so that few edges run through a third node
NAMED = 60  # nodes that are few enough to be numbered
LONGEST_WITHIN = 3  # letters of a name that fit into a node; longer ones stand above it


def network(graph: GraphLike, *, aggregator: int | None = 0, title: str | None = None) -> Figure:
    """A drawing of the graph; the same graph gives the same drawing."""
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


def positions(graph: Graph) -> Points:
    """Where to draw each node: by site where there are any, rings round, everything else by its distances."""
    if graph.sites is not None:
        return _by_site(graph.sites)
    drawing = replace(graph, names=None).to_networkx()
    ring = graph.nodes <= 3 or bool((graph.degrees == 2).all()) or graph.edges == graph.nodes * (graph.nodes - 1) // 2
    if ring:
        placed = dict(enumerate(_circle(_around(graph))))
    elif graph.nodes <= 300:
        placed = nx.kamada_kawai_layout(drawing)
    else:
        placed = nx.spring_layout(drawing, pos=_spread_out(drawing), iterations=15)
    return np.array([placed[node] for node in range(graph.nodes)], dtype=float)


def _spread_out(drawing: Any) -> dict[int, Points]:
    """A start that has the drawing's large shape already: the slowest modes of its Laplacian. Springs do the rest.

    From a random start they need four times as many steps, each of which looks at all pairs of nodes.
    """
    laplacian = nx.laplacian_matrix(drawing, nodelist=range(len(drawing))).astype(float).tocsc()
    start = np.cos(np.arange(len(drawing)))  # any vector will do, but always the same
    vectors = eigsh(laplacian, k=3, sigma=-0.01, v0=start)[1][:, 1:]  # the first is the same everywhere
    return dict(enumerate(vectors / np.abs(vectors).max(axis=0)))


def _around(graph: Graph) -> list[int]:
    """The place of each node in a walk around the ring; a complete graph has no better order than its numbers."""
    if graph.nodes <= 3 or not bool((graph.degrees == 2).all()):
        return list(range(graph.nodes))
    order = [0, graph.neighbours(0)[0]]
    while len(order) < graph.nodes:
        a, b = graph.neighbours(order[-1])
        order.append(b if a == order[-2] else a)
    place = [0] * graph.nodes
    for index, node in enumerate(order):
        place[node] = index
    return place


def _circle(order: list[int], turn: float = 0.0) -> Points:
    angle = np.pi / 2 + turn - 2 * np.pi * np.array(order, dtype=float) / max(len(order), 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _by_site(sites: Sites) -> Points:
    """Sites on an ellipse, a site's nodes on a small circle within it."""
    count = len(sites.names)
    centres = _circle(list(range(count))) * np.array([1.7, 1.15]) if count > 1 else np.zeros((1, 2))
    places = np.zeros((len(sites.site_of), 2))
    for site in range(count):
        members = np.flatnonzero(sites.site_of == site)
        places[members] = centres[site] + 0.3 * _circle(list(range(len(members))), turn=CORNERS)
    return places


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
        panel.legend(loc="upper left", handletextpad=0.3, markerscale=0.6)
    if named:
        for node, (x, y) in enumerate(places):
            name, inside = graph.name_of(node), len(graph.name_of(node)) <= LONGEST_WITHIN
            place = {"va": "center_baseline", "color": "white"} if inside else {"va": "bottom", "color": "#333333"}
            panel.text(x, y if inside else y + 0.06, name, fontsize=6.5, ha="center", zorder=4, **place)


def _line_width(graph: Graph) -> float:
    return float(np.clip(60 / max(graph.edges, 1), 0.25, 1.1))
