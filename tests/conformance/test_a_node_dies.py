"""A node dies in the middle of its work and comes back from its checkpoint: the same questions to both engines."""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from walktalk import graphs
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol, SyncGossip
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.testing.chaos.verdict import copies_of_walks, taking_part
from walktalk.testing.engines import ENGINES, Outage, Outcome

HEARTBEAT, UNTIL = 0.1, 7.0
OUTAGE = Outage(at=0.7, node=0, seconds=1.2)  # node 0 aggregates at first
WITH_A_WALK = Outage(at=0.705, node=0, seconds=1.2, with_walks=1)  # one walk of two dies with it, and one lives
LATER = Outage(at=3.6, node=0, seconds=1.2, with_walks=1)
NOTICED = 1.0  # seconds after which neighbours that wait for an answer know that none will come
WALKS = MultiWalk(2, heartbeat=HEARTBEAT)
PROTOCOLS = (
    WALKS,
    AsyncGossip(patience=0.4),
    pytest.param(AsyncGossip("neighbourhood", patience=0.4), marks=pytest.mark.slow),  # survives as in pairs
    SyncGossip(patience=0.4),
)


@functools.cache
def outcome(engine: str, protocol: Protocol) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        outage = WITH_A_WALK if protocol == WALKS else OUTAGE
        return ENGINES[engine](protocol, graphs.complete(4), Stop(time=UNTIL), Path(folder), outage)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS, ids=lambda p: p.label)
def run(request: pytest.FixtureRequest, engine: str) -> Outcome:
    return outcome(engine, request.param)


def test_the_others_train_on_while_it_is_away(run: Outcome) -> None:
    away = [row.time for row in run.trace if row.node == OUTAGE.node and row.event == "trained"]
    gap = max(itertools.pairwise(away), key=lambda pair: pair[1] - pair[0])
    assert gap[1] - gap[0] >= OUTAGE.seconds
    since = gap[0] + (0.0 if run.protocol == WALKS else NOTICED)  # who has the other walk waits for nobody
    meanwhile = {row.node for row in run.trace if row.event == "trained" and since < row.time < gap[1]}
    assert meanwhile >= {1, 2, 3}


def test_it_takes_part_again_when_it_is_back(run: Outcome) -> None:
    assert taking_part(run.trace, UNTIL - 2.0, UNTIL) == {0, 1, 2, 3}


def test_nothing_is_counted_twice(run: Outcome) -> None:
    trace = [row for row in run.trace if row.event != "kill"]
    assert Ledger(run.protocol, run.graph.nodes, sum(row.event == "train" for row in trace)).play(trace).sound


def test_models_stay_finite_and_the_loss_falls(run: Outcome) -> None:
    losses = [m.train_loss for m in run.measurements]
    assert np.isfinite(losses).all()
    assert min(losses) < losses[0]


def test_one_new_aggregator_in_a_higher_term(engine: str) -> None:
    run = outcome(engine, WALKS)
    mixed = [(row.walk, row.node) for row in run.trace if row.event == "record" and row.detail == "aggregate"]
    terms = dict(mixed)
    assert set(mixed) == set(terms.items())  # one aggregator in each term
    assert list(dict.fromkeys(term for term, _ in mixed)) == sorted(terms)  # and terms only rise
    assert terms[1] == OUTAGE.node
    assert max(terms) > 1
    assert terms[max(terms)] != OUTAGE.node
    leads = [v for v, machine in enumerate(run.machines) if machine.members.leads]  # type: ignore[attr-defined]
    assert leads == [terms[max(terms)]]


def test_the_walks_are_back_at_r(engine: str) -> None:
    run = outcome(engine, WALKS)
    assert copies_of_walks(run.trace, UNTIL - 2.0, UNTIL - 0.2) == (2, 0)


def test_without_a_centre_the_walk_that_died_is_forked(engine: str, tmp_path: Path) -> None:
    """When enough is known of return times, one of two walks dies with its node; the other begets it again."""
    protocol, until = MultiWalk(2, aggregator=1, heartbeat=HEARTBEAT, guard="decentralized"), 9.0
    run = ENGINES[engine](protocol, graphs.complete(4), Stop(time=until), tmp_path, LATER)
    assert [row for row in run.trace if row.event == "forked" and row.time > LATER.at]
    assert not [row for row in run.trace if row.event == "restarted"]
    late = [row for row in run.trace if row.event == "trained" and until - 2.0 < row.time < until - 0.2]
    walks, copies = copies_of_walks(run.trace, until - 2.0, until - 0.2)
    assert walks == 2
    assert copies <= 0.1 * len(late)  # a fork that was not needed lives on until it meets its twin


@pytest.mark.parametrize("engine", ENGINES)
def test_where_all_walks_are_lost_and_nobody_guards_them_the_run_ends(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by iterations, which are never reached; and not never."""
    monkeypatch.setattr("walktalk.runtimes.peers.node.progress.STALLED", 1.0)
    lone = MultiWalk(1, aggregator=1, heartbeat=HEARTBEAT, guard="none")
    stop, outage = Stop(iterations=10**9), Outage(0.5, 0, 0.5)
    run = ENGINES[engine](lone, graphs.complete(2), stop, tmp_path, outage, everything=True)
    assert [row for row in run.trace if row.event == "all_lost"]
