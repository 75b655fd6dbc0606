"""A walk that died is missed within a few heartbeats, and one that lives is not, however long it stays away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.failures.worlds import copies, simulate, term_mixer
from walktalk import graphs
from walktalk.protocols import MultiWalk
from walktalk.protocols.mechanisms.tokens.guards import Guard, ReturnTimes, further
from walktalk.protocols.mechanisms.tokens.heartbeats import NOBODY, Claim, Score, Sightings, View, decode, encode
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.runtimes.simulator import Fault, NetworkTiming, PoissonTiming

KILLED_AT = 60.3
HEALTHY = (Fault("lose", at=0.0, share=0.0),)
GRAPHS = [graphs.complete(9), graphs.erdos_renyi(9, p=0.4, seed=3), graphs.path(9)]
of_graphs = pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)


def holders(trace: list, until: float) -> dict[int, int]:
    """Walk -> the node that is training it then."""
    here: dict[int, int] = {}
    for row in trace:
        if row.time > until:
            break
        if row.event == "train":
            here[row.walk] = row.node
        elif row.event == "trained":
            here.pop(row.walk, None)
    return here


def restarts(trace: list) -> list[tuple[float, int]]:
    return [(row.time, row.walk) for row in trace if row.event == "restarted"]


@of_graphs
@pytest.mark.parametrize("kind", ["kill", "pause"])
@pytest.mark.parametrize("walks", [1, 4])
def test_a_walk_that_died_with_its_node_is_back_soon(graph, kind, walks):
    """News travel one hop a beat, so by then V beats have passed at most; four more are patience, one is begun."""
    _, trace = simulate(MultiWalk(walks), graph, HEALTHY, PoissonTiming(), 1, KILLED_AT)
    walk, node = next((walk, node) for walk, node in sorted(holders(trace, KILLED_AT).items()) if node != 0)
    fault = Fault(kind, at=KILLED_AT, node=node, seconds=1000.0)
    deepest = max(graph_depths(graph, node)) if kind == "kill" else graph.nodes
    _, trace = simulate(MultiWalk(walks), graph, (fault,), PoissonTiming(), 1, KILLED_AT + 60)
    back = [time for time, which in restarts(trace) if which == walk]
    assert back
    assert back[0] - KILLED_AT < min(deepest, graph.nodes) + 7


def graph_depths(graph: graphs.Graph, without: int) -> list[int]:
    """Hops from node 0 to those it still reaches; and before, since nobody forgets a depth."""
    found = []
    for gone in (None, without):
        depth, border = {0: 0}, [0]
        while border:
            border = [
                u
                for v in border
                for u in graph.neighbours(v)
                if u not in depth and u != gone and not depth.update({u: depth[v] + 1})
            ]
        found += depth.values()
    return found


@of_graphs
@pytest.mark.parametrize(
    ("timing", "until"),
    [
        (PoissonTiming(), 300.0),
        (PoissonTiming(d=30.0), 300.0),  # a training takes thirty beats
        (NetworkTiming(compute=0.03, latency=0.002), 40.0),  # a walk runs across the whole network between two beats
        (NetworkTiming(compute=0.5, spread=1.0, latency=0.3, bandwidth=1e4), 100.0),  # a hop takes as long as a beat
    ],
    ids=["usual", "slow", "fast", "far"],
)
def test_a_walk_that_lives_is_not_started_again(graph, timing, until):
    _, trace = simulate(MultiWalk(2), graph, HEALTHY, timing, 2, until)
    assert not restarts(trace)
    assert sum(row.event == "trained" for row in trace) > 5


def test_lost_messages_are_no_lost_walks():
    faults = (Fault("lose", at=5.0, share=0.2),)
    for graph in GRAPHS[:2]:
        simulation, trace = simulate(MultiWalk(2), graph, faults, PoissonTiming(), 3, 200.0)
        assert sum(row.event == "lost" for row in trace) > 100
        assert not restarts(trace)
        assert sorted(copies(simulation)) == [1, 2]


def test_a_slow_node_keeps_its_walk():
    """Four hundred beats in one training: whoever has a walk says so."""
    faults = (Fault("slow", at=0.0, node=3, factor=400.0),)
    _, trace = simulate(MultiWalk(1), graphs.complete(6), faults, NetworkTiming(compute=1.0), 1, 600.0)
    assert holders(trace, 300.0) == {1: 3}
    assert not restarts(trace)


CLAIMS = st.builds(
    Claim,
    st.integers(0, 2**31 - 1),
    st.builds(Score, *[st.floats(0.0, width=32, allow_nan=False, allow_infinity=False)] * 4),
    st.integers(-(2**31), 1),
)


@given(
    CLAIMS,
    CLAIMS,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 1000), max_size=9),
    st.data(),
)
def test_a_view_comes_back_as_it_was(claim, ballot, beat, depth, ago, data):
    """But for a ballot that is not above the claim, and for sightings of before all beats."""
    sightings = tuple(max(0, beat - age) for age in ago)
    view = View(claim, beat, ballot, 3, 4, depth, min(2 * depth, 2**16 - 1), sightings)
    note = encode(view)
    assert decode(note) == (view if ballot.term > claim.term else view._replace(ballot=NOBODY))
    cut = data.draw(st.integers(0, len(note) - 1))
    for wrong in (note[:cut], note + b"\0"):
        with pytest.raises(ValueError, match="view"):
            decode(wrong)


def test_nobody_can_have_seen_what_is_yet_to_come():
    """A neighbour that claims a sighting far ahead would hide a loss for good."""
    sightings = Sightings(2, lambda walk: False)
    sightings.hear((10**9, 3), beat=5)
    sightings.hear_depth(depth=2, deepest=10**9, beat=5, nodes=4)
    assert sightings.beats == [5, 3]
    assert sightings.deepest == 3
    assert not sightings.unseen(1, 9, awaited=False)
    assert sightings.unseen(1, 20, awaited=False)


def test_a_walk_that_nobody_has_seen_yet_is_awaited_by_a_new_aggregator_only():
    """At first nodes may still be starting; after an election they have been there for long."""
    sightings = Sightings(1, lambda walk: False)
    assert not sightings.unseen(1, 100, awaited=False)
    assert sightings.unseen(1, 100, awaited=True)
    sightings.saw(1, 99)
    assert not sightings.unseen(1, 100, awaited=True)


def test_a_ticket_is_accepted_once():
    """Whatever a node lets in before: the aggregator mixes no copy twice, and none of before a restart."""
    mixer = term_mixer(2, (1, 0), Guard(ReturnTimes(1.0)))
    mixer.begin_afresh(0.0)
    first = Token(1, (1, 0), 0)
    assert mixer.admits(first)
    mixer.mix(first, 1.0)
    assert not mixer.admits(first)
    second = mixer.stamped(1)
    assert mixer.admits(second)
    mixer.restart(1, "initial", 2.0)
    assert not mixer.admits(second)
    assert mixer.admits(mixer.stamped(1))
    assert mixer.admits(Token(2, (1, 0), 0))


def test_a_copy_is_not_further_than_itself():
    here = Token(1, (2, 0), 3, hop=4)
    assert not further(here, here)
    assert further(here._replace(hop=5), here)
    assert further(here._replace(ticket=4, hop=0), here)
    assert not further(here._replace(ticket=2, hop=9), here)
    assert further(here._replace(term_id=(3, 1), ticket=0), here)
    assert not further(here._replace(term_id=(1, 1), ticket=9), here)
