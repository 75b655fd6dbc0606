"""Nodes that can only dial out meet at a relay, which passes on what it cannot read."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.peers.pair import SECONDS, WIDTH, Node, endpoints, free_port, meet
from tests.support.coroutines import finished
from walktalk.core.errors import SpecError
from walktalk.graphs import complete
from walktalk.protocols import Message
from walktalk.runtimes.peers import make_cluster
from walktalk.runtimes.peers.identity.authority import make_certificates, open_authority, revoke_certificates
from walktalk.runtimes.peers.identity.certificates import Credentials, credentials
from walktalk.runtimes.peers.relay.server import STRANGERS_AT_MOST, Relay
from walktalk.runtimes.peers.relay.streams import MAGIC, PATIENCE, RelayError, encode, hear, host_and_port, new_token
from walktalk.runtimes.peers.relay.tunnels import FIRST_WAIT, Guest, RelayPlace, Tunnels, come, why_not_met
from walktalk.runtimes.peers.wire.messages import Parcel


@contextmanager
def relaying(files: Credentials | None = None, port: int = 0) -> Iterator[Relay]:
    """A relay in a thread."""
    relay, loop = Relay(f"127.0.0.1:{port}", files), asyncio.new_event_loop()
    work = loop.create_task(relay.serve())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait({work})), daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(work.cancel)
        thread.join()
        loop.close()


@contextmanager
def two_behind(port: int, files: tuple[Credentials | None, Credentials | None] = (None, None)) -> Iterator[list[Node]]:
    """Two neighbours that know nothing of each other but the relay."""
    calls = ({"b": ""}, {})
    nodes = [Node(), Node()]
    for node, endpoint, called in zip(nodes, endpoints((free_port(), free_port()), files), calls, strict=True):
        node.open(replace(endpoint, connect=(), relay=RelayPlace(f"127.0.0.1:{port}", called))).start()
    try:
        yield nodes
    finally:
        for node in nodes:
            node.link.close()


def hop(one: Node, other: Node) -> None:
    payload = np.frombuffer(np.arange(WIDTH, dtype="<f4").tobytes(), dtype=np.uint8)
    one.link.send(Parcel(0, 1, Message("walk", walk=1), payload.size), payload)
    delivery = other.arrived.get(timeout=SECONDS)
    assert delivery.payload is not None
    np.testing.assert_array_equal(delivery.payload, payload)
    other.link.acknowledge(delivery)
    one.taken.get(timeout=SECONDS)


def test_two_that_only_dial_out_meet_and_find_each_other_again_when_the_relay_is_back(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": (), "relay": ()})
    files = [credentials(tmp_path, name) for name in ("a", "b", "relay")]
    with relaying(files[2]) as relay, two_behind(relay.port, (files[0], files[1])) as (a, b):
        meet(a, b)
        hop(a, b)
        assert a.link.traffic.sent_bytes == 64 + 4 * WIDTH  # a message counts once, whichever way it goes
    # The same nodes, but the relay dies under them.
    with relaying(files[2]) as relay:
        nodes = two_behind(relay.port, (files[0], files[1]))
        a, b = nodes.__enter__()
        meet(a, b)
    passed_on = relay.passed_on.total
    assert a.peers.get(timeout=SECONDS) == (1, False)
    assert b.peers.get(timeout=SECONDS) == (0, False)
    with relaying(files[2], relay.port) as again:
        meet(a, b)
        hop(a, b)
        nodes.__exit__(None, None, None)
    assert again.passed_on.total > 4 * WIDTH > passed_on
    assert again.joined == 0


@pytest.mark.parametrize(
    ("versions", "answer"),
    [
        ({"version": 1}, {"welcome": "relay"}),
        ({"version": 1, "speaks": [1, 2], "mood": [1]}, {"welcome": "relay"}),
        ({"version": 2, "speaks": [2, 3]}, {"refused": "version is 2 to 3 there and 1 here; upgrade this one"}),
        ({}, {"refused": "it does not say which versions it speaks"}),
    ],
)
def test_a_relay_and_its_guests_may_be_of_two_versions(versions: dict[str, object], answer: dict[str, str]) -> None:
    with relaying() as relay, socket.create_connection(("127.0.0.1", relay.port), SECONDS) as guest:
        guest.sendall(json.dumps({"cluster": "test", "name": "a", "listens": True, **versions}).encode() + b"\n")
        assert json.loads(guest.makefile().readline()) == answer


def test_a_relay_sees_no_word_of_what_it_passes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With certificates nodes encrypt from end to end; without them all of it can be read there."""
    seen = bytearray()

    async def spy(source: socket.socket, target: socket.socket, flow: object, there: bool) -> None:
        loop = asyncio.get_running_loop()
        while piece := await loop.sock_recv(source, 1 << 16):
            seen.extend(piece)
            await loop.sock_sendall(target, piece)

    make_certificates(tmp_path, {"a": (), "b": (), "relay": ()})
    monkeypatch.setattr("walktalk.runtimes.peers.relay.streams._pass_on", spy)
    for encrypted in (True, False):
        files = [credentials(tmp_path, name) if encrypted else None for name in ("a", "b", "relay")]
        with relaying(files[2]) as relay, two_behind(relay.port, (files[0], files[1])) as (a, b):
            meet(a, b)
            hop(a, b)
        model = np.arange(WIDTH, dtype="<f4").tobytes()
        assert (model[1000:1400] in bytes(seen)) is not encrypted
        assert (b"walktalk/test" in bytes(seen)) is not encrypted
        seen.clear()


