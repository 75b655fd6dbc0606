"""Sites: where the nodes of a graph stand, and what lies between them.

A site is a place with a fast local network (a cluster of the paper's Figure 2). Latency and bandwidth are given between
sites, the diagonal being the network within one. The overlay graph says who may talk to whom; the sites say how fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from walktalk.core.errors import GraphError
from walktalk.core.settings import misfit
from walktalk.graphs.graph import Floats, Graph, Ints, Sites


def in_blocks(nodes: int, sites: int) -> Ints:
    """Nodes to sites in contiguous blocks of sizes that differ by one at most."""
    return np.arange(nodes, dtype=np.int64) * sites // max(nodes, 1)


def with_sites(graph: Graph, sites: str | Sites) -> Graph:
    """A copy of the overlay graph, laid over sites: a preset's name, or sites of your own, one entry per node.

    Args:
        graph: The overlay.
        sites: A preset's name, or sites of your own, one entry per node.
    """
    if isinstance(sites, str):
        maker = SITE_PRESETS.get(sites.replace("_", "-"))
        if maker is None:
            raise misfit("sites", sites, ", ".join(sorted(SITE_PRESETS)), GraphError)
        return replace(graph, sites=maker(graph.nodes))
    if not isinstance(sites, Sites):
        raise misfit("sites", sites, f"wt.graphs.Sites, {', '.join(sorted(SITE_PRESETS))}", GraphError)
    if len(sites.site_of) != graph.nodes:
        raise GraphError(f"sites has {len(sites.site_of)} nodes, but {graph.name} has {graph.nodes}")
    return replace(graph, sites=sites)


# `us-five-sites`: the network of the paper's Figure 2.
#
# Twenty nodes, four in each of California, Nevada, Iowa, Illinois and Kansas. The overlay is the figure's, edge by
# edge; every node has one neighbour at home and one elsewhere, and the whole is a single cycle of 20 nodes. The paper
# calls the overlay configurable, so the sites can be laid over any graph: `with_sites(graph, "us-five-sites")`.
#
# Where the numbers come from. The paper names states, not cities, and gives no latencies. We put each site in a city
# with a large research university: San Diego, Reno, Ames, Chicago and Manhattan (Kansas). One-way latency is the
# great-circle distance, times `PATH_STRETCH` because fibre follows roads and railways, over the speed of light in glass
# (2/3 c), plus `WITHIN_LATENCY` for the two campus networks. That makes a round trip San Diego to Chicago 42 ms.
# Bandwidth is from Section 6 ("interconnect speeds ranging from 10G to 100G"): 10 Gbit/s between sites, 100 Gbit/s
# within one.

CITIES = {  # site: (city, latitude, longitude), degrees
    "CA": ("San Diego", 32.72, -117.16),
    "NV": ("Reno", 39.53, -119.81),
    "IA": ("Ames", 42.03, -93.62),
    "IL": ("Chicago", 41.88, -87.63),
    "KS": ("Manhattan", 39.18, -96.57),
}
EARTH_RADIUS = 6_371_000.0  # m
LIGHT_IN_FIBRE = 299_792_458.0 * 2 / 3  # m/s
PATH_STRETCH = 1.5  # metres of fibre per metre of great circle; our assumption
WITHIN_LATENCY = 0.1e-3  # s, one way, inside a site; our assumption
BETWEEN_BANDWIDTH = 10e9  # bit/s, Section 6
WITHIN_BANDWIDTH = 100e9  # bit/s, Section 6

FIGURE_2 = (  # the figure's edges; its nodes ca1 … ca4, nw1 … nw4 (labelled NV), ia1 …, il1 …, ks1 …
    "ca1-nw3 ca2-ks4 nw2-ia3 ia2-il1 il3-ks2 ca4-ia1 nw4-il4 ks1-ia4 ks3-nw1 ca3-il2 "
    "ca1-ca2 ca3-ca4 nw1-nw4 nw2-nw3 ia1-ia2 ia3-ia4 il1-il4 il2-il3 ks1-ks2 ks3-ks4"
)


def us_five_sites() -> Graph:
    """Figure 2: 20 nodes in five sites, with the overlay drawn there."""
    first = {"ca": 0, "nw": 4, "ia": 8, "il": 12, "ks": 16}
    edges = [[first[end[:2]] + int(end[2]) - 1 for end in edge.split("-")] for edge in FIGURE_2.split()]
    graph = Graph.from_edges(20, edges, "us-five-sites").connected()
    return replace(graph, sites=sites_for(20))


def sites_for(nodes: int) -> Sites:
    """The five sites for any number of nodes, in contiguous blocks."""
    count = len(CITIES)
    bandwidth = np.full((count, count), BETWEEN_BANDWIDTH)
    np.fill_diagonal(bandwidth, WITHIN_BANDWIDTH)
    return Sites(tuple(CITIES), in_blocks(nodes, count), _latency(), bandwidth)


def _latency() -> Floats:
    """One-way seconds between the cities: haversine distance, stretched, at the speed of light in glass."""
    latitude, longitude = np.radians([[lat, lon] for _, lat, lon in CITIES.values()]).T
    half = np.sin((latitude[:, None] - latitude) / 2) ** 2
    half += np.cos(latitude[:, None]) * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    distance = 2 * EARTH_RADIUS * np.arcsin(np.sqrt(half))
    return np.asarray(distance * PATH_STRETCH / LIGHT_IN_FIBRE + WITHIN_LATENCY, dtype=np.float64)


SITE_PRESETS: dict[str, Callable[[int], Sites]] = {"us-five-sites": sites_for}
"""Sites by name: a function from the number of nodes."""


# -- A graph edge by edge, as a specification can hold it -------------------------------------------------------------


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
