"""Links are shared max–min fairly, and transfers take the time that follows from that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, Simulation
from walktalk.runtimes.simulator.links import Links, max_min_fair

routes = st.dictionaries(
    st.integers(0, 9), st.sets(st.integers(0, 5), min_size=1).map(lambda s: tuple(("link", r) for r in sorted(s)))
)


@given(routes, st.lists(st.floats(1, 100), min_size=6, max_size=6))
def test_max_min_fair_rates_fill_a_bottleneck_for_every_user(uses, capacities):
    rates = max_min_fair(uses, lambda r: capacities[r[1]])
    used = {r: sum(rates[u] for u in uses if r in uses[u]) for user in uses.values() for r in user}
    for resource, total in used.items():
        assert total <= capacities[resource[1]] * (1 + 1e-9)
    for user, resources in uses.items():
        # Max–min: some full resource on the way where nobody gets more than this user.
        assert any(
            used[r] >= capacities[r[1]] * (1 - 1e-9)
            and all(rates[o] <= rates[user] * (1 + 1e-9) for o in uses if r in uses[o])
            for r in resources
        )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rates_updated_where_something_changed_are_those_of_sharing_everything_anew(data):
    """Transfers come and go; the local update must always give the one max–min fair allocation there is."""
    nodes = data.draw(st.integers(2, 7))
    capacities = st.sampled_from([1.0, 2.0, 3.0, 7.0, 100.0])
    links = Links(
        NetworkTiming(bandwidth=data.draw(capacities), node_bandwidth=data.draw(capacities)), graphs.complete(nodes)
    )
    if data.draw(st.booleans()):
        everywhere = np.full((2, 2), links.timing.bandwidth)
        links.sites = graphs.Sites(("a", "b"), np.arange(nodes) % 2, np.zeros((2, 2)), everywhere)
    here = []
    for step in range(data.draw(st.integers(1, 30))):
        what = data.draw(st.sampled_from(["finish", "slow", "start"]))
        if what == "slow":
            a, b = data.draw(st.lists(st.integers(0, nodes - 1), min_size=2, max_size=2, unique=True))
            links.slow_down(a, b, data.draw(st.sampled_from([1.0, 4.0, 0.5])), now=float(step))
        elif here and what == "finish":
            links.finish(here.pop(data.draw(st.integers(0, len(here) - 1))), now=float(step))
        else:
            for _ in range(data.draw(st.integers(1, 3))):
                sender = data.draw(st.integers(0, nodes - 1))
                receiver = data.draw(st.integers(0, nodes - 1).filter(lambda v, s=sender: v != s))
                links.add(sender, receiver, 1e9, float(step), None)
            links.settle(float(step))
            here = list(dict.fromkeys(t for users in links.users.values() for t in users))
        expected = max_min_fair({t: t.resources for t in here}, links.capacity)
        assert [t.rate for t in here] == pytest.approx([expected[t] for t in here], rel=1e-6)


def test_a_change_reaches_no_further_than_its_effect():
    """A long row of transfers, each sharing a node with the next: one more at the far end is not felt here."""
    nodes = 400
    links = Links(NetworkTiming(bandwidth=1e9, node_bandwidth=100.0), graphs.complete(nodes))
    for v in range(0, nodes - 2, 2):
        links.add(v, v + 1, 1e9, 0.0, v)  # into v + 1
        links.add(v, v + 3, 1e9, 0.0, v) if v + 3 < nodes else None
    links.settle(0.0)
    assert len(links.start(0, 2, 1e9, 1.0, "one more")) < 10


def test_what_is_under_way_feels_that_its_link_is_slow():
    links = Links(NetworkTiming(latency=0.0, bandwidth=100.0), graphs.cycle(4))
    (there,) = links.start(0, 1, 100.0, now=0.0, content="there")
    (other,) = links.start(1, 2, 100.0, now=0.0, content="other")
    assert [t.end() for t in links.slow_down(1, 0, 10.0, now=0.5)] == pytest.approx([5.5])  # 50 bits at 10 bit/s
    assert [t.end() for t in links.slow_down(0, 1, 1.0, now=2.5)] == pytest.approx([2.8])  # 30 bits at 100 bit/s
    assert (there.end(), other.end()) == pytest.approx((2.8, 1.0))


def test_a_slow_link_between_sites_leaves_more_to_the_others():
    """Two share the path of 100 bit/s. One of them has 10 bit/s from now on, so the other has 90."""
    sites = graphs.Sites(("a", "b"), np.array([0, 0, 1, 1]), np.zeros((2, 2)), np.full((2, 2), 100.0))
    links = Links(NetworkTiming(), graphs.with_sites(graphs.complete(4), sites))
    links.add(0, 2, 1e4, 0.0, "slow")
    links.add(1, 3, 1e4, 0.0, "other")
    assert {t.content: t.rate for t in links.settle(0.0)} == {"slow": 50.0, "other": 50.0}
    assert {t.content: t.rate for t in links.slow_down(0, 2, 10.0, now=1.0)} == {"slow": 10.0, "other": 90.0}
    assert {t.content: t.rate for t in links.start(0, 2, 1e4, 2.0, "one more")} == {"slow": 5.0, "one more": 5.0}
    assert {t.content: t.rate for t in links.slow_down(0, 2, 1.0, now=3.0)} == pytest.approx(
        dict.fromkeys(("slow", "other", "one more"), 100 / 3)
    )


def test_two_transfers_into_one_node_share_what_it_can_receive():
    links = Links(NetworkTiming(bandwidth=1000.0, node_bandwidth=100.0), graphs.star(3))
    (first,) = links.start(1, 0, 100.0, now=0.0, content="first")
    assert first.end() == pytest.approx(1.0)
    changed = links.start(2, 0, 100.0, now=0.5, content="second")
    assert {t.content: pytest.approx(t.end()) for t in changed} == {"first": 1.5, "second": 2.5}
    (second,) = links.finish(first, now=1.5)
    assert second.end() == pytest.approx(2.0)


def test_only_transfers_that_share_something_get_new_rates():
    links = Links(NetworkTiming(bandwidth=10.0, node_bandwidth=10.0), graphs.complete(4))
    links.start(0, 1, 100.0, now=0.0, content="a")
    assert [t.content for t in links.start(2, 3, 100.0, now=0.0, content="b")] == ["b"]


def test_a_hop_takes_latency_plus_bits_over_bandwidth():
    timing = NetworkTiming(compute=2.0, latency=0.5, bandwidth=8 * 1064.0)
    run = RunSetup(MultiWalk(1), graphs.cycle(4), Seed(0), Stop(iterations=50), timing, model_bytes=1000)
    trace = Simulation(run).advance().trace
    sent = {row.number: row.time for row in trace if row.event == "send"}
    hops = [row.time - sent[row.number] for row in trace if row.event == "receive"]
    assert hops == pytest.approx([1.5] * len(hops))
    assert len(hops) > 10


def test_between_sites_the_path_is_shared_and_inside_it_is_not():
    graph = graphs.build("us-five-sites", 20, seed=0)
    links = Links(NetworkTiming(), graph)
    site = graph.sites.site_of
    far = [v for v in range(20) if site[v] != site[0]][:1]
    near = [v for v in range(1, 20) if site[v] == site[0]][:2]
    assert links.resources(0, far[0])[0][0] == "sites"
    assert links.resources(0, near[0]) != links.resources(0, near[1])
    assert links.latency(0, far[0]) > links.latency(0, near[0])


def test_congestion_slows_gossip_more_than_one_walk():
    """The mechanism behind Figure 8: with large models many transfers at once stretch each other."""

    def seconds_per_hop(protocol, nodes=12):
        timing = NetworkTiming(compute=1.0, latency=0.0, bandwidth=1e9, node_bandwidth=8e3)
        run = RunSetup(protocol, graphs.complete(nodes), Seed(1), Stop(iterations=300), timing, model_bytes=1000)
        trace = Simulation(run).advance().trace
        sent = {row.number: row.time for row in trace if row.event == "send"}
        hops = [row.time - sent[row.number] for row in trace if row.event == "receive"]
        return sum(hops) / len(hops)

    assert seconds_per_hop(AsyncGossip()) > 1.2 * seconds_per_hop(MultiWalk(1))


def test_an_idle_link_never_ends():
    links = Links(NetworkTiming(), graphs.cycle(3))
    (transfer,) = links.start(0, 1, 0.0, 1.0, None)
    assert transfer.end() == 1.0
    transfer.left, transfer.rate = 1.0, 0.0
    assert math.isinf(transfer.end())
