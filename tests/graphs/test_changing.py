"""A graph whose nodes come and go: it stays connected, and follows from who came and who left alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk.chains import metropolis_hastings, spectrum
from walktalk.core.errors import GraphError
from walktalk.graphs import Changing, Graph, attached, build, complete, cycle, star

BASES = ("cycle", "star", "complete", "erdos_renyi", "path", "binary_tree")


def wander(base: Graph, seed: int, steps: int = 12) -> list[Changing]:
    """Random joins and leaves, by the rule; the graph after each."""
    dice, joined, left, seen = random.Random(seed), {}, set(), []
    for step in range(steps):
        now = Changing(base, dict(joined), frozenset(left))
        if dice.random() < 0.5 or len(now.present) < 3:
            joined[100 + step] = attached(now, f"site{step}")
        else:
            left.add(dice.choice(now.present))
        seen.append(Changing(base, dict(joined), frozenset(left)))
    return seen


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(BASES), st.integers(0, 10**6))
def test_after_any_joins_and_leaves_it_is_connected_and_edges_go_both_ways(topology: str, seed: int) -> None:
    for now in wander(build(topology, 7, seed=1), seed):
        assert now.graph().is_connected()
        assert all(node in now.rows[peer] and peer != node for node, peers in now.rows.items() for peer in peers)
        assert set(now.rows) == set(now.present)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_it_follows_from_who_came_and_left_in_whatever_order_that_was_heard(seed: int) -> None:
    last = wander(cycle(6), seed)[-1]
    shuffled = list(last.joined.items())
    random.Random(seed).shuffle(shuffled)
    assert Changing(last.base, dict(shuffled), last.left).rows == last.rows


def test_nobody_came_or_left() -> None:
    base = build("erdos_renyi", 12, seed=3)
    assert Changing(base).graph() == base


def test_a_cycle_stays_a_cycle_when_one_leaves() -> None:
    assert Changing(cycle(6), left=frozenset({2})).graph() == cycle(5)
    assert Changing(cycle(8), left=frozenset({2, 3, 4})).rows[1] == (0, 5)


def test_where_nothing_falls_apart_nobody_gets_an_edge() -> None:
    now = Changing(complete(5), left=frozenset({0, 3}))
    assert now.graph() == complete(3)


def test_the_leaves_of_a_star_become_a_tree_of_few_neighbours() -> None:
    now = Changing(star(16), left=frozenset({0}))
    assert now.graph().is_connected()
    assert max(map(len, now.rows.values())) <= 3
    assert now.graph().diameter() <= 6  # a path would have 14


def test_a_complete_graph_stays_complete_when_one_joins() -> None:
    base = complete(5)
    joined = {90: attached(Changing(base), "new")}
    assert Changing(base, joined).graph() == complete(6)


def test_one_that_joins_gets_those_with_the_fewest_neighbours_and_as_many_as_others_have() -> None:
    base = star(9)
    assert len(attached(Changing(base), "new")) == 2
    assert 0 not in attached(Changing(base), "new")
    regular = build("random_regular", 20, seed=1, degree=4)
    assert len(attached(Changing(regular), "new")) == 4


def test_joined_edges_keep_a_cycle_better_mixed_than_it_was() -> None:
    base, joined = cycle(16), {}
    for step in range(8):
        joined[100 + step] = attached(Changing(base, joined), f"site{step}")
    grown = Changing(base, joined).graph()
    assert spectrum(metropolis_hastings(grown)).p_prime > spectrum(metropolis_hastings(cycle(24))).p_prime


def test_one_way_links_cannot_change() -> None:
    with pytest.raises(GraphError, match="both ways"):
        Changing(build("exponential", 8), left=frozenset({1})).rows  # noqa: B018
