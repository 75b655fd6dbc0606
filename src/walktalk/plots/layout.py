"""Where the nodes of a drawing go: sites apart, rings round, and no edge through a node that is not its end."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import eigsh

from walktalk.graphs import Graph, Sites

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
    """For each node and edge how much it is too near, 0 if it is not or ends there; and the direction away from it."""
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
