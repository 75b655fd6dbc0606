"""One that can only dial out joins a cluster whose nodes can only be met at the relay."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.peers.test_relay import relaying
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.graphs import complete, cycle
from walktalk.protocols import AsyncGossip, NetworkView
from walktalk.runtimes.peers import (
    Cluster,
    JoinRequest,
    Node,
    Place,
    Roster,
    Standing,
    as_text,
    credentials,
    free_ports,
    make_certificates,
    make_cluster,
)
from walktalk.runtimes.peers.identity.certificates import Credentials
from walktalk.runtimes.peers.operations.joining import Door
from walktalk.runtimes.peers.relay.tunnels import Guest, RelayPlace, Tunnels
from walktalk.runtimes.peers.wire.session import JOIN, Endpoint, close_session, open_session
from walktalk.runtimes.simulator import all_network_views
from walktalk.studies.peers.node_job import find_seat
from walktalk.testing.cluster import SECONDS, Crowd, crowd, done, wait_for


def calls(node: Node) -> list[str]:
    assert node.link.connections.tunnels is not None
    return list(node.link.connections.tunnels.status()["calls"])


def restart(made: Crowd, name: str) -> Node:
    """With what it remembers of who belongs."""
    before = made.nodes[name]
    before.leave()
    made.threads[name].join(SECONDS)
    roster = before.setup.roster
    assert roster is not None
    cluster = made.cluster.with_joined(roster.entries.values())
    own = Place.model_validate({"address": before.setup.endpoint.listen, "reachable": False})
    cluster = cluster.model_copy(update={"nodes": {**cluster.nodes, name: own}})
    around = NetworkView(roster.number(name), made.graph.nodes, (), ())
    if name in made.cluster.nodes:
        around = all_network_views(made.graph)[roster.number(name)]
    return made.start(name, replace(made.setup(name, roster, around, cluster), rejoin=True))


def test_one_that_only_dials_out_joins_comes_back_and_leaves_through_the_relay(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", {"relay": []})
    with relaying(credentials(tmp_path / "certs", "relay")) as relay:
        at = f"127.0.0.1:{relay.port}"
        with crowd(tmp_path, AsyncGossip(patience=0.5), complete(2), certified=True, relay=at) as made:
            new = made.knocks("newcomer", contact="relay")
            wait_for(lambda: done(new) > 5 and len(new.state.alive) == 2)
            wait_for(lambda: relay.joined == 3)  # every pair of the three, and nobody knocks any more
            assert new.setup.roster is not None
            assert new.setup.roster.entries["newcomer"].address == ""
            assert calls(made.nodes["n0"]) == ["n1", "newcomer"]
            assert calls(new) == []  # who was there before calls

            again, before = restart(made, "newcomer"), done(new)  # its neighbours call until it is there
            wait_for(lambda: done(again) > before + 3 and len(again.state.alive) == 2)
            first = restart(made, "n0")  # it remembers whom to call
            wait_for(lambda: len(first.state.alive) == 2 and len(again.state.alive) == 2)

            again.leave_for_good()
            made.threads["newcomer"].join(SECONDS)
            wait_for(lambda: set(first.link.endpoint.neighbours) == {"n1"})
            assert first.setup.roster is not None
            assert first.setup.roster.standing("newcomer") is Standing.LEFT


def behind_a_relay(at: str = "hub.example:7446", certificates: Path | None = None) -> Cluster:
    """Four in a circle; the last is in the open."""
    nodes = {name: {"reachable": False} for name in ("a", "b", "c")} | {"d": {"address": "10.0.0.4:7447"}}
    return make_cluster({"relay": at, "nodes": nodes, "certificates": certificates})


def joined(roster: Roster, name: str, address: str, *neighbours: str) -> None:
    rank = roster.next_rank()
    roster.join([roster.next(name, Standing.MEMBER, address=address, neighbours=neighbours, rank=rank)])


def test_who_calls_whom_of_those_that_became_neighbours_since() -> None:
    cluster, graph = behind_a_relay(), cycle(4)
    roster = cluster.roster(graph)
    joined(roster, "closed", "", "a", "d")
    joined(roster, "open", "10.0.0.9:7447", "a", "d", "closed")
    roster.join([roster.next("c", Standing.LEFT)])  # those that it held together may be neighbours now
    cluster = cluster.with_joined(roster.entries.values())
    places = {name: cluster.endpoint(name, graph, roster) for name in cluster.nodes if name != "c"}
    for name, place in places.items():
        assert place.relay is not None
        for other in place.neighbours:
            ways = {
                (one, two, way)
                for one, two in ((name, other), (other, name))
                for way, found in (
                    ("relay", two in places[one].relay.calls),  # type: ignore[union-attr]
                    ("straight", cluster.nodes[two].address in places[one].connect),
                )
                if found
            }
            (way,) = ways  # one of the two connects, and in one way
            if "closed" in (name, other) or {name, other} == {"a", "b"}:
                assert way[2] == ("straight" if way[1] == "open" else "relay")
                assert way[1] != "a"
            else:
                assert way[2] == "straight"
    assert places["a"].relay is not None
    assert set(places["a"].relay.calls) == {"b", "closed"}
    # The same while they run.
    assert cluster.dialled("a", "b", roster) == ""
    assert cluster.dialled("a", "d", roster) == "10.0.0.4:7447"
    assert cluster.dialled("d", "a", roster) is None  # a connects by itself
    assert cluster.operator().relay is not None
    assert cluster.operator().relay.calls["closed"] == ""  # type: ignore[union-attr]


def test_without_a_relay_one_connects_where_the_other_says_or_the_file_does() -> None:
    cluster = make_cluster({"nodes": {"a": {"address": "10.0.0.1:7447"}, "b": {}, "c": {"address": "10.0.0.3:7447"}}})
    roster = cluster.roster(cycle(3))
    joined(roster, "silent", "", "a")
    joined(roster, "open", "10.0.0.9:7447", "a")
    joined(roster, "c", "10.0.0.33:7447", "a", "b")  # left, and came again elsewhere
    found = {other: cluster.dialled("a", other, roster) for other in ("b", "c", "silent", "open")}
    assert found == {"b": None, "c": "10.0.0.33:7447", "silent": None, "open": "10.0.0.9:7447"}
    assert cluster.dialled("b", "a", roster) == "10.0.0.1:7447"


def test_one_that_does_not_say_where_it_is_reached_is_met_at_the_relay_and_tells_no_address(tmp_path: Path) -> None:
    cluster = behind_a_relay().model_copy(update={"folder": tmp_path})
    seat = find_seat(cluster, cycle(4), "e", False, JoinRequest("relay"), None)
    assert seat.place.has_port  # its own tunnels bring there who calls it
    assert cluster.told(seat.place) == ""
    joined(seat.roster, "e", "", "a", "b")
    seat.remember()
    (seat.folder / "roster.json").write_text(as_text(seat.roster.entries))
    host, _, port = seat.place.address.partition(":")
    with socket.create_server((host, int(port))):  # a port that it does not get again
        again = find_seat(cluster, cycle(4), "e", True, None, None)
    assert again.joins is None  # it has not moved, whichever port it has
    assert again.place.address != seat.place.address
    assert find_seat(cluster, cycle(4), "e", True, None, Place(address="10.0.0.5:7447")).joins == JoinRequest()
    listening = find_seat(cluster, cycle(4), "f", False, JoinRequest("a"), Place(listen="0.0.0.0:7447"))
    assert cluster.told(listening.place) == ""
    straight = find_seat(cluster, cycle(4), "f", False, JoinRequest("a"), Place(address="10.0.0.5:7447"))
    assert cluster.told(straight.place) == "10.0.0.5:7447"


def test_where_nobody_opens_at_the_relay_it_is_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walktalk.runtimes.peers.operations.joining.PATIENCE", 0.5)
    with relaying() as relay:
        cluster, place = behind_a_relay(f"127.0.0.1:{relay.port}"), Place(reachable=False)
        for contact in ("b", "relay", cluster.relay, ""):
            with Door(cluster, "e", place, contact, None) as door:
                assert set(door.addresses) == ({"b"} if contact == "b" else {"a", "b", "c", "d"})
                with pytest.raises(UnavailableError, match=r"e: nobody opens: it is not at the relay 127.0.0.1:"):
                    door.ask({"name": "e"})
    with pytest.raises(SpecError, match="'relay' is no node of the file"):
        Door(cluster.model_copy(update={"relay": ""}), "e", place, "relay", None)


@contextmanager
def one_that_calls_itself_b(at: str, files: Credentials, really: str) -> Iterator[None]:
    """It listens, is at the relay under the name in its certificate, and opens to whoever knocks at b."""
    place = Endpoint("walktalk", "b", 1, f"127.0.0.1:{free_ports(1)[0]}", {}, credentials=files)
    tunnels = Tunnels(RelayPlace(at), Guest("walktalk", really, files, place.listen))
    session = open_session(place)
    door = session.declare_queryable(
        place.key("b", "*", JOIN), lambda query: query.reply(query.key_expr, b'{"roster": [], "there": []}')
    )
    try:
        wait_for(lambda: tunnels.connected)
        yield
    finally:
        del door
        close_session(session, SECONDS)
        tunnels.close()


@pytest.mark.parametrize("really", ["b", "a"])
def test_who_opens_at_the_relay_must_have_the_certificate_of_its_name(
    really: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay that lies, and joins the one that knocks with another member, does not bring it in."""
    make_certificates(tmp_path, {name: [] for name in ("a", "b", "e", "relay")})
    files = {name: credentials(tmp_path, name) for name in ("a", "b", "e", "relay")}
    monkeypatch.setattr("walktalk.runtimes.peers.operations.joining.PATIENCE", 10.0 if really == "b" else 2.0)
    with relaying(files["relay"]) as relay:
        at = f"127.0.0.1:{relay.port}"
        with one_that_calls_itself_b(at, files[really], really):
            relay._guests["walktalk", "b"] = relay._guests["walktalk", really]
            with Door(behind_a_relay(at, tmp_path), "e", Place(reachable=False), "b", files["e"]) as door:
                if really == "b":
                    assert door.ask({"name": "e"}) == {"roster": [], "there": []}
                else:
                    with pytest.raises(UnavailableError, match="but does not answer"):
                        door.ask({"name": "e"})
