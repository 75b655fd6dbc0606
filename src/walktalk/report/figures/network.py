"""The network as a drawing, its sites as boxes (the paper's Figure 2), and who holds which data (Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from scipy.sparse.linalg import eigsh

from walktalk.core.errors import DataError, GraphError
from walktalk.graphs import Graph, GraphLike, Sites, as_graph
from walktalk.learning import Task
from walktalk.report.figures.style import new_figure, styled

# -- layout: sites apart, rings round, and no edge through a node that is not its end ---------------------------------

Points = npt.NDArray[np.float64]
Edges = npt.NDArray[np.int64]
NAMED = 60  # nodes that are few enough to be numbered, and for edges to be kept clear of them
CLEARANCE = 0.03  # of the drawing's width, from an edge to the middle of a node: a little more than a node's radius
ROUNDS = 300  # of pushing nodes off edges; most drawings need a few dozen
PATIENCE = 50  # rounds without a better drawing
DENSE = 250  # edges from which on there is no way around nodes
TURNS = 36  # directions in which a site's first node is tried
SITE = 0.3  # radius of the circle of a site's nodes


def positions(graph: Graph) -> Points:
    """Where to draw each node: by site where there are any, rings round, everything else by its distances.

    No edge runs through a node that is not its end, as far as possible, where nodes are few enough to be numbered.
    """
    edges = graph.edge_list()
    if graph.sites is not None:
        return _by_site(graph.sites, edges if graph.nodes <= NAMED else edges[:0])
    drawing = replace(graph, names=None).to_networkx()
    ring = graph.nodes <= 3 or bool((graph.degrees == 2).all()) or graph.edges == graph.nodes * (graph.nodes - 1) // 2
    if ring:
        return _circle(_around(graph))
    if graph.nodes <= 300:
        placed = nx.kamada_kawai_layout(drawing)
    else:
        placed = nx.spring_layout(drawing, pos=_spread_out(drawing), iterations=15)
    places = np.array([placed[name] for name in drawing], dtype=float)
    return cleared(places, edges) if graph.nodes <= NAMED and len(edges) <= DENSE else places


def _spread_out(drawing: nx.Graph) -> dict[int, Points]:
    """A start that has the drawing's large shape already: the slowest modes of its Laplacian. Springs do the rest.

    From a random start they need four times as many steps, each of which looks at all pairs of nodes.
    """
    laplacian = nx.laplacian_matrix(drawing, nodelist=range(len(drawing))).astype(float).tocsc()
    start = np.cos(np.arange(len(drawing)))  # any vector will do, but always the same
    vectors = eigsh(laplacian, k=3, sigma=-0.01, v0=start)[1][:, 1:]  # the first is the same everywhere
    return dict(enumerate(vectors / np.abs(vectors).max(axis=0)))


def trespass(places: Points, edges: Edges) -> float:
    """How far edges go into the surroundings of nodes that are not their ends, in all; 0 where none does."""
    return float(_short(places, edges)[0].sum())


def cleared(places: Points, edges: Edges) -> Points:
    """The places, with nodes pushed off edges and edges off nodes until no edge runs through a node, or nearly so."""
    best, least, since = places, trespass(places, edges), 0
    for _ in range(ROUNDS):
        if least == 0 or since > PATIENCE:
            break
        short, away = _short(places, edges)
        push = (short[:, :, None] * away).sum(axis=1)
        for end in (0, 1):
            np.add.at(push, edges[:, end], -0.5 * (short[:, :, None] * away).sum(axis=0))
        places = places + 0.5 * push + 0.3 * _apart(places)
        found = trespass(places, edges)
        since = 0 if found < least else since + 1
        if found < least:
            best, least = places, found
    return best


def _short(places: Points, edges: Edges) -> tuple[Points, npt.NDArray[np.float64]]:
    """How much each node is too near to each edge, 0 if it is not or ends there; and the direction away from it."""
    room = CLEARANCE * float(np.ptp(places, axis=0).max())
    start, along = places[edges[:, 0]], places[edges[:, 1]] - places[edges[:, 0]]
    from_start = places[:, None] - start[None]
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip((from_start * along).sum(axis=2) / length, 0.0, 1.0)
    gap = from_start - share[:, :, None] * along
    distance = np.sqrt((gap**2).sum(axis=2))
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.sqrt(length)[:, None]  # where a node is on the edge
    away = np.where(distance[:, :, None] > 1e-9, gap / np.maximum(distance, 1e-9)[:, :, None], across[None])
    short = np.maximum(room - distance, 0.0)
    numbers = np.arange(len(places))[:, None]
    short[(numbers == edges[:, 0]) | (numbers == edges[:, 1])] = 0.0
    return short, away


def _apart(places: Points) -> Points:
    """How far each node has to go for no two to touch."""
    room = 2.5 * CLEARANCE * float(np.ptp(places, axis=0).max())
    gap = places[:, None] - places[None]
    distance = np.sqrt((gap**2).sum(axis=2))
    short = np.where(distance > 0, np.maximum(room - distance, 0.0), 0.0)
    return np.asarray((short[:, :, None] * gap / np.maximum(distance, 1e-9)[:, :, None]).sum(axis=1))


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


def _by_site(sites: Sites, edges: Edges) -> Points:
    """Sites on an ellipse, a site's nodes on a small circle within it, turned so that edges run clear of nodes."""
    count = len(sites.names)
    centres = _circle(list(range(count))) * np.array([1.7, 1.15]) if count > 1 else np.zeros((1, 2))
    members = [np.flatnonzero(sites.site_of == site) for site in range(count)]
    places = np.zeros((len(sites.site_of), 2))

    def turned(site: int, turn: float) -> Points:
        tried = places.copy()
        tried[members[site]] = centres[site] + SITE * _circle(list(range(len(members[site]))), turn)
        return tried

    for site in range(count):
        places = turned(site, 0.62)  # not quite a square
    for _ in range(3):  # a turn of one site changes what is best for the others
        for site in range(count):
            tries = [turned(site, 2 * np.pi * k / TURNS) for k in range(TURNS)] if len(edges) else []
            places = min([places, *tries], key=lambda tried: trespass(tried, edges))
    return places


