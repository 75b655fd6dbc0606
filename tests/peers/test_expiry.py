"""Certificates that run out while nodes run: nobody is lost, and new ones are taken when all have one."""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import MultiWalk
from walktalk.runtimes.peers import Node, NodeSetup, make_certificates
from walktalk.runtimes.peers.identity.certificates import certificates_in, credentials, judge
from walktalk.runtimes.peers.operations.metrics import NodeMetrics
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.cluster import Crowd, crowd, done, endpoints, wait_for
from walktalk.testing.quadratic import QuadraticTrainer

LIFE = 25.0  # seconds


def all_train_on(made: Crowd, by: int = 5) -> None:
    before = {name: done(node) for name, node in made.nodes.items()}
    wait_for(lambda: all(done(node) >= before[name] + by for name, node in made.nodes.items()), "training of all")


def all_are_there(made: Crowd) -> bool:
    return all(len(node.state.alive) == 2 for node in made.nodes.values())


def metric(node: Node, name: str) -> float:
    return next(one.samples[0].value for one in NodeMetrics(node.health).collect() if one.name == name)


@pytest.mark.slow
def test_links_outlive_certificates_and_new_ones_are_taken_once_all_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections closed at the same moment, and every node went on alone, with all walks."""
    short = partial(make_certificates, days=LIFE / 86_400, together=True)
    monkeypatch.setattr("walktalk.testing.cluster.make_certificates", short)
    monkeypatch.setattr("walktalk.runtimes.peers.identity.renewal.LOOK_EVERY", 0.5)
    folder = tmp_path / "certs"
    with crowd(tmp_path, MultiWalk(walks=3), graphs.cycle(3), certified=True) as made:
        ends = [certificates_in(folder / f"{name}.pem")[0].not_valid_after_utc for name in made.nodes]
        over = max(ends) + datetime.timedelta(seconds=5)
        wait_for(lambda: datetime.datetime.now(datetime.timezone.utc) > over, "the end of certificates")
        assert all_are_there(made)
        all_train_on(made)
        lost = [row for row in made.trace() if row.event == "lost"]
        assert not lost
        for name, node in made.nodes.items():
            assert any(f"{name}.pem expired on" in line for line in node.health.complaints())
            assert metric(node, "walktalk_certificate_warning") == 4
        renewals = {name: node.link.connections.renewal for name, node in made.nodes.items()}
        make_certificates(folder, {"n0": ()})
        first = renewals["n0"]
        assert first is not None
        wait_for(lambda: first.newest is not first.files, "a new certificate")
        wait_for(lambda: bool(first._waited), "a word about the others")
        assert not made.nodes["n0"].health.complaints()
        assert all_are_there(made)
        make_certificates(folder, {"n1": (), "n2": ()})
        wait_for(lambda: all(one is not None and one.files is one.newest for one in renewals.values()), "the change")
        wait_for(lambda: all_are_there(made), "all to be there")
        all_train_on(made)
        assert not any(node.health.complaints() for node in made.nodes.values())
        assert not [row for row in made.trace() if row.event == "lost"]  # it was announced


def test_status_health_and_metrics_say_how_soon_a_certificate_ends(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", {"n0": ()})
    graph, trainer = graphs.cycle(3), QuadraticTrainer(3)
    place = replace(endpoints(graph)[0], credentials=credentials(tmp_path / "certs", "n0"))
    around = all_network_views(graph)[0]
    node = Node(NodeSetup(MultiWalk(), around, Seed(0), Stop(time=9.0), trainer.initial(), place, tmp_path), trainer)
    try:
        renewal = node.link.connections.renewal
        assert renewal is not None
        for days, level, well in ((31.5, 0, True), (29.5, 1, True), (6.5, 2, False), (0.5, 3, False), (-1.0, 4, False)):
            end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
            renewal.outlook = judge(end, Path("n0.pem"))
            said = [line for line in node.health.complaints() if "n0.pem" in line]
            warned = [line for line in node.status()["warnings"] if "n0.pem" in line]
            assert (bool(said), bool(warned)) == (not well, well and level > 0)
            assert metric(node, "walktalk_certificate_warning") == level
    finally:
        node.link.close()
        node.training.queue.close()
        node.reports.event_log.close()
