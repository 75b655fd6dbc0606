"""The paper's Figure 2, and sites over any graph."""

from __future__ import annotations

import numpy as np
import pytest

from walktalk import graphs
from walktalk.core.errors import GraphError
from walktalk.graphs import Sites


def test_figure_2_is_one_cycle_over_five_sites() -> None:
    graph = graphs.us_five_sites()
    assert (graph.nodes, graph.edges) == (20, 20)
    assert (graph.degrees == 2).all()
    assert graph.is_connected()  # so it is a cycle of 20
    assert graph.diameter() == 10
    assert graph.sites is not None
    assert graph.sites.names == ("CA", "NV", "IA", "IL", "KS")
    assert np.bincount(graph.sites.site_of).tolist() == [4] * 5
    home = [graph.sites.site_of[a] == graph.sites.site_of[b] for a, b in graph.edge_list()]
    assert sum(home) == 10  # ten edges within sites, ten between: as drawn


def test_latencies_are_plausible() -> None:
    sites = graphs.us_five_sites().sites
    assert sites is not None
    assert np.allclose(sites.latency, sites.latency.T)
    ca, chicago = 0, 12
    assert 2 * sites.latency_between(ca, chicago) == pytest.approx(0.042, abs=0.002)  # round trip, s
    assert sites.latency_between(0, 1) == pytest.approx(1e-4)
    assert sites.bandwidth_between(0, 1) == 100e9
    assert sites.bandwidth_between(ca, chicago) == 10e9


@pytest.mark.parametrize("nodes", [1, 3, 5, 12, 20, 101])
def test_sites_over_any_graph_in_even_blocks(nodes: int) -> None:
    graph = graphs.with_sites(graphs.complete(nodes), "us_five_sites")
    assert graph.sites is not None
    sizes = np.bincount(graph.sites.site_of, minlength=5)
    assert (np.diff(graph.sites.site_of) >= 0).all()
    assert sizes.max() - sizes.min() <= 1
    assert graph.without([0]).sites is graph.sites


def test_another_bandwidth() -> None:
    sites = graphs.us_five_sites().sites
    assert sites is not None
    slow = sites.with_bandwidth(between=1e8, within=1e9)
    assert (slow.bandwidth_between(0, 19), slow.bandwidth_between(0, 1)) == (1e8, 1e9)
    assert sites.with_bandwidth(within=1e9).bandwidth_between(0, 19) == 10e9


@pytest.mark.parametrize(
    ("latency", "bandwidth", "site_of", "message"),
    [
        (np.zeros((1, 2)), np.ones((2, 2)), [0], "latency has shape"),
        (
            np.zeros((2, 2)) - 1,
            np.ones((2, 2)),
            [0],
            r"latency: -1.0 is not possible; allowed: a number of seconds, 0 or more",
        ),
        (
            np.zeros((2, 2)),
            np.zeros((2, 2)),
            [0],
            "bandwidth: 0.0 is not possible; allowed: a number of bits a second above 0",
        ),
        (np.zeros((2, 2)), np.ones((2, 2)), [2], "site 2, but sites are 0 to 1"),
    ],
)
def test_impossible_sites(latency: np.ndarray, bandwidth: np.ndarray, site_of: list[int], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Sites(("a", "b"), np.array(site_of), latency, bandwidth)


def test_sites_must_fit_the_graph() -> None:
    sites = graphs.us_five_sites().sites
    assert sites is not None
    with pytest.raises(GraphError, match="sites has 20 nodes, but cycle\\(3\\) has 3"):
        graphs.with_sites(graphs.cycle(3), sites)


def test_networkx_gets_the_site_names() -> None:
    assert graphs.us_five_sites().to_networkx().nodes[19]["site"] == "KS"