def test_whoever_comes_to_a_relay_says_who_it_is_and_proves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificates(tmp_path / "ours", {"a": (), "b": (), "relay": ()})
    make_certificates(tmp_path / "theirs", {"a": ()})
    ours = {name: credentials(tmp_path / "ours", name) for name in ("a", "b", "relay")}
    theirs = credentials(tmp_path / "theirs", "a")

    def comes(address: str, guest: Guest) -> None:
        async def visit() -> None:
            (await come(address, guest))[1].close()

        finished(visit())

    with relaying(ours["relay"]) as relay:
        address = f"127.0.0.1:{relay.port}"
        comes(address, Guest("test", "a", ours["a"]))
        with pytest.raises(RelayError, match="made out to 'a', not to 'b'"):
            comes(address, Guest("test", "b", ours["a"]))
        with pytest.raises(ssl.SSLError):
            comes(address, Guest("test", "a", theirs))  # it does not trust the relay
        with pytest.raises((OSError, RelayError)):  # nor the relay it
            comes(address, Guest("test", "a", replace(theirs, authority=ours["a"].authority)))
        with pytest.raises((OSError, RelayError)):  # without a certificate
            comes(address, Guest("test", "a", None))
        with socket.create_connection(("127.0.0.1", relay.port)) as stranger:
            stranger.sendall(MAGIC + new_token().encode())
            assert stranger.recv(1) == b""  # a token that nobody was told
    with relaying(ours["b"]) as impostor, pytest.raises(RelayError, match="made out to 'b', not to 'relay'"):
        comes(f"127.0.0.1:{impostor.port}", Guest("test", "a", ours["a"]))
    assert "turns" in caplog.text


