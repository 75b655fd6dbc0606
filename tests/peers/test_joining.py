"""Nodes join a cluster that runs, and leave it for good: real nodes in this process, and what they say of it."""

from __future__ import annotations

import json
import logging
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.peers.test_deployment import MAIN, walktalk, write_cluster
from tests.peers.test_hostile import lonely_node
from walktalk.chains import metropolis_hastings, spectrum
from walktalk.cli.app import app
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.graphs import Graph, complete, cycle, star
from walktalk.protocols import (
    AsyncGossip,
    Context,
    FedAvg,
    GradientTracking,
    MultiWalk,
    NetworkChanged,
    NetworkView,
    PeerFound,
    Protocol,
    Received,
    Send,
    Started,
    TimerFired,
)
from walktalk.runtimes.peers import (
    Entry,
    JoinRequest,
    Ledger,
    Roster,
    Standing,
    as_text,
    credentials,
    free_ports,
    make_certificates,
    network_view,
    read_event_log,
    signed_entry,
    was_let_go,
)
from walktalk.runtimes.simulator import all_network_views
from walktalk.studies.peers.node_job import find_seat
from walktalk.testing.cluster import SECONDS, crowd, done, wait_for

# -- rosters ---------------------------------------------------------------------------------------------------------


def empty(graph: Graph | None = None, authority: Path | None = None) -> Roster:
    graph = graph or cycle(3)
    return Roster("test", graph, tuple(f"n{v}" for v in range(graph.nodes)), authority)


def said_by_all() -> list[Entry]:
    """What became of a few names, in the order in which it was said."""
    roster, said = empty(), []
    for name, standing in (
        ("a", Standing.MEMBER),
        ("n1", Standing.LEAVING),
        ("b", Standing.MEMBER),
        ("a", Standing.LEAVING),
        ("n1", Standing.LEFT),
        ("a", Standing.LEFT),
        ("a", Standing.MEMBER),
    ):
        entry = roster.next(name, standing, neighbours=("n0", "n2") if name not in roster.names else ())
        roster.join([entry])
        said.append(entry)
    return said


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=7), min_size=1, max_size=6), st.randoms())
def test_rosters_are_joined_in_any_order_and_however_often(parts: list[list[int]], dice: object) -> None:
    entries = said_by_all()
    parts = [*parts, list(range(len(entries)))]  # in the end everybody has heard everything
    one, other = empty(), empty()
    for part in parts:
        one.join(entries[index] for index in part)
        assert one.join(entries[index] for index in part) == []
    for part in reversed(parts):
        other.join(entries[index] for index in reversed(part))
    assert one.entries == other.entries
    assert one.digest == other.digest
    assert one.network.rows == other.network.rows
    assert one.standing("n1") is Standing.LEFT
    assert one.standing("a") is Standing.MEMBER
    assert one.network.graph().is_connected()


def test_one_that_is_leaving_is_still_a_neighbour_though_its_edges_are_others_already() -> None:
    roster = empty(cycle(4))
    roster.join([roster.next("n1", Standing.LEAVING)])
    assert roster.neighbours("n0") == (1, 2, 3)
    assert roster.neighbours("n1") == (0, 2)
    around = network_view(all_network_views(cycle(4))[0], roster, "n0")
    assert around.leaving == {1}
    assert around.nodes == 3
    roster.join([roster.next("n1", Standing.LEFT)])
    assert roster.neighbours("n0") == (2, 3)


