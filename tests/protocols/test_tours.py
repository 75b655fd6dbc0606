"""Tours, Tram-FL and FedTM: who is visited and when, what a way costs, and what becomes of them when nodes fail."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tests.support.mechanisms import slow_unless
from walktalk import graphs
from walktalk.core.errors import SettingError, SpecError
from walktalk.core.plugins import REGISTRIES
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import FedTM, MultiWalk, Protocol, Tour, TramFL
from walktalk.protocols.mechanisms.tokens.stops import MOST_SHUT, Way, distances, shuffled_lap, way_in
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, RunSetup, Simulation
from walktalk.testing import check_protocol

LABELS = ((5.0, 0.0, 0.0), (0.0, 5.0, 0.0), (0.0, 0.0, 5.0), (9.0, 0.0, 0.0))


def trace(protocol: Protocol, graph: Graph, iterations: int, *faults: Fault, seed: int = 1) -> list[TraceRow]:
    """What happens, planned without arithmetic."""
    plan = FaultPlan(faults)
    run = RunSetup(
        protocol.resilient_form() if plan else protocol, graph, Seed(seed), Stop(iterations=iterations),
        PoissonTiming(), keep_schedule=False, faults=plan,
    )  # fmt: skip
    return Simulation(run).advance().trace


def visited(rows: list[TraceRow]) -> list[int]:
    return [row.node for row in rows if row.event == "trained"]


def hops(rows: list[TraceRow]) -> int:
    return sum(row.event == "send" for row in rows)


# -- tours ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [graphs.complete(6), graphs.path(6), graphs.star(6)], ids=lambda graph: graph.name)
def test_every_lap_visits_every_node_once_and_no_two_laps_are_alike(graph: Graph) -> None:
    way = visited(trace(Tour(), graph, 60))
    laps = [way[start : start + 6] for start in range(0, 60, 6)]
    assert all(sorted(lap) == [*range(6)] for lap in laps)
    assert way[0] == 0
    assert len({tuple(lap) for lap in laps}) > 5
    assert all(here != there for here, there in itertools.pairwise(way))
    assert way != visited(trace(Tour(), graph, 60, seed=2))


def test_a_cyclic_tour_goes_on_in_its_order_and_pays_every_hop() -> None:
    by_number, named = Tour(laps="cyclic"), Tour(laps="cyclic", order=(4, 1, 3))
    assert visited(trace(by_number, graphs.cycle(5), 11)) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert visited(trace(named, graphs.complete(5), 11)) == [0, 2, 4, 1, 3, 0, 2, 4, 1, 3, 0]
    assert hops(trace(by_number, graphs.path(5), 11)) == 2 * (4 + 4) + 1  # four there, four back at once
    assert hops(trace(by_number, graphs.complete(5), 10)) == 10
    assert (
        hops(trace(by_number, graphs.star(5), 11)) == 2 * (1 + 3 * 2 + 1) + 1
    )  # by the hub, which trains it only in turn


def test_several_tours_are_mixed_as_several_walks_are() -> None:
    rows = trace(Tour(walks=3), graphs.complete(6), 120)
    assert {row.walk for row in rows if row.event == "trained"} == {1, 2, 3}
    assert max(Counter(visited(rows)).values()) - min(Counter(visited(rows)).values()) <= 3


def test_one_that_is_dead_is_passed_over_and_the_way_leads_round_it() -> None:
    dead = Fault("kill", node=3, at=20.0)
    for protocol in (Tour(), Tour(laps="cyclic"), TramFL()):
        counts = Counter(visited(trace(protocol, graphs.cycle(8), 120, dead)))
        assert counts.pop(3) <= 4
        assert sorted(counts) == [0, 1, 2, 4, 5, 6, 7]
        assert max(counts.values()) - min(counts.values()) <= 4


def test_those_who_join_and_leave_are_in_the_laps_while_they_are_there() -> None:
    rows = trace(Tour(), graphs.cycle(6), 150, Fault("leave", node=2, at=40.0), Fault("join", node=4, at=60.0))
    counts = Counter(visited(rows))
    assert 3 <= counts[2] < 12
    assert 8 < counts[4] < 22
    assert all(25 <= counts[node] <= 35 for node in (0, 1, 3, 5))


def test_a_turned_back_walk_goes_on_to_its_stop_and_what_is_no_way_begins_here() -> None:
    way = Way(7, (1, 2), b"lap")
    assert way_in(way.encode(), 0) == way
    assert way_in(b"", 4) == way_in(b"\xff\xff", 4) == Way(4)
    assert way_in(Way(1, tuple(range(200))).encode(), 0).shut == tuple(range(MOST_SHUT))  # who forges shuts no more


def test_paths_are_the_shortest_and_lead_over_nobody_who_is_shut() -> None:
    links = graphs.cycle(8).neighbours
    assert dict(distances(links, 3, frozenset())) == {3: 0, 2: 1, 4: 1, 1: 2, 5: 2, 0: 3, 6: 3, 7: 4}
    assert distances(links, 3, frozenset({2}))[1] == 6


def test_who_joins_leaves_the_others_in_their_order() -> None:
    before, after = shuffled_lap(5, range(9)).order, shuffled_lap(5, range(10)).order
    assert [node for node in after if node != 9] == list(before)


def test_known_names_and_what_they_mean() -> None:
    registry = REGISTRIES["algorithm"]
    assert registry.find("travelling_model") is Tour
    assert Tour(laps="cyclic").title == "one cyclic tour"
    for wrong, message in (({"order": (1, 1)}, "each node"), ({"order": (2,), "laps": "shuffled"}, "set laps: cyclic")):
        with pytest.raises((SpecError, SettingError), match=message):
            Tour(**{"laps": "cyclic", **wrong})
    with pytest.raises(SpecError, match="allowed: 0 to 4"):
        Tour(laps="cyclic", order=(7,)).check(5)


# -- Tram-FL ----------------------------------------------------------------------------------------------------------


def test_tram_fl_goes_where_labels_are_missing() -> None:
    way = visited(trace(TramFL(LABELS), graphs.complete(4), 90))
    seen = np.cumsum([np.array(LABELS[node]) / sum(LABELS[node]) for node in way], axis=0)
    assert (seen.max(axis=1) - seen.min(axis=1)).max() <= 1.0
    walk = visited(trace(MultiWalk(), graphs.complete(4), 90))
    seen = np.cumsum([np.array(LABELS[node]) / sum(LABELS[node]) for node in walk], axis=0)
    assert (seen.max(axis=1) - seen.min(axis=1)).max() > 5.0
    assert visited(trace(TramFL(), graphs.complete(4), 8)) == [0, 1, 2, 3, 0, 1, 2, 3]


def test_tram_fl_steps_go_by_how_much_data_a_node_has() -> None:
    plan = TramFL(((8.0, 0.0), (0.0, 2.0), (1.0, 1.0)), steps=4)
    assert plan.gains.sum(axis=1).tolist() == [8.0, 2.0, 2.0]
    with pytest.raises(SpecError, match="2 rows for 3 nodes"):
        TramFL(((1.0,), (2.0,))).check(3)
    with pytest.raises(SpecError, match="not all of them 0"):
        TramFL(((1.0, 1.0), (0.0, 0.0)))


# -- FedTM ------------------------------------------------------------------------------------------------------------


def test_fedtm_averages_the_large_and_then_travels_to_all() -> None:
    way = visited(trace(FedTM(large=(1, 2), warmup=3), graphs.star(5), 6 + 4 * 5))
    assert Counter(way[:6]) == {1: 3, 2: 3}
    assert all(sorted(way[start : start + 5]) == [*range(5)] for start in range(6, 26, 5))


def test_fedtm_passes_over_who_is_dead_and_takes_in_who_joins() -> None:
    dead, new = Fault("kill", node=3, at=20.0), Fault("join", node=4, at=40.0)
    counts = Counter(visited(trace(FedTM(large=(1, 2), warmup=3), graphs.star(5), 120, dead, new)))
    assert counts[3] <= 6
    assert counts[4] > 15
    for wrong in ({"tree": True}, {"large": (9,)}):
        with pytest.raises(SpecError):
            FedTM(**wrong).check(5)


ALL = (Tour(), Tour(2, "cyclic"), TramFL(), FedTM(large=(1, 2), warmup=4))


@pytest.mark.parametrize("protocol", [pytest.param(one, marks=slow_unless(False), id=one.label) for one in ALL])
def test_they_pass_in_virtual_time(protocol: Protocol) -> None:
    check_protocol(protocol)
