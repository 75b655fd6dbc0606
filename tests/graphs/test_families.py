"""Every family against networkx or its definition, small sizes included, and the errors of `build`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk import graphs
from walktalk.core.errors import GraphError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph


def same(graph: Graph, reference: Any) -> bool:
    return graph == Graph.from_networkx(reference)


@given(st.integers(3, 40))
def test_deterministic_families_equal_networkx(n: int) -> None:
    assert same(graphs.cycle(n), nx.cycle_graph(n))
    assert same(graphs.path(n), nx.path_graph(n))
    assert same(graphs.complete(n), nx.complete_graph(n))
    assert same(graphs.star(n), nx.star_graph(n - 1))
    assert same(graphs.barbell(n), nx.barbell_graph(n // 2, n % 2)) if n > 3 else True


@pytest.mark.parametrize("dimension", range(1, 7))
def test_hypercube(dimension: int) -> None:
    assert same(graphs.hypercube(dimension), nx.hypercube_graph(dimension))


@pytest.mark.parametrize(
    ("rows", "cols"), [(3, 3), (3, 5), (4, 4), (5, 3), (2, 2), (2, 5), (1, 6), (4, 1), (1, 1), (1, 2)]
)
def test_torus(rows: int, cols: int) -> None:
    reference = nx.grid_2d_graph(rows, cols, periodic=(rows > 2, cols > 2))  # a side of 2 has no second edge
    assert same(graphs.torus(rows, cols), reference)
    assert graphs.torus(rows) == graphs.torus(rows, rows)


SIZED = [graphs.cycle, graphs.path, graphs.complete, graphs.star]


@pytest.mark.parametrize("make", SIZED)
def test_one_and_two_nodes(make: Callable[[int], Graph]) -> None:
    assert (make(1).nodes, make(1).edges) == (1, 0)
    assert make(1).is_connected()
    assert make(1).diameter() == 0
    assert (make(2).nodes, make(2).edges) == (2, 1)
    assert make(2).indptr.dtype == np.int64


@pytest.mark.parametrize(
    "make", [*SIZED, graphs.erdos_renyi, graphs.random_regular, graphs.small_world, graphs.barbell]
)
@pytest.mark.parametrize("bad", [0, -3, 2.5, True])
def test_impossible_sizes(make: Callable[[Any], Graph], bad: Any) -> None:
    with pytest.raises(GraphError, match=f"nodes: {bad}"):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: graphs.erdos_renyi(20, p=0.3, seed=s),
        lambda s: graphs.random_regular(20, degree=3, seed=s),
        lambda s: graphs.random_regular(6000, degree=4, seed=s),
        lambda s: graphs.small_world(20, degree=4, rewire=0.3, seed=s),
    ],
)
def test_random_families_follow_their_seed(make: Callable[[int | Seed], Graph]) -> None:
    assert make(1) == make(1) == make(Seed(1))
    assert make(1) != make(2)
    assert all(make(seed).is_connected() for seed in range(5))


@given(st.integers(2, 24).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_random_regular_is_regular(case: tuple[int, int], seed: int) -> None:
    n, degree = case
    if n * degree % 2 or (degree == 1 and n > 2):
        with pytest.raises(GraphError, match=f"random_regular.*{degree}"):
            graphs.random_regular(n, degree, seed)
    elif degree > 2:
        graph = graphs.random_regular(n, degree, seed)
        assert set(graph.degrees.tolist()) == {degree}


@pytest.mark.parametrize(("n", "degree"), [(6000, 4), (20_000, 50)])
def test_large_random_regular_is_regular_and_simple(n: int, degree: int) -> None:
    graph = graphs.random_regular(n, degree, seed=3)
    assert (graph.degrees == degree).all()
    assert graph.edges == n * degree // 2


def test_erdos_renyi_has_the_right_number_of_edges() -> None:
    n, p, samples = 60, 0.2, 300
    pairs = n * (n - 1) // 2
    counts = np.array([graphs.erdos_renyi(n, p, seed).edges for seed in range(samples)])
    error = np.sqrt(pairs * p * (1 - p) / samples)
    assert abs(counts.mean() - pairs * p) < 4 * error
    assert abs(counts.var() / (pairs * p * (1 - p)) - 1) < 0.35


def test_erdos_renyi_every_pair_is_as_likely() -> None:
    n, p, samples = 6, 0.9, 3000
    total = sum(graphs.erdos_renyi(n, p, seed).adjacency().toarray() for seed in range(samples)) / samples
    off = total[~np.eye(n, dtype=bool)]
    assert np.abs(off - p).max() < 5 * np.sqrt(p * (1 - p) / samples)


def test_erdos_renyi_extremes() -> None:
    assert graphs.erdos_renyi(12, p=1.0) == graphs.complete(12)
    assert graphs.erdos_renyi(1, p=0.0).nodes == 1
    with pytest.raises(GraphError, match=r"100 samples in a row were disconnected; p should be above"):
        graphs.erdos_renyi(50, p=0.01)
    with pytest.raises(GraphError, match=r"p: 1\.5 is not possible; allowed: a number from 0 to 1"):
        graphs.erdos_renyi(50, p=1.5)


def test_resampling_is_said() -> None:
    notes = [graphs.erdos_renyi(20, p=0.12, seed=seed).notes for seed in range(20)]
    assert any(note and note[0].startswith("resampled") for note in notes)


def test_edge_list_file(tmp_path: Path) -> None:
    file = tmp_path / "ring.txt"
    file.write_text("# a ring\n10 2\n2,3\n\n3 10 # closes\n")
    graph = graphs.edge_list(file)
    assert graph == graphs.cycle(3)
    assert graphs.build("edge_list", file=str(file)) == graph
    (tmp_path / "names.csv").write_text("chicago,ames\names,reno\n")
    assert graphs.edge_list(tmp_path / "names.csv").neighbours(1) == (0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 2 3\n", "line 1 is '1 2 3'"), ("", "no edges"), ("1 1\n", "itself"), ("1 2\n3 4\n", "disconnected")],
)
def test_broken_edge_list_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "graph.txt").write_text(text)
    with pytest.raises(GraphError, match=message):
        graphs.edge_list(tmp_path / "graph.txt")


def test_missing_edge_list_file(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot be read: No such file"):
        graphs.edge_list(tmp_path / "no.txt")


@pytest.mark.parametrize("name", [name for name in graphs.TOPOLOGIES if name not in ("edge_list", "edges", "given")])
def test_build_makes_every_family(name: str) -> None:
    graph = graphs.build(name, 20 if name == "us_five_sites" else 16, seed=1)
    assert graph.is_connected()
    assert graph.nodes in (16, 20)
    assert graphs.TOPOLOGIES[name].__doc__


def test_build_passes_parameters() -> None:
    assert graphs.build("erdos-renyi", 20, seed=1, p=0.5) == graphs.erdos_renyi(20, p=0.5, seed=1)
    assert graphs.build("torus", 12) == graphs.torus(3, 4)
    assert graphs.build("torus", 12, rows=2) == graphs.torus(2, 6)
    assert graphs.build("torus", 12, cols=2) == graphs.torus(6, 2)
    assert graphs.build("torus", rows=3, cols=4) == graphs.torus(3, 4)
    assert graphs.build("torus", rows=3) == graphs.torus(3)
    assert graphs.build("torus", 7) == graphs.torus(1, 7)
    assert graphs.build("hypercube", 8) == graphs.build("hypercube", dimension=3)
    assert graphs.build("cycle", 20, sites="us-five-sites").sites is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": "moebius", "nodes": 4}, "topology: 'moebius' is not possible; allowed: cycle"),
        ({"topology": "cycle", "nodes": 4, "p": 0.3}, r"p: is an unknown key; allowed: none"),
        ({"topology": "cycle"}, "nodes is missing"),
        ({"topology": "cycle", "nodes": "many"}, "nodes: 'many' is not possible; allowed: a whole number, 1 or more"),
        ({"topology": "cycle", "nodes": 0}, "nodes: 0 is not possible"),
        ({"topology": "edge_list"}, "file: is missing; needed: the path of the file"),
        ({"topology": "erdos_renyi", "nodes": 4, "p": "x"}, "p: 'x' is not possible; allowed: a number from 0 to 1"),
        ({"topology": "hypercube", "nodes": 12}, "nodes: 12 is not possible; allowed: a power of two"),
        ({"topology": "hypercube", "nodes": 12, "dimension": 3}, "nodes = 12, but the graph described has 8"),
        ({"topology": "torus", "nodes": 12, "rows": 5}, "side of 5 does not divide nodes = 12"),
        ({"topology": "small_world", "nodes": 12, "degree": 3}, "degree: 3 is not possible; allowed: even"),
        ({"topology": "us_five_sites", "nodes": 12}, "nodes = 12, but the graph described has 20"),
        ({"topology": "cycle", "nodes": 12, "sites": "mars"}, "sites: 'mars' is not possible; allowed: us-five-sites"),
        ({"topology": "complete", "nodes": 10**7}, "nodes: 10000000 is not possible; allowed:"),
        ({"topology": "cycle", "nodes": 10**9}, "nodes: 1000000000 is not possible; allowed: 16,777,216 or less"),
        ({"topology": "erdos_renyi", "nodes": 10**5}, r"nodes: 100000 is not possible; allowed: .*, not some 2e\+09"),
        ({"topology": "barbell", "nodes": 10**5}, "nodes: 100000 is not possible"),
        ({"topology": "random_regular", "nodes": 10**6, "degree": 1000}, r"not some 5e\+08"),
    ],
)
def test_build_errors_name_key_value_and_what_is_allowed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        graphs.build(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("topology", ["cycle", "torus", "random_regular", "star"])
def test_a_million_nodes_are_quick(topology: str) -> None:
    begin = time.process_time()
    graph = graphs.build(topology, 10**6)
    assert graph.nodes == 10**6
    assert time.process_time() - begin < 30  # about 3 s for the slowest on an idle core


def test_edge_by_edge_by_number_or_by_name():
    square = graphs.build("edges", edges=[[0, 1], [1, 2], [2, 3], [3, 0]])
    assert square == graphs.cycle(4)
    assert square.names is None
    named = graphs.build("edges", 3, edges=[["rome", "oslo"], ["oslo", "bern"]])
    assert named.names == ("rome", "oslo", "bern")
    assert named == graphs.path(3)
    assert graphs.build("edges", edges=[[0, 1], [1, 2], [2, 0]], directed=True).directed
    with pytest.raises(GraphError, match="there is no node 'x'; names: a, b"):
        graphs.build("edges", edges=[["a", "x"]], names=["a", "b"])
    with pytest.raises(GraphError, match="disconnected"):
        graphs.build("edges", 4, edges=[[0, 1], [2, 3]])