def test_walks_go_by_the_weights_of_the_graph_as_it_is_now() -> None:
    """The rows that nodes move walks by, after one has joined and one has left, are the new graph's matrix."""
    roster, graph = empty(cycle(5)), cycle(5)
    context, before = Context(1.0, random.Random(0)), all_network_views(graph)
    names, protocol = dict(enumerate(roster.names)), MultiWalk(2).resilient_form()
    machines = {names[v]: protocol.machine(before[v]) for v in range(5)}
    for machine in machines.values():
        machine.handle(Started(), context)
    roster.join([roster.next("new", Standing.MEMBER, neighbours=("n0", "n1", "n2"))])
    roster.join([roster.next("n3", Standing.LEFT)])
    del machines["n3"]
    first = NetworkView(roster.number("new"), 5, (), ())
    around = {name: network_view(before[v] if v < 5 else first, roster, name) for v, name in roster.known.items()}
    for name, machine in machines.items():
        machine.handle(NetworkChanged(around[name]), context)
    machines["new"] = protocol.machine(around["new"])
    machines["new"].handle(Started(late=True), context)
    for name, machine in machines.items():
        for peer in around[name].neighbours:
            machine.handle(PeerFound(peer), context)
    for name, machine in machines.items():  # a heartbeat later all know how many neighbours their neighbours have
        for effect in machine.handle(TimerFired("beat"), context):
            if isinstance(effect, Send):
                machines[roster.known[effect.to]].handle(Received(roster.number(name), effect.message, ""), context)
    place = {number: index for index, number in enumerate(roster.network.present)}
    matrix = np.zeros((5, 5))
    for name, machine in machines.items():
        here, (peers, degrees) = place[roster.number(name)], machine.members.neighbours.row()
        for peer, degree in zip(peers, degrees, strict=True):
            matrix[here, place[peer]] = 1.0 / (1 + max(len(peers), degree))
        matrix[here, here] = 1.0 - matrix[here].sum()
    np.testing.assert_allclose(matrix, metropolis_hastings(roster.network.graph()).matrix.toarray())