def test_a_relay_turns_out_whoever_is_revoked_and_what_it_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificates(tmp_path, {"a": (), "b": (), "relay": ()})
    site = tmp_path / "site"
    site.mkdir()
    for name in ("ca.pem", "a.pem", "a.key", "b.pem", "b.key"):  # where nobody brings the list
        (site / name).write_bytes((tmp_path / name).read_bytes())
    files = (credentials(site, "a"), credentials(site, "b"))
    with relaying(credentials(tmp_path, "relay")) as relay, two_behind(relay.port, files) as (a, b):
        meet(a, b)
        revoke_certificates(open_authority(tmp_path), "b")
        assert relay._renewal is not None
        for _ in range(2):
            relay._renewal.look()
        assert a.peers.get(timeout=SECONDS) == (1, False)
        said = why_not_met(RelayPlace(f"127.0.0.1:{relay.port}"), Guest("test", "b", files[1]), "a")
        assert "it refuses: the certificate of b was revoked on" in said
        assert "it is not at the relay" in why_not_met(
            RelayPlace(f"127.0.0.1:{relay.port}"), Guest("test", "a", files[0]), "b"
        )
    assert "relay: b of test must go: its certificate was revoked" in caplog.text


def test_certificates_are_renewed_on_all_three_and_nobody_is_lost(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": (), "b": (), "relay": ()})
    files = [credentials(tmp_path, name) for name in ("a", "b", "relay")]
    with relaying(files[2]) as relay, two_behind(relay.port, (files[0], files[1])) as (a, b):
        meet(a, b)
        make_certificates(tmp_path, {"a": (), "b": (), "relay": ()}, days=100, together=True)
        renewals = (relay._renewal, a.link.connections.renewal, b.link.connections.renewal)
        for renewal in renewals:
            assert renewal is not None
            for _ in range(2):
                renewal.look()
            assert renewal.outlook.days == 99
        hop(a, b)
        assert all(there for node in (a, b) for _, there in list(node.peers.queue))


def test_whoever_calls_one_that_goes_that_moment_need_not_wait() -> None:
    """It calls again at once, and finds it if it has come back."""

    async def call(address: str) -> bytes:
        _, called = await come(address, Guest("test", "b", None, "127.0.0.1:1"))
        reader, caller = await come(address, Guest("test", "a", None))
        caller.write(encode(dial="b", id=1))
        token = (await hear(reader, SECONDS))["token"]
        host, port = host_and_port(address)
        waiting, data = await asyncio.open_connection(host, port)
        data.write(MAGIC + token.encode())
        await data.drain()
        called.close()
        try:
            return await asyncio.wait_for(waiting.read(), PATIENCE / 2)
        finally:
            data.close()
            caller.close()

    with relaying() as relay:
        assert finished(call(f"127.0.0.1:{relay.port}")) == b""


def test_why_a_neighbour_is_not_met_is_said_also_where_a_loop_runs() -> None:
    async def in_a_notebook(place: RelayPlace) -> str:
        return why_not_met(place, Guest("test", "c", None), "a")

    with relaying() as relay, two_behind(relay.port) as nodes:
        meet(*nodes)
        place = RelayPlace(f"127.0.0.1:{relay.port}")
        assert "it is at the relay" in why_not_met(place, Guest("test", "c", None), "a")
        assert "it is at the relay" in finished(in_a_notebook(place))
        assert "it is not at the relay" in why_not_met(place, Guest("test", "a", None), "z")
        assert "it is not at the relay" in why_not_met(place, Guest("other", "a", None), "b")  # of another cluster
    nowhere = RelayPlace(f"127.0.0.1:{free_port()}")
    assert "which cannot be used from here: Connection refused" in why_not_met(nowhere, Guest("test", "a", None), "b")


def test_who_meets_whom_at_the_relay() -> None:
    content = {
        "relay": "hub.example:7446",
        "nodes": {
            "a": {"reachable": False, "site": "one"},
            "b": {"reachable": False, "site": "two"},
            "c": {"address": "10.0.0.3:7447", "site": "two"},
            "d": {"address": "10.0.0.4:7447", "reachable": False, "site": "two"},
            "e": {"address": "10.0.0.5"},
            "f": {"address": "10.0.0.5"},
        },
    }
    cluster, graph = make_cluster(content), complete(6)
    place = {name: cluster.endpoint(name, graph) for name in cluster.nodes}
    calls = {name: set(p.relay.calls) for name, p in place.items() if p.relay is not None}
    assert calls == {"a": {"b", "d", "e", "f"}, "b": {"e", "f"}, "c": set(), "d": {"e", "f"}, "e": set(), "f": set()}
    straight = {name: set(p.connect) for name, p in place.items()}
    c, d = "10.0.0.3:7447", "10.0.0.4:7447"
    assert straight == {"a": {c}, "b": {c, d}, "c": {d}, "d": set(), "e": {c}, "f": {c}}  # e and f share a machine
    for one in cluster.nodes:  # whoever is no neighbour at the relay is one otherwise, in one direction at least
        for other in set(cluster.nodes) - {one} - {"e", "f"}:
            ways = [other in calls[one], one in calls[other]]
            ways += [cluster.nodes[y].address in straight[x] for x, y in ((one, other), (other, one))]
            assert one in ("e", "f") or sum(ways) == 1, (one, other)
    operator = cluster.operator()
    assert operator.connect == ()
    assert operator.relay is not None
    assert operator.relay.calls == {"a": "", "b": "", "c": c, "d": "", "e": "", "f": ""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relay": ""}, "neither has a port that the other can connect to; give one a port, or name a `relay"),
        ({"relay": "hub"}, "relay: 'hub' is not possible; give host:port"),
        ({"nodes": {"relay": {}}}, "'relay' cannot be a node's name"),
    ],
)
def test_what_a_file_must_say_for_it(change: dict[str, object], message: str) -> None:
    content = {"relay": "hub:7446", "nodes": {"a": {"reachable": False}, "b": {"reachable": False}}} | change
    with pytest.raises(SpecError, match=message):
        make_cluster(content).endpoint("a", complete(2))


def test_a_relay_is_light() -> None:
    script = "import sys, walktalk.cli.app; from walktalk.runtimes.peers import Cluster, Relay; "
    script += "print([name for name in ('torch', 'pandas', 'sklearn', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_log_of_a_node_says_that_the_relay_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.INFO, "walktalk"), two_behind(port) as (a, b):
        wait_for(lambda: f"a: cannot come to the relay 127.0.0.1:{port}: Connection refused" in caplog.messages)
        with relaying(port=port):
            meet(a, b)
            assert f"a: is at the relay 127.0.0.1:{port}" in caplog.messages
            assert a.link.connections.tunnels is not None
            assert a.link.connections.tunnels.status()["connected"]


def test_two_of_one_name_do_not_throw_each_other_out_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "walktalk"), relaying() as relay:
        place, guest = RelayPlace(f"127.0.0.1:{relay.port}", {}), Guest("test", "a", None, listen="127.0.0.1:1")
        first = Tunnels(place, guest)
        wait_for(lambda: first.connected)
        second = Tunnels(place, guest)
        wait_for(lambda: second.connected and not first.connected)
        words_of_it = f"a: has lost the relay {place.address}: another has come there as a; stop one of the two"
        wait_for(lambda: words_of_it in caplog.messages)
        time.sleep(4 * FIRST_WAIT)  # it would have come again
        assert second.connected
        assert not first.connected
        first.close()
        second.close()


def wait_for(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("encrypted", [True, False])
def test_strangers_that_say_nothing_give_way_to_whoever_comes(encrypted: bool, tmp_path: Path) -> None:
    """A relay kept 0.3 MB for each, as many as came: thousands made a gigabyte of its 55 MB."""
    make_certificates(tmp_path, {"a": (), "b": (), "relay": ()})
    files = [credentials(tmp_path, name) if encrypted else None for name in ("a", "b", "relay")]
    with relaying(files[2]) as relay, ExitStack() as strangers:
        for _ in range(2 * STRANGERS_AT_MOST):
            strangers.enter_context(socket.create_connection(("127.0.0.1", relay.port))).send(b"\x16")
        with two_behind(relay.port, (files[0], files[1])) as (a, b):
            meet(a, b)
            hop(a, b)
        assert len(relay._strangers) <= STRANGERS_AT_MOST