MOST_NODES = 3000  # nodes; beyond, a drawing is a grey blot
LONGEST_WITHIN = 3  # letters of a name that fit into a node; longer ones stand above it


def network(graph: GraphLike, *, aggregator: int | None = 0, title: str | None = None) -> Figure:
    """A drawing of the graph; the same graph gives the same drawing.

    Args:
        graph: The graph, at its sites where it has them.
        aggregator: The node that is marked; None for none.
        title: Above the figure; none if left out.
    """
    graph = as_graph(graph)
    if graph.nodes > MOST_NODES:
        raise GraphError(f"{graph.name} has {graph.nodes} nodes, but at most {MOST_NODES} can be drawn")
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


# -- who holds which data: a bubble per node and class (the paper's Figure 3) -----------------------------------------

LARGEST_BUBBLE = 150.0  # area of the largest bubble, in square points: it just fills its cell


def partition(
    counts: npt.ArrayLike | Task,
    classes: Sequence[str] | None = None,
    *,
    nodes: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Bubbles that say who holds what.

    Args:
        counts: A task, or a table of samples with a row per node and a column per class.
        classes: Their names; the task's, or numbers, unless given.
        nodes: The nodes' names; likewise.
        title: Above the drawing.
    """
    if isinstance(counts, Task):
        found, held = class_counts(counts)
        return partition(held, classes or [str(name) for name in found], nodes=nodes or counts.names, title=title)
    table = np.asarray(counts, dtype=float)
    if table.ndim != 2 or table.size == 0 or table.max() <= 0:
        raise DataError("a partition needs a table of samples, one row per node and one column per class")
    count, kinds = table.shape
    names = [str(k) for k in range(kinds)] if classes is None else [str(name) for name in classes]
    cell = 0.24 if count <= 50 else 12.0 / count
    with styled():
        figure = new_figure(max(3.4, cell * count + 1.6), max(2.0, 0.24 * kinds + 0.9))
        panel = figure.subplots()
        node, kind = np.nonzero(table)
        area = table[node, kind] / table.max() * LARGEST_BUBBLE * (min(cell, 0.24) / 0.24) ** 2
        panel.scatter(node, kind, s=area, c="#0072B2", alpha=0.85, linewidths=0)
        panel.set(xlim=(-0.7, count - 0.3), ylim=(-0.7, kinds - 0.3), xlabel="Node", ylabel="Class")
        shown = _ticks(count)
        if nodes:
            panel.set_xticks(shown, [nodes[k] for k in shown], rotation=90)
        else:
            panel.set_xticks(shown)
        panel.set_yticks(range(kinds), names)
        panel.tick_params(length=0)
        panel.set_title(title or "", loc="left")
        _legend(panel, table.max())
    return figure


def class_counts(task: Task) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """A task's classes, and the samples of each: a row per node, a column per class."""
    if task.labels is None:
        raise DataError("the task has no classes, so there is no partition to draw")
    classes, codes = np.unique(np.asarray(task.labels), return_inverse=True)
    return classes, np.stack([np.bincount(codes[part], minlength=len(classes)) for part in task.parts])


def _ticks(nodes: int) -> list[int]:
    step = 1 if nodes <= 25 else 5 * max(1, round(nodes / 100))
    return list(range(0, nodes, step))


def _legend(panel: Any, largest: float) -> None:
    """Three sizes of bubble, with the number of samples each stands for."""
    sizes = sorted({_rounded(largest * share) for share in (0.1, 0.4, 1.0)})
    handles = [
        panel.scatter(
            [], [], s=size / largest * LARGEST_BUBBLE, c="#0072B2", alpha=0.85, linewidths=0, label=f"{size:,.0f}"
        )
        for size in sizes
    ]
    panel.legend(
        handles=handles,
        title="Samples",
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        labelspacing=0.9,
        title_fontsize=8.5,
    )


def _rounded(value: float) -> float:
    """One significant digit, but never more than there is."""
    step = 10.0 ** np.floor(np.log10(max(value, 1.0)))
    return float(max(1.0, np.floor(value / step) * step))