def test_theory_has_the_numbers_of_the_graph_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what nodes on this machine have written down, where none of them answers."""
    monkeypatch.setattr("walktalk.runtimes.peers.operations.operator.known_roster", lambda *given: None)
    config, graph = write_cluster(tmp_path, certificates=None), complete(3)
    roster = Roster("test", graph, ("ca-1", "ca-2", "il-1"), None)
    folder = tmp_path / "records" / "ca-2"
    folder.mkdir(parents=True)
    for entry, becomes in (
        (roster.next("new", Standing.MEMBER, neighbours=("ca-1", "ca-2", "il-1")), complete(4)),
        (roster.next("ca-1", Standing.LEFT), complete(3)),
    ):
        roster.join([entry])
        (folder / "roster.json").write_text(as_text(roster.entries))
        found = json.loads(CliRunner().invoke(app, ["theory", "--config", str(config), "--json"]).stdout)
        assert (found["nodes"], found["degree"]["max"]) == (becomes.nodes, becomes.nodes - 1)
        assert found["p_prime"] == pytest.approx(spectrum(metropolis_hastings(becomes)).p_prime)
        assert found["return_time"]["mean"] == pytest.approx(becomes.nodes)


def test_of_two_that_drew_one_number_at_once_one_name_counts() -> None:
    roster = empty()
    drawn = [Entry(name, 77, 0, "127.0.0.1:1", ("n0",), rank=1, by=name) for name in ("b", "a")]
    roster.join(drawn)
    assert roster.known[77] == "a"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"number": 1}, "cannot be number"),
        ({"by": "n0"}, "cannot speak for"),
        ({"by": "operator"}, "can only let"),
        ({"name": "n0", "number": 2, "by": "n0"}, "is not number"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        empty().join([replace(Entry("a", 9, by="a"), **changes)])


def test_a_full_roster_says_what_to_do_and_a_large_clusters_holds_more() -> None:
    entries = [Entry(f"m{k}", 3 + k, by=f"m{k}") for k in range(1001)]
    roster = empty()
    roster.join(entries[:1000])
    with pytest.raises(ValueError, match=r"1,000 names have come and gone.*start it again with those that are there"):
        roster.join(entries[1000:])
    assert roster.join([replace(entries[5], count=1)])  # who is in it can still leave
    assert empty(cycle(200)).room == 3200


@pytest.mark.parametrize("said", [[], ["a"] * 10, ["a", 9, 0, "x y", [], "", 0, "a", "", ""], {"a": 1}, 3])
def test_what_is_no_entry_is_none(said: object) -> None:
    with pytest.raises(ValueError, match="no entry"):
        Entry.heard(said)


def test_with_certificates_only_its_owner_or_the_operator_can_say_something_of_a_name(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_certificates(ours, {"a": [], "b": []})
    make_certificates(theirs, {"a": []})
    roster = empty(authority=ours / "ca.pem")
    entry = roster.next("a", Standing.MEMBER, address="127.0.0.1:1")
    with pytest.raises(ValueError, match="not signed"):
        roster.join([entry])
    with pytest.raises(ValueError, match="another authority"):
        roster.join([signed_entry(entry, roster, credentials(theirs, "a"))])
    with pytest.raises(ValueError, match="signed by 'b'"):
        roster.join([signed_entry(entry, roster, credentials(ours, "b"))])
    good = signed_entry(entry, roster, credentials(ours, "a"))
    with pytest.raises(ValueError, match="signature"):
        roster.join([replace(good, address="127.0.0.1:2")])
    assert roster.join([Entry.heard(good.said())]) == [good]
    gone = roster.next("a", Standing.LEFT, by="operator")
    roster.join([signed_entry(gone, roster, credentials(ours, "operator"))])
    assert roster.standing("a") is Standing.LEFT


# -- real nodes ------------------------------------------------------------------------------------------------------


def test_a_node_joins_takes_part_and_the_aggregator_leaves_for_good(tmp_path: Path) -> None:
    """Walks come to the one that joined; one that leaves hands over what it aggregated; nothing is counted twice."""
    with crowd(tmp_path, MultiWalk(2, heartbeat=0.2), cycle(4), certified=True) as made:
        new = made.knocks("newcomer")
        wait_for(lambda: done(new) > 5)
        assert new.progress.tally.iterations > done(new)  # it has heard how far the others are
        first = made.nodes["n0"]
        wait_for(lambda: first.models.interpreter.output.aggregated_at is not None)
        first.leave_for_good()
        made.threads["n0"].join(SECONDS)
        assert not made.threads["n0"].is_alive()
        left = [node for name, node in made.nodes.items() if name != "n0"]
        wait_for(lambda: sum(node.runner.machine.members.leads for node in left) == 1)  # type: ignore[attr-defined]
        wait_for(lambda: all(0 not in node.members.view.neighbours for node in left))
        before = {node.models.me: done(node) for node in left}
        wait_for(lambda: all(done(node) > before[node.models.me] + 3 for node in left))
        rows = {node.models.me: node.members.view.neighbours for node in left}
        assert all(a in rows[b] for a in rows for b in rows[a])
        trace = made.trace()
    events = [row.event for row in trace]  # type: ignore[attr-defined]
    assert "inherited" in events
    ledger = Ledger(made.protocol, 4, sum(event in ("train", "differentiate") for event in events)).play(trace)  # type: ignore[arg-type]
    assert ledger.sound
    assert ledger.mixings > 0


@pytest.mark.parametrize(
    "protocol", [AsyncGossip(patience=0.5), GradientTracking(patience=0.5)], ids=lambda one: str(one.name)
)
def test_one_that_joins_a_gossip_takes_a_neighbours_model_not_the_initial_one(
    protocol: Protocol, tmp_path: Path
) -> None:
    with crowd(tmp_path, protocol, complete(3)) as made:
        new = made.knocks("newcomer", contact="n1")
        wait_for(lambda: done(new) > 5)
        assert set(new.link.endpoint.neighbours) == {"n0", "n1", "n2"}
        made.nodes["n2"].leave_for_good()
        made.threads["n2"].join(SECONDS)
        wait_for(lambda: set(new.link.endpoint.neighbours) == {"n0", "n1"})
        left = [node for name, node in made.nodes.items() if name != "n2"]
        before = {node.models.me: done(node) for node in left}
        wait_for(lambda: all(done(node) > before[node.models.me] + 3 for node in left))
        own = [row for row in read_event_log(made.cluster.folder / "newcomer") if row.slot == "model"]
        assert list(own[0].detail) != ["initial"]
        assert own[0].event == "combine"


def test_a_client_joins_a_server_and_another_one_leaves_it(tmp_path: Path) -> None:
    with crowd(tmp_path, FedAvg(patience=0.5), star(3)) as made:
        new, server = made.knocks("newcomer", contact="n1"), made.nodes["n0"]
        wait_for(lambda: done(new) > 3)
        assert set(new.link.endpoint.neighbours) == {"n0"}
        asked = server.members._answer_leave({})
        assert asked["refused"] == "it is the server, which no other node can replace; stop it instead"
        made.nodes["n1"].leave_for_good()
        made.threads["n1"].join(SECONDS)
        wait_for(lambda: set(server.link.endpoint.neighbours) == {"n2", "newcomer"})
        before = {name: done(made.nodes[name]) for name in ("n0", "n2", "newcomer")}
        wait_for(lambda: all(done(made.nodes[name]) > number + 3 for name, number in before.items()))
    own = [row for row in read_event_log(made.cluster.folder / "newcomer") if row.event == "combine"]
    assert not any("initial" in row.detail for row in own)
    mixed = [
        row for row in read_event_log(made.cluster.folder / "n0") if row.event == "combine" and row.slot == "model"
    ]
    cohorts = [{slot for slot in row.detail if slot.startswith("change_up/")} for row in mixed]
    assert {"change_up/2", f"change_up/{new.models.me}"} in cohorts


def test_one_that_comes_back_under_another_address_is_found_there(tmp_path: Path) -> None:
    """Its neighbours dialled where it had been, until they were started again."""
    with crowd(tmp_path, AsyncGossip(patience=0.5), complete(2), certified=True) as made:
        first = made.knocks("newcomer")
        wait_for(lambda: len(first.state.alive) == 2)
        first.leave()
        made.threads["newcomer"].join(SECONDS)
        wait_for(lambda: all(len(made.nodes[name].state.alive) == 1 for name in ("n0", "n1")))
        again = made.knocks("newcomer")
        assert again.link.endpoint.listen != first.link.endpoint.listen
        before = done(again)
        wait_for(lambda: len(again.state.alive) == 2 and done(again) > before + 3)


def test_who_may_not_join_is_told_why_on_both_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    foreign = tmp_path / "foreign"
    make_certificates(foreign, {"newcomer": []})
    with crowd(tmp_path, AsyncGossip(patience=0.5), cycle(3), certified=True) as made, caplog.at_level(logging.WARNING):
        for name, why, study in (
            ("newcomer", "its study is another: seed is 1 there and nothing here", {"seed": 1}),
            ("n2", "the name n2 is taken", {}),
        ):
            with pytest.raises(UnavailableError, match=f"n0 does not let it join: .*{why}"):
                made.knocks(name, **study)
            assert f"n0: refuses {name}, who wants to join: " in caplog.text
            assert why in caplog.text
        ours = tmp_path / "certs"
        shutil.copy(ours / "n1.pem", ours / "liar.pem")  # n1's certificate, under another name
        shutil.copy(ours / "n1.key", ours / "liar.key")
        roster = made.cluster.roster(made.graph)
        entry = signed_entry(roster.next("liar", Standing.MEMBER), roster, credentials(ours, "n1"))
        with pytest.raises(ValueError, match="signed by 'n1'"):
            made.nodes["n0"].members.merge([entry])
        assert all(not node.setup.roster.changed for node in made.nodes.values() if node.setup.roster)
        where = signed_entry(
            roster.next("newcomer", Standing.MEMBER, address="[:]::", neighbours=("n0",), rank=1),
            roster,
            credentials(ours, "newcomer"),
        )
        made.nodes["n0"].events.put(lambda: made.nodes["n0"].members.merge([where]))  # at an address that is none
        wait_for(lambda: "newcomer" in made.nodes["n0"].link.endpoint.neighbours)
        before = done(made.nodes["n0"])
        wait_for(lambda: done(made.nodes["n0"]) > before + 3)


def test_one_that_knows_a_relay_does_not_join_those_that_know_none(tmp_path: Path) -> None:
    """They were started before the file named it: it would be let in, and nobody would ever meet it."""
    with crowd(tmp_path, AsyncGossip(patience=0.5), complete(2)) as made:
        later = replace(made, cluster=made.cluster.model_copy(update={"relay": f"127.0.0.1:{free_ports(1)[0]}"}))
        with pytest.raises(UnavailableError, match=r"n0 does not let it join: it says no address, .* names the relay"):
            later.knocks("newcomer")
        assert all(not node.setup.roster.changed for node in made.nodes.values() if node.setup.roster)


def test_one_that_joined_is_told_whose_certificate_is_revoked(tmp_path: Path) -> None:
    with crowd(tmp_path, AsyncGossip(patience=0.5), complete(2), certified=True) as made:
        new = made.knocks("newcomer")
        wait_for(lambda: len(new.state.alive) == 2)
        config = tmp_path / "cluster.yaml"
        nodes = {name: {"address": place.address} for name, place in made.cluster.nodes.items()}
        config.write_text(json.dumps({"name": "test", "certificates": "certs", "nodes": nodes}))
        said = CliRunner().invoke(app, ["certs", "revoke", "n1", "--config", str(config), "--seconds", "3"]).output
        assert "newcomer: has " in said  # taken it, or it already: they share one folder here
        wait_for(lambda: new.state.alive == {0})


def test_a_protocol_that_is_not_made_for_it_lets_nobody_join_or_leave() -> None:
    from walktalk.protocols import PROTOCOLS, NeighbourRounds

    each = [PROTOCOLS.find(name)() for name in PROTOCOLS]
    made = {one.name for one in each if one.nodes_come_and_go}
    assert made >= {"multi_walk", "async_gossip", "sync_gossip", "local_dsgd", "gradient_tracking", "sgp", "noloco"}
    assert made >= {"swarm_sgd", "agraf", "a2cid2", "swift", "divshare"}
    assert made >= {"digest", "token_saga", "walkman", "weighted_walk"}
    assert made >= {"fedavg", "fedopt", "fedprox", "fedbuff", "fedasync", "async_sgd", "diloco", "streaming_diloco"}
    stay = {one.name for one in each if isinstance(one, NeighbourRounds) and not one.nodes_come_and_go}
    assert stay == {"relay_sgd", "push_pull"}
    assert all(one.why_nodes_stay for one in each if one.name in stay)


@pytest.mark.slow
def test_processes_join_come_back_and_leave_as_a_person_starts_them(tmp_path: Path) -> None:
    """With certificates, through the command line: join, status, restart, leave, one that is dead, collect, theory."""
    config = write_cluster(
        tmp_path,
        study={
            "network": {"topology": "cycle", "nodes": 3},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [{"name": "multi_walk", "walks": 2, "heartbeat": 0.5}],
            "stop": {"time": 600.0},
        },
        pace=0.05,
    )
    assert walktalk("certs", "--config", str(config)).returncode == 0
    make_certificates(tmp_path / "certs", {"newcomer": ["127.0.0.1"]})
    command = [sys.executable, "-c", MAIN, "node", "--config", str(config), "--name"]
    nodes = {name: subprocess.Popen([*command, name]) for name in ("ca-1", "ca-2", "il-1")}
    try:
        wait_for(lambda: train(config, *nodes))
        nodes["newcomer"] = subprocess.Popen([*command, "newcomer", "--join", "ca-2", "--part", "2", "--site", "far"])
        wait_for(lambda: train(config, "newcomer"))
        assert (asked(config)["newcomer"] or {})["site"] == "far"
        nodes["newcomer"].send_signal(signal.SIGTERM)
        assert nodes["newcomer"].wait(SECONDS) == 0
        nodes["newcomer"] = subprocess.Popen([*command, "newcomer"])  # it remembers where it belongs
        wait_for(lambda: train(config, "newcomer"))
        left = walktalk("leave", "ca-1", "--config", str(config))
        assert (left.returncode, left.stdout) == (0, "ca-1: leaves for good\n")
        assert nodes["ca-1"].wait(SECONDS) == 0
        again = walktalk("node", "--config", str(config), "--name", "ca-1")
        assert again.returncode == 2
        assert "has left the cluster for good" in again.stderr
        nodes["il-1"].kill()
        nodes["il-1"].wait(SECONDS)
        assert walktalk("leave", "il-1", "--config", str(config), "--seconds", "2").returncode == 1
        assert walktalk("leave", "il-1", "--config", str(config), "--dead").returncode == 0
        wait_for(lambda: set(asked(config)) == {"ca-2", "newcomer"})
        found = json.loads(walktalk("theory", "--config", str(config), "--json").stdout)
        assert found["nodes"] == 2
        collected = walktalk("collect", "--config", str(config), "--out", str(tmp_path / "out"))
        assert collected.returncode == 0, collected.stderr
        facts = json.loads((tmp_path / "out" / "summary.json").read_text())["cluster"]
        assert [node["name"] for node in facts["nodes"]] == ["ca-1", "ca-2", "il-1", "newcomer"]
        assert set(facts["changes"]["left"]) == {"ca-1", "il-1"}
        assert walktalk("stop", "--config", str(config)).stdout.startswith("2 of 2 nodes leave")
    finally:
        for node in nodes.values():
            node.kill()


def train(config: Path, *names: str) -> bool:
    """Whether these nodes answer and have trained."""
    answers = asked(config)
    return all((answers.get(name) or {"iterations": 0})["iterations"] > 3 for name in names)


def asked(config: Path) -> dict[str, Any]:
    """What nodes say; whether all are well does not matter."""
    said: dict[str, Any] = json.loads(walktalk("status", "--config", str(config), "--json").stdout or "{}")
    return said


def test_one_that_was_let_go_while_it_was_dead_is_told_so_and_can_join_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It came back from its checkpoint, trained alone, and nobody told it; `--join` was refused."""
    with crowd(tmp_path, AsyncGossip(patience=0.5), complete(3)) as made:
        dead, first = made.nodes["n1"], made.nodes["n0"]
        dead.leave()
        made.threads["n1"].join(SECONDS)
        facts, place = dead.neighbours.facts, made.cluster.nodes["n1"]
        fresh = made.cluster.roster(made.graph)
        assert not was_let_go_quietly(made.cluster, "n1", place, facts, fresh)
        assert "wants to join" not in caplog.text  # it asked at its start, as all do
        roster = first.members.roster
        assert roster is not None
        first.events.put(lambda: first.members.merge([roster.next("n1", Standing.LEFT, by="operator")]))
        wait_for(lambda: roster.standing("n1") is Standing.LEFT)
        assert was_let_go(made.cluster, "n1", place, facts, fresh)
        assert fresh.standing("n1") is Standing.MEMBER  # what it was told is not yet what it knows
        seat = find_seat(made.cluster, made.graph, "n1", False, JoinRequest("n0"), None)
        assert seat.joins == JoinRequest("n0")
        again = made.knocks("n1", contact="n0")
        wait_for(lambda: done(again) > 3 and 1 in first.state.alive)
        assert roster.standing("n1") is Standing.MEMBER


def was_let_go_quietly(*asked: Any) -> bool:
    """Whether it was; one that belongs is refused, since it need not join."""
    try:
        return was_let_go(*asked)
    except UnavailableError:
        return False


def test_a_node_that_fails_says_why(tmp_path: Path) -> None:
    with lonely_node(tmp_path) as node:
        node.fail(SpecError("it has left the cluster for good"))
        node.events.get_nowait()()
        assert isinstance(node.state.failure, SpecError)
