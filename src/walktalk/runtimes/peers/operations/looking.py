"""What one site asks another before a run: whether it is there, what it would train, how far away it is, and its clock.

A node that runs answers, and so does `walktalk doctor` while it waits for the others: sites can look at each other
before anybody trains. Only who has a certificate of the authority, and a name in the cluster, is answered. What is
said is no more than neighbours tell each other anyway: versions, differences of the study, the schema of the data.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import zenoh

from walktalk.core.errors import UnavailableError
from walktalk.core.untrusted import shown
from walktalk.core.wall_clock import wall_seconds
from walktalk.graphs import Graph
from walktalk.learning import Schema, heard_schema
from walktalk.runtimes.peers.identity.editions import MOST_WORDS, WEIGHED, Edition, Sight, heard_edition, look_answer
from walktalk.runtimes.peers.operations.cluster import Cluster
from walktalk.runtimes.peers.operations.joining import Door
from walktalk.runtimes.peers.relay.streams import PATIENCE, RelayError, encode, hear, host_and_port
from walktalk.runtimes.peers.relay.tunnels import Guest, RelayPlace, Tunnels, come, doors, in_words
from walktalk.runtimes.peers.wire.session import LOOK, close_session, open_session, open_tunnels

TRIES = 3  # small questions, of which the quickest tells the delay
CLOSING = 5.0


@dataclass(frozen=True)
class Seen:
    """What was seen of another site."""

    walktalk: str
    delay: float  # seconds to it and back
    bandwidth: float  # bytes in a second, there and back together
    ahead: float  # seconds by which its clock is ahead of this machine's
    differs: list[str]  # what of the study is not the same
    schema: Schema | None
    edition: Edition | None


def look_at(cluster: Cluster, name: str, other: str, facts: Mapping[str, Any], seconds: float) -> Seen:
    """Look at another site; `UnavailableError`, with the reason as far as it is seen from here, where it is not there.

    Args:
        cluster: as in the file.
        name: of this site.
        other: of the one that is looked at.
        facts: of this site's study.
        seconds: how long it may take to answer at first.
    """
    files = cluster.own_credentials(name)
    with Door(cluster, name, cluster.nodes[name], other, files, LOOK) as door:
        first = door.ask({"facts": dict(facts)}, seconds)
        delay, ahead = float("inf"), 0.0
        for _ in range(TRIES):
            began, wall = time.monotonic(), wall_seconds()
            answer = door.ask({}, seconds)
            took = time.monotonic() - began
            if took < delay:
                delay, ahead = took, float(answer["time"]) - wall - took / 2
        began = time.monotonic()
        door.ask({"bytes": WEIGHED, "padding": " " * WEIGHED}, 10 * seconds)
        took = max(time.monotonic() - began - delay, 1e-6)
    authority = None if files is None else files.authority
    kit = first.get("kit")
    return Seen(
        shown(first.get("walktalk", "")),
        delay,
        2 * WEIGHED / took,
        ahead,
        [shown(word) for word in first.get("differs", [])[:MOST_WORDS]],
        heard_schema(first.get("schema")),
        heard_edition(cluster.name, kit, authority) if isinstance(kit, dict) else None,
    )


@contextmanager
def being_looked_at(cluster: Cluster, name: str, graph: Graph, sight: Sight) -> Iterator[bool]:
    """Answer other sites in this node's place, as long as it does not run; gives whether that is possible here."""
    endpoint = cluster.endpoint(name, graph)
    try:
        tunnels = open_tunnels(endpoint)
        session = open_session(endpoint, doors(tunnels))
    except UnavailableError:  # the node runs, and answers itself
        yield False
        return
    key, answer = endpoint.key(name, "*", LOOK), look_answer(sight)

    def handle(query: zenoh.Query) -> None:
        try:
            said = "" if query.payload is None else query.payload.to_string()
            query.reply(query.key_expr, answer({"said": said} if said else {}))
        except Exception as error:  # whatever a stranger asks
            query.reply_err(shown(error))

    held = session.declare_queryable(key, handle)
    try:
        yield True
    finally:
        with suppress(zenoh.ZError):
            held.undeclare()  # type: ignore[no-untyped-call]
        close_session(session, CLOSING)
        if tunnels is not None:
            tunnels.close()


def neighbours_of(cluster: Cluster, name: str, graph: Graph) -> list[str]:
    """The names of the nodes that a node talks to."""
    return list(cluster.endpoint(name, graph).neighbours)


# -- the way through a relay ------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How far it is through a relay and back to this machine."""

    delay: float  # seconds of a word
    bandwidth: (
        float | None
    )  # bytes in a second, there and back together; None: the node is at the relay, and not disturbed


def way_through_relay(cluster: Cluster, name: str) -> Way:
    """Come to a cluster's relay as a node, and call oneself there; `UnavailableError` where it cannot be reached."""
    guest = Guest(cluster.name, name, cluster.own_credentials(name))
    try:
        with ThreadPoolExecutor(1) as pool:  # of its own: in a notebook this thread has a loop that runs
            delay, is_there = pool.submit(asyncio.run, _at_relay(cluster.relay, guest)).result()
        return Way(delay, None if is_there else _echoed(cluster.relay, guest))
    except (OSError, RelayError, asyncio.TimeoutError) as error:
        raise UnavailableError(f"the relay {cluster.relay} cannot be used from here: {in_words(error)}") from error


async def _at_relay(address: str, guest: Guest) -> tuple[float, bool]:
    """The seconds of a word to the relay and back, and whether this node is there."""
    reader, writer = await come(address, guest)
    try:
        delay, answer = float("inf"), dict[str, Any]()
        for number in range(1, TRIES + 1):
            began = time.monotonic()
            writer.write(encode(who=guest.name, id=number))
            answer = {}
            while answer.get("id") != number:
                answer = await hear(reader, PATIENCE)
            delay = min(delay, time.monotonic() - began)
        return delay, bool(answer.get("here"))
    finally:
        writer.close()


def _echoed(address: str, guest: Guest) -> float:
    """Bytes in a second to this machine through the relay and back again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        threading.Thread(target=_echo, args=(server,), name="echo", daemon=True).start()
        listens = Guest(guest.cluster, guest.name, guest.files, f"127.0.0.1:{server.getsockname()[1]}")
        tunnels = Tunnels(RelayPlace(address, {guest.name: ""}), listens)
        try:
            end = time.monotonic() + PATIENCE
            while not tunnels.connected and time.monotonic() < end:
                time.sleep(0.01)
            with socket.create_connection(host_and_port(tunnels.addresses[guest.name]), timeout=PATIENCE) as line:
                line.sendall(b"?")  # until it comes back, the way is being made
                if line.recv(1) != b"?":
                    raise RelayError("it passes nothing on")
                began = time.monotonic()
                threading.Thread(target=line.sendall, args=(bytes(WEIGHED),), daemon=True).start()
                left = WEIGHED
                while left and (piece := line.recv(left)):
                    left -= len(piece)
                if left:
                    raise RelayError("it breaks off")
                return 2 * WEIGHED / max(time.monotonic() - began, 1e-6)
        finally:
            tunnels.close()


def _echo(server: socket.socket) -> None:
    with suppress(OSError):
        line, _ = server.accept()
        with line:
            while piece := line.recv(64 * 1024):
                line.sendall(piece)
