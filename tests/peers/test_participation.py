"""Who takes part is said loudly: at the start, at the end, when it changes, and where the run asks for more."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.protocols import AsyncGossip
from walktalk.report.page.sections import participants_html
from walktalk.runtimes.peers import make_cluster
from walktalk.runtimes.peers.node import participation
from walktalk.runtimes.peers.node.news import News
from walktalk.runtimes.peers.node.node import LOOK_EVERY
from walktalk.runtimes.peers.node.participation import AtLeast, Participation
from walktalk.runtimes.peers.node.tally import Count
from walktalk.runtimes.peers.wire.session import Endpoint
from walktalk.runtimes.semantics import Stop
from walktalk.studies.collecting.gather import Participant, absent_in, as_facts, too_few
from walktalk.testing.cluster import running, wait_for

NAMES = {0: "lyon", 1: "nice", 2: "paris", 3: "köln"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(participation.time, "monotonic", lambda: now[0])
    return now


def one(at_least: AtLeast = None, returns: bool = False) -> tuple[Participation, set[int], dict[int, Count]]:
    """A node's account, who is there, and what is counted of everybody."""
    there, counts = {0}, {0: Count(moment=1)}
    tally = SimpleNamespace(node=0, counts=counts, there=lambda: set(there))
    return Participation(tally, lambda: NAMES, at_least, News(Endpoint("c", "lyon", 0)), returns), there, counts  # type: ignore[arg-type]


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    lines = [(record.levelno, record.getMessage().removeprefix("lyon: ")) for record in caplog.records]
    caplog.clear()
    return lines


def test_all_that_are_there_are_named_at_once_and_the_missing_after_some_seconds(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    whole, there, _ = one()
    whole.begin()
    there |= {1, 2}
    whole.look()
    assert not said(caplog)  # the fourth may be on its way
    clock[0] += participation.PATIENCE
    whole.look()
    line = "3 of 4 nodes take part: lyon, nice, paris; MISSING: köln"
    assert said(caplog) == [(logging.WARNING, line)]
    whole.look()
    assert not said(caplog)  # once
    there.add(3)
    whole.look()
    assert said(caplog) == [(logging.INFO, "köln takes part now: 4 of 4 nodes take part: lyon, nice, paris, köln")]
    there.remove(1)
    whole.look()
    level, line = said(caplog)[0]
    assert (level, line.partition(":")[0]) == (logging.WARNING, "nice does not take part any more")


def test_the_end_tells_who_stayed_who_went_and_who_never_came(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    whole, there, counts = one()
    whole.begin()
    clock[0] += 100.0
    counts[1], counts[2] = Count(moment=5, over=True, done=True), Count(moment=9)
    whole.end()
    line = "the run is over; 2 of 4 nodes took part to its end: lyon, nice; gone before: paris; NEVER THERE: köln"
    assert said(caplog) == [(logging.WARNING, line)]
    whole.end()
    there.clear()
    whole.look()
    assert not said(caplog)


@pytest.mark.parametrize(("at_least", "needed"), [(None, 0), (3, 3), ("all", 4)])
def test_a_node_waits_for_as_many_as_the_run_asks_for(
    at_least: AtLeast, needed: int, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    whole, there, _ = one(at_least)
    assert whole.needed == needed
    assert whole.is_waited_for is (needed > 0)
    if needed:
        whole.remind()
        assert said(caplog)[0][1].startswith(f"waits: 1 nodes take part, and the run asks for at least {needed}")
    there |= set(range(needed))
    assert not whole.is_waited_for
    there -= {1, 2, 3}
    assert not whole.is_waited_for  # it has begun: it goes on, with a complaint
    whole.begin()
    assert not whole.too_few  # words of the others are on their way
    clock[0] += participation.PATIENCE + 1.0
    assert bool(whole.too_few) is (needed > 1)
    assert one(at_least, returns=True)[0].is_waited_for is False


def test_nodes_that_are_asked_for_are_waited_for_beyond_neighbours(tmp_path: Path) -> None:
    """On a path the ends do not see each other; all of them begin once the last is there, and none before."""
    with running(
        AsyncGossip(), graphs.path(3), tmp_path, Stop(time=600.0), at_least="all", wait_for_neighbours=0.05
    ) as cluster:
        wait_for(lambda: all(node.state.begun for node in cluster.nodes), "the beginning")
        wait_for(lambda: len(cluster.nodes[1].status()["takes_part"]) == 3)
        assert cluster.nodes[1].status()["missing"] == []


def test_a_run_that_asks_for_more_than_come_does_not_begin(tmp_path: Path) -> None:
    with running(
        AsyncGossip(), graphs.path(2), tmp_path, Stop(time=600.0), at_least=3, wait_for_neighbours=0.05
    ) as cluster:
        node, began = cluster.nodes[0], time.monotonic()
        wait_for(lambda: len(node.progress.tally.there()) == 2, "hearing of the other")
        wait_for(lambda: node.progress.tally.own.moment > 3, "its words")
        assert node.progress.tally.own.moment <= 3 + (time.monotonic() - began) / LOOK_EVERY  # no word is an answer
        assert not node.state.begun
        assert "asks for at least 3" in node.status()["complaints"][0]


@pytest.mark.parametrize("given", [0, 3, "most", 1.5])
def test_a_cluster_says_what_at_least_may_be(given: object) -> None:
    with pytest.raises(SpecError, match="at_least must be"):
        make_cluster({"nodes": {"a": {}, "b": {}}, "at_least": given})


def test_collect_names_who_was_never_there() -> None:
    def member(name: str, lives: int, iterations: int) -> Participant:
        return Participant(name, "", "", 0.0, lives, 0, None, None, {}, iterations, 0, {}, "")

    members = [member("lyon", 1, 5), member("server", 1, 0), member("köln", 0, 0)]
    assert absent_in(members) == ["köln"]
    assert too_few(None, members) == too_few(2, members) == ""
    few = too_few("all", members)
    assert few == "2 of 3 nodes took part; the run asks for at least 3"
    cluster = {"copy": "the copy of lyon", "nodes": as_facts(members), "missing": absent_in(members), "too_few": few}
    page = str(participants_html(cluster))
    assert f"<strong>Never took part: köln. Too few: {few}.</strong>" in page
    assert "Never took part" not in str(participants_html({**cluster, "missing": [], "too_few": ""}))
