"""Sites: where the nodes of a graph stand, and what lies between them.

A site is a place with a fast local network (a cluster of the paper's Figure 2). Latency and bandwidth are given between
sites, the diagonal being the network within one. The overlay graph says who may talk to whom; the sites say how fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from walktalk.errors import GraphError
from walktalk.graphs.graph import Graph

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
            raise GraphError(f"sites: latency {self.latency.min()} s, but it must be 0 or more")
        if not (self.bandwidth > 0).all():
            raise GraphError(f"sites: bandwidth {self.bandwidth.min()} bit/s, but it must be more than 0")
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
        """The same sites with another bandwidth (bit/s) between them, within them, or both."""
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


def in_blocks(nodes: int, sites: int) -> Ints:
    """Nodes to sites in contiguous blocks of sizes that differ by one at most."""
    return np.arange(nodes, dtype=np.int64) * sites // max(nodes, 1)


PRESETS: dict[str, Callable[[int], Sites]] = {}
"""Sites by name: a function from the number of nodes."""


def with_sites(graph: Graph, sites: str | Sites) -> Graph:
    """The same overlay graph, laid over sites: a preset's name, or sites of your own, one entry per node.

    Args:
        graph: The overlay.
        sites: A preset's name, or sites of your own, one entry per node.
    """
    if isinstance(sites, str):
        maker = PRESETS.get(sites.replace("_", "-"))
        if maker is None:
            raise GraphError(f"sites = {sites!r} is unknown; choose from {', '.join(sorted(PRESETS))}")
        return replace(graph, sites=maker(graph.nodes))
    if not isinstance(sites, Sites):
        raise GraphError(f"sites = {sites!r} is neither the name of a preset nor Sites")
    if len(sites.site_of) != graph.nodes:
        raise GraphError(f"sites has {len(sites.site_of)} nodes, but {graph.name} has {graph.nodes}")
    return replace(graph, sites=sites)
