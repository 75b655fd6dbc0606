"""`Graph`: a simple graph in compressed rows, undirected unless someone says otherwise.

A graph is G = (V, E) of the paper's Section 3. Nodes are the numbers 0 … V−1; node 0 is the aggregator unless someone
says otherwise. Two arrays hold it all: the neighbours of node v are `indices[indptr[v]:indptr[v + 1]]`, sorted. So a
million nodes cost a few tens of megabytes, and every chain on the graph is made by array arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.core.errors import GraphError
from walktalk.core.lazy import later
from walktalk.core.settings import misfit

if TYPE_CHECKING:
    import networkx as nx
    from scipy import sparse
    from scipy.sparse import csgraph, csr_array

else:
    nx, sparse = later("networkx"), later("scipy.sparse")
    csgraph = later("scipy.sparse.csgraph")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Rounds(ABC):
    """Who sends to whom in which round."""

    @abstractmethod
    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        """Those that a node can send to in this round."""

    @abstractmethod
    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        """Those that can send to a node in this round."""


class WeightedRounds(Rounds):
    """Rounds in which weights are not those of Metropolis and Hastings."""

    @abstractmethod
    def weight(self, node: int, source: int, round_: int) -> float:
        """What a node mixes in of one that sends to it in this round; the rest of the row is its own."""


@dataclass(frozen=True, eq=False)
class Sites:
    """A site for every node, with latency and bandwidth between any two sites."""

    names: tuple[str, ...]  # one per site, e.g. "CA"
    site_of: Ints  # the site's number of each node
    latency: Floats  # one-way seconds from site to site; the diagonal is within a site
    bandwidth: Floats  # bit/s from site to site; the diagonal is within a site

    def __post_init__(self) -> None:
        count = len(self.names)
        for key, matrix in (("latency", self.latency), ("bandwidth", self.bandwidth)):
            if matrix.shape != (count, count):
                raise GraphError(f"sites: {key} has shape {matrix.shape}, but there are {count} sites")
        if not (self.latency >= 0).all():
            raise misfit("sites: latency", self.latency.min(), "a number of seconds, 0 or more", GraphError)
        if not (self.bandwidth > 0).all():
            raise misfit("sites: bandwidth", self.bandwidth.min(), "a number of bits a second above 0", GraphError)
        if len(self.site_of) and (self.site_of.min() < 0 or self.site_of.max() >= count):
            raise GraphError(f"sites: a node stands at site {self.site_of.max()}, but sites are 0 to {count - 1}")

    def name_of(self, node: int) -> str:
        """The name of the node's site."""
        return self.names[int(self.site_of[node])]

    def latency_between(self, a: int, b: int) -> float:
        """One-way seconds from node to node."""
        return float(self.latency[self.site_of[a], self.site_of[b]])

    def bandwidth_between(self, a: int, b: int) -> float:
        """Bits per second from node to node, when nobody else is sending."""
        return float(self.bandwidth[self.site_of[a], self.site_of[b]])

    def with_bandwidth(self, between: float | None = None, within: float | None = None) -> Sites:
        """A copy of the sites with another bandwidth (bit/s) between them, within them, or both."""
        bandwidth = self.bandwidth.copy()
        local = np.eye(len(self.names), dtype=bool)
        if between is not None:
            bandwidth[~local] = between
        if within is not None:
            bandwidth[local] = within
        return replace(self, bandwidth=bandwidth)

    def part(self, nodes: npt.ArrayLike) -> Sites:
        """The sites of these nodes only, in the order given."""
        return replace(self, site_of=self.site_of[np.asarray(nodes, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph without loops or parallel edges. Of a directed one, neighbours are those that a node can send to."""

    indptr: Ints  # where each node's neighbours begin; one entry more than there are nodes
    indices: Ints  # the neighbours, node after node, sorted within a node
    name: str = "graph"  # how it was made, e.g. "erdos_renyi(20, p=0.3)"
    notes: tuple[str, ...] = ()  # what a person should know, e.g. "resampled 2 times until connected"
    sites: Sites | None = None  # where the nodes stand, if anybody said so
    directed: bool = False  # whether a link may go one way only
    rounds: Rounds | None = None  # who meets whom in which round, where that changes; the edges are all that ever meet
    names: tuple[str, ...] | None = None  # of the nodes, if they have any but their numbers

    def __post_init__(self) -> None:
        if self.names is not None:
            check_names(self.names, self.nodes, self.name)
        for name, array in (("indptr", self.indptr), ("indices", self.indices)):
            if not isinstance(array, np.ndarray):
                raise misfit(
                    name, array, "an array of whole numbers; wt.graphs.from_networkx makes a graph", GraphError
                )
            array.setflags(write=False)

    @staticmethod
    def from_edges(nodes: int, edges: npt.ArrayLike, name: str = "graph", notes: tuple[str, ...] = ()) -> Graph:
        """The graph with these pairs as edges; a pair that comes twice, in either order, counts once."""
        pairs = _pairs(nodes, edges, name)
        low, high = pairs.min(axis=1), pairs.max(axis=1)
        keys = np.unique(low * nodes + high)
        low, high = keys // nodes, keys % nodes
        return _in_rows(nodes, np.concatenate([low, high]), np.concatenate([high, low]), name, notes)

    @staticmethod
    def from_arcs(nodes: int, arcs: npt.ArrayLike, name: str = "graph", notes: tuple[str, ...] = ()) -> Graph:
        """The directed graph with these pairs (from, to) as one-way links; a pair that comes twice counts once."""
        pairs = _pairs(nodes, arcs, name)
        keys = np.unique(pairs[:, 0] * nodes + pairs[:, 1])
        return replace(_in_rows(nodes, keys // nodes, keys % nodes, name, notes), directed=True)

    @staticmethod
    def from_networkx(graph: Any, name: str | None = None) -> Graph:
        """A graph made from one of networkx. Nodes are numbered in sorted order, or as inserted if they do not sort.

        What networkx calls them is kept as `names`, unless those are the numbers from 0 on.
        """
        if not hasattr(graph, "is_multigraph") or not hasattr(graph, "is_directed"):
            raise misfit("graph", graph, "a graph of networkx", GraphError)
        name = name or str(graph.name or "networkx graph")
        if graph.is_multigraph():
            raise GraphError(f"{name}: the graph has parallel edges (a multigraph); use networkx.Graph(graph)")
        try:
            labels = sorted(graph.nodes)
        except TypeError:
            labels = list(graph.nodes)
        number = {label: index for index, label in enumerate(labels)}
        edges = [(number[a], number[b]) for a, b in graph.edges]
        make = Graph.from_arcs if graph.is_directed() else Graph.from_edges
        found = make(len(labels), edges, name).connected()
        return found if labels == list(range(len(labels))) else found.named([str(label) for label in labels])

    @property
    def nodes(self) -> int:
        """V, the number of nodes."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of edges; of a directed graph that of one-way links."""
        return len(self.indices) if self.directed else len(self.indices) // 2

    @property
    def degrees(self) -> Ints:
        """The number of neighbours of each node."""
        return np.diff(self.indptr)

    def name_of(self, node: int) -> str:
        """What a person calls the node: its name, or its number."""
        return str(node) if self.names is None else self.names[node]

    def named(self, names: Sequence[str]) -> Graph:
        """A copy of the graph whose nodes have these names, in the order of its numbers."""
        return replace(self, names=tuple(names))

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The nodes that this one can send to, in order."""
        return tuple(self.indices[self.indptr[node] : self.indptr[node + 1]].tolist())

    @cached_property
    def reverse(self) -> Graph:
        """A copy of the graph with every link turned round: whom a node hears is whom it sends to there."""
        if not self.directed:
            return self
        arcs = self.edge_list()
        return Graph.from_arcs(self.nodes, arcs[:, ::-1], self.name, self.notes)

    def contacts(self, node: int) -> tuple[int, ...]:
        """All that a node has a link with, whichever way it goes, in order."""
        if not self.directed:
            return self.neighbours(node)
        return tuple(sorted({*self.neighbours(node), *self.reverse.neighbours(node)}))

    def edge_list(self) -> Ints:
        """The edges as pairs (a, b) with a < b, in order; of a directed graph the links (from, to)."""
        heads = np.repeat(np.arange(self.nodes), self.degrees)
        keep = np.ones(len(heads), dtype=bool) if self.directed else heads < self.indices
        return np.stack([heads[keep], self.indices[keep].astype(np.int64)], axis=1)

    def adjacency(self) -> csr_array[Any]:
        """The matrix with a one for each edge, in both directions, or for each one-way link."""
        ones = np.ones(len(self.indices))
        return sparse.csr_array((ones, self.indices, self.indptr), shape=(self.nodes, self.nodes))

    def components(self) -> Ints:
        """The number of the component of each node; two nodes of one can reach each other."""
        found = csgraph.connected_components(self.adjacency(), directed=self.directed, connection="strong")
        return np.asarray(found[1], dtype=np.int64)

    def is_connected(self) -> bool:
        """Whether there is a path between any two nodes."""
        return bool(self.components().max() == 0)

    def connected(self) -> Graph:
        """This graph, or an error that says how it falls apart."""
        sizes = np.bincount(self.components())
        if len(sizes) > 1:
            raise GraphError(
                f"{self.name}: the graph is disconnected, {len(sizes)} components, the largest with {sizes.max()} of "
                f"{self.nodes} nodes; add edges or keep one component"
            )
        return self

    def diameter(self) -> int:
        """The longest shortest path. A search from every node: seconds for thousands of nodes, not for a million."""
        adjacency = self.adjacency()
        chunk = max(1, 4_000_000 // self.nodes)  # rows of distances at a time: about 32 MB
        longest = 0.0
        for start in range(0, self.nodes, chunk):
            rows = np.arange(start, min(start + chunk, self.nodes))
            longest = max(
                longest, csgraph.dijkstra(adjacency, directed=self.directed, indices=rows, unweighted=True).max()
            )
        if not np.isfinite(longest):
            raise GraphError(f"{self.name}: a disconnected graph has no diameter")
        return int(longest)

    def to_networkx(self) -> Any:
        """A copy of the graph for networkx, with the nodes' names; sites become the node attribute `site`."""
        labels = list(range(self.nodes)) if self.names is None else list(self.names)
        graph = (nx.DiGraph if self.directed else nx.Graph)(name=self.name)
        graph.add_nodes_from(labels)
        graph.add_edges_from((labels[a], labels[b]) for a, b in self.edge_list().tolist())
        if self.sites is not None:
            nx.set_node_attributes(graph, {labels[v]: self.sites.name_of(v) for v in range(self.nodes)}, "site")
        return graph

    def without(self, nodes: Iterable[int]) -> Graph:
        """What is left when these nodes die: the numbering stays, the dead have no neighbours."""
        dead = np.zeros(self.nodes, dtype=bool)
        dead[list(nodes)] = True
        edges = self.edge_list()
        left = edges[~(dead[edges[:, 0]] | dead[edges[:, 1]])]
        note = f"{int(dead.sum())} nodes dead"
        return replace(self._made(self.nodes, left, note), sites=self.sites, names=self.names)

    def part(self, nodes: Iterable[int]) -> Graph:
        """The graph of these nodes alone, numbered anew in the order given: what the living see after failures."""
        kept = np.fromiter(nodes, dtype=np.int64)
        number = np.full(self.nodes, -1, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        edges = number[self.edge_list()]
        left = edges[(edges >= 0).all(axis=1)]
        sites = self.sites.part(kept) if self.sites is not None else None
        note = f"{len(kept)} of {self.nodes} nodes of it"
        names = None if self.names is None else tuple(self.names[node] for node in kept)
        return replace(self._made(len(kept), left, note), sites=sites, names=names)

    def _made(self, nodes: int, edges: Ints, note: str) -> Graph:
        """A graph of the same kind with other edges."""
        make = Graph.from_arcs if self.directed else Graph.from_edges
        return make(nodes, edges, self.name, (*self.notes, note))

    def __eq__(self, other: object) -> bool:
        """Equal nodes, equal edges and equal rounds; names, notes and sites do not matter."""
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            self.rounds == other.rounds
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    def __hash__(self) -> int:
        return hash((self.indptr.tobytes(), self.indices.tobytes()))

    def __repr__(self) -> str:
        return f"Graph({self.name}: {self.nodes} nodes, {self.edges} edges)"


def from_networkx(graph: Any, name: str | None = None) -> Graph:
    """A connected `Graph` from any networkx graph; a directed one is strongly connected.

    Args:
        graph: Any undirected networkx graph; its nodes are numbered in its own order.
        name: How it is called; networkx's own name if left out.
    """
    return Graph.from_networkx(graph, name)


def _pairs(nodes: int, edges: npt.ArrayLike, name: str) -> Ints:
    """Edges as an array of pairs, checked."""
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if nodes < 1:
        raise GraphError(f"{name}: nodes = {nodes}, but a graph has at least 1 node")
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= nodes):
        raise GraphError(f"{name}: an edge names node {_outside(pairs, nodes)}, but nodes are 0 to {nodes - 1}")
    loops = pairs[pairs[:, 0] == pairs[:, 1]]
    if len(loops):
        raise GraphError(f"{name}: node {loops[0, 0]} has an edge to itself; remove self loops")
    return pairs


def _in_rows(nodes: int, heads: Ints, tails: Ints, name: str, notes: tuple[str, ...]) -> Graph:
    """Links in compressed rows."""
    order = np.lexsort((tails, heads))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(heads, minlength=nodes))]).astype(np.int64)
    return Graph(indptr, tails[order], name, notes)


if TYPE_CHECKING:
    GraphLike: TypeAlias = Graph | nx.Graph
    """A graph, ours or networkx's."""
else:
    GraphLike = Graph  # networkx takes a while to import, and a type is not worth that


def as_graph(graph: GraphLike) -> Graph:
    """The graph itself, or what a networkx graph is here."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, nx.Graph):
        return Graph.from_networkx(graph)
    raise GraphError(
        f"graph: a walktalk or networkx graph is needed, not {type(graph).__name__}; a list of edges is one by "
        "wt.Graph.from_edges(nodes, edges), a matrix by networkx.from_numpy_array(matrix)"
    )


def check_names(names: Sequence[str], nodes: int, graph: str) -> None:
    """One name for every node, and no two alike."""
    if len(names) != nodes:
        raise GraphError(f"{graph}: {len(names)} names for {nodes} nodes")
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None) if len(set(names)) < nodes else None
    if twice is not None:
        raise GraphError(f"{graph}: two nodes are called {twice!r}")


def _outside(pairs: Ints, nodes: int) -> int:
    return int(pairs[(pairs < 0) | (pairs >= nodes)][0])
