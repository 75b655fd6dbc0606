"""`Graph` itself: construction, bad input, what is left after deaths."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walktalk import graphs
from walktalk.core.errors import GraphError
from walktalk.graphs import Graph

edge_lists = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]), max_size=40),
    )
)


@given(edge_lists)
def test_from_edges_agrees_with_networkx(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = case
    graph = Graph.from_edges(n, edges)
    reference = nx.Graph()
    reference.add_nodes_from(range(n))
    reference.add_edges_from(edges)
    assert graph.nodes == n
    assert graph.edges == reference.number_of_edges()
    assert all(graph.neighbours(v) == tuple(sorted(reference[v])) for v in range(n))
    assert graph.degrees.tolist() == [reference.degree(v) for v in range(n)]
    assert graph.is_connected() == nx.is_connected(reference)
    assert np.array_equal(graph.adjacency().toarray(), nx.to_numpy_array(reference))
    if graph.is_connected():
        assert graph.diameter() == nx.diameter(reference)
        assert Graph.from_networkx(graph.to_networkx()) == graph


def test_networkx_labels_are_numbered_in_sorted_order() -> None:
    graph = graphs.from_networkx(nx.Graph([("c", "a"), ("a", "b")]))
    assert graph.neighbours(0) == (1, 2)
    mixed = graphs.from_networkx(nx.Graph([("c", 1), (1, ("x", 2))]))  # do not sort: as inserted
    assert mixed.neighbours(1) == (0, 2)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph([(0, 1)]), "disconnected"),
        (nx.MultiGraph([(0, 1), (0, 1)]), "parallel"),
        (nx.Graph([(0, 1), (1, 1)]), "itself"),
        (nx.Graph([(0, 1), (2, 3)]), "disconnected, 2 components"),
        (nx.Graph(), "at least 1 node"),
    ],
)
def test_unusable_networkx_graphs(graph: nx.Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        graphs.from_networkx(graph)
    assert "\n" not in str(caught.value)


def test_edges_must_name_existing_nodes() -> None:
    with pytest.raises(GraphError, match="node 5, but nodes are 0 to 2"):
        Graph.from_edges(3, [(0, 5)])


def test_without_keeps_the_numbering_and_isolates_the_dead() -> None:
    left = graphs.complete(5).without([0, 3])
    assert left.nodes == 5
    assert left.neighbours(0) == () == left.neighbours(3)
    assert left.neighbours(1) == (2, 4)
    assert left.notes == ("2 nodes dead",)
    with pytest.raises(GraphError, match="diameter"):
        left.diameter()


def test_part_numbers_anew() -> None:
    part = graphs.with_sites(graphs.cycle(10), "us-five-sites").part([4, 3, 2])
    assert part.neighbours(0) == (1,)
    assert part.neighbours(1) == (0, 2)
    assert part.sites is not None
    assert [part.sites.name_of(v) for v in range(3)] == ["IA", "NV", "NV"]


def test_arrays_cannot_be_changed() -> None:
    graph = graphs.cycle(5)
    with pytest.raises(ValueError, match="read-only"):
        graph.indices[0] = 3


def test_equal_by_edges_alone() -> None:
    assert graphs.cycle(3) == graphs.complete(3)
    assert hash(graphs.cycle(3)) == hash(graphs.complete(3))
    assert graphs.cycle(4) != graphs.complete(4)
    assert graphs.cycle(4) != "cycle"


def test_names_of_a_networkx_graph_are_kept():
    graph = graphs.from_networkx(nx.Graph([("south", "east"), ("east", "north")]))
    assert graph.names == ("east", "north", "south")
    assert graph.neighbours(0) == (1, 2)
    assert graph.name_of(2) == "south"
    assert set(graph.to_networkx().edges) == {("east", "north"), ("east", "south")}
    assert graphs.from_networkx(graph.to_networkx()).names == graph.names
    assert graph.part([2, 0]).names == ("south", "east")
    assert graph.without([1]).names == graph.names
    assert graphs.from_networkx(nx.path_graph(3)).names is None
    assert graphs.from_networkx(nx.Graph([(1, 2), (2, 3)])).names == ("1", "2", "3")


def test_names_in_a_file_are_kept(tmp_path):
    (tmp_path / "named.txt").write_text("lyon paris\nparis nice\n")
    assert graphs.edge_list(tmp_path / "named.txt").names == ("lyon", "paris", "nice")
    (tmp_path / "numbers.txt").write_text("1 2\n2 10\n")
    assert graphs.edge_list(tmp_path / "numbers.txt").names is None


def test_names_that_cannot_be():
    with pytest.raises(GraphError, match="2 names for 3 nodes"):
        graphs.path(3).named(["a", "b"])
    with pytest.raises(GraphError, match="two nodes are called '1'"):
        graphs.from_networkx(nx.Graph([("1", 1), (1, "x")]))
    with pytest.raises(GraphError, match="a walktalk or networkx graph is needed, not int"):
        graphs.as_graph(7)
