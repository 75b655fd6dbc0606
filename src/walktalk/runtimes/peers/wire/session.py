"""A Zenoh session of one node: who listens where, who connects to whom, how it is tuned, and who may say what.

Peer mode, no router, no scouting on the network: a node connects to its neighbours in the graph and to nobody else, so
traffic flows along edges only. Of two neighbours the one with the lower number connects, and keeps trying for ever: a
node that comes back is found again, whichever of the two it was. Neighbours that cannot reach each other meet at
a relay, of which Zenoh sees a port on this machine (`tunnels`).

Keys: `walktalk/CLUSTER/TO/FROM/CHANNEL`. With certificates every node lets a neighbour write only under its own FROM,
which Zenoh compares with the common name of the certificate: a name that does not match is not heard.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zenoh

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers.identity.certificates import ALIVE, OPERATOR, Credentials, Revocations
from walktalk.runtimes.peers.relay.streams import LARGEST, SMALLEST, first_size
from walktalk.runtimes.peers.relay.tunnels import Guest, RelayPlace, Tunnels

os.environ.setdefault("ZENOH_RUNTIME", "(rx: (worker_threads: 8), net: (worker_threads: 4))")
# Before Zenoh starts its threads. Few of them receive, and one waits for ten seconds where a connection to a node that
# was cut off is closed (its socket lingers): links to healthy neighbours stood still meanwhile.

try:
    import zenoh
except ImportError as error:  # the extra is not installed
    raise UnavailableError("real peers need Zenoh; install it with `pip install walktalk[peers]`") from error

MODELS, CONTROL, ACKS = "models", "control", "acks"
STATUS, STOP, RECORDS, REVOKED = "status", "stop", "records", "revoked"
JOIN, LEAVE, ROSTER, LOOK = "join", "leave", "roster", "look"
LARGEST_NORM = 100.0
"""Times the usual norm that a model from a neighbour may have. Models grow by a few times while they are trained; what
is sent to do harm is larger."""

CLOSING_LINE = 5.0  # seconds until a line is closed
PIECE = 512 * 1024  # bytes of a file in one answer, as a chunk of a model


@dataclass(frozen=True)
class Tuning:
    """The transport's numbers, each with its reason. Measured by `benchmarks/hop.py`."""

    opening: float = 10.0  # seconds until a connection must be open; a session that closes waits for it, too
    lease: float = 10.0  # seconds of silence (a hung process, a cut cable) until a connection counts as broken
    wait_before_close: float = 60.0  # a full queue may wait that long; Zenoh's 5 s would cut slow links off
    socket_buffer: int = LARGEST  # for what is received; what is sent has what fits the link (`streams`)
    receive_buffer: int = 1 << 20  # Zenoh's 64 KiB makes a system call for every batch
    queue: int = 16  # batches of 64 KiB in a priority's queue, the most that Zenoh allows; 2 stall the sender


@dataclass(frozen=True)
class Endpoint:
    """The place of one node in the cluster: where it listens, whom it talks to, and its certificate."""

    cluster: str
    name: str
    number: int
    listen: str = ""  # "host:port"; "" for the operator, who only connects
    neighbours: Mapping[str, int] = field(default_factory=dict)  # name -> number, in the graph
    connect: tuple[str, ...] = ()  # addresses of those that this one connects to
    credentials: Credentials | None = None  # None: no encryption, anyone who reaches the port may join
    tuning: Tuning = Tuning()
    places: Mapping[str, str] = field(default_factory=dict)  # name -> address of neighbours, where one is known
    relay: RelayPlace | None = None  # where those meet that can only dial out
    admits: tuple[str, ...] = ()  # others that may become neighbours, and connect then

    def key(self, to: str, sender: str, channel: str) -> str:
        """The key under which `sender` writes to `to`."""
        return f"walktalk/{self.cluster}/{to}/{sender}/{channel}"

    def alive(self, name: str) -> str:
        """The key of the token that says that a node lives."""
        return f"walktalk/{self.cluster}/{ALIVE}/{name}"


def open_tunnels(endpoint: Endpoint) -> Tunnels | None:
    """Open the way to the relay, for a node or the operator; None where the cluster has no relay."""
    if endpoint.relay is None:
        return None
    return Tunnels(endpoint.relay, Guest(endpoint.cluster, endpoint.name, endpoint.credentials, endpoint.listen))


def open_session(endpoint: Endpoint, tunnels: Iterable[str] = ()) -> zenoh.Session:
    """Listen and begin to connect; returns before the neighbours are there.

    - `tunnels`: addresses on this machine behind which those are that are met at the relay.
    """
    try:
        return zenoh.open(_config(endpoint, tunnels))
    except zenoh.ZError as error:
        where = f"listen on {endpoint.listen}" if endpoint.listen else "connect"
        raise UnavailableError(f"{endpoint.name}: cannot {where}: {_in_words(error)}") from error


def close_session(session: zenoh.Session, seconds: float) -> bool:
    """Close a session, and wait for that at most so long; whether it is closed.

    Zenoh waits for connections that are being opened, and for what is still to be sent; that goes on in a thread, so
    the process must be ended by force.
    """

    def close() -> None:
        with suppress(zenoh.ZError):  # on a machine without time: Zenoh gives up by itself after ten seconds
            session.close()  # type: ignore[no-untyped-call]

    closing = threading.Thread(target=close, name="closing", daemon=True)
    closing.start()
    closing.join(seconds)
    return not closing.is_alive()


def _in_words(error: Exception) -> str:
    """What Zenoh says, without where in its source it says so."""
    said = " ".join(str(error).split())
    for known, words in _REASONS.items():
        if known in said:
            return words
    return re.sub(r" at /\S+\.rs:\d+\.?", "", said)


_REASONS = {
    "Address already in use": "the port is taken; is the node running already?",
    "assign requested address": "this machine does not have that address; give the node a `listen`, e.g. 0.0.0.0:7447",
    "failed to lookup": "there is no host of that name",
    "invalid port": "there is no such port",
}


def _config(endpoint: Endpoint, tunnels: Iterable[str]) -> zenoh.Config:
    config = zenoh.Config()
    for key, value in settings(endpoint, tunnels).items():
        config.insert_json5(key, json.dumps(value))
    return config


def settings(endpoint: Endpoint, tunnels: Iterable[str] = ()) -> dict[str, Any]:
    """Zenoh's configuration keys and what they are set to."""
    kind = "tls" if endpoint.credentials is not None else "tcp"
    tuning = endpoint.tuning
    # The certificate at the other end of a tunnel is not for this machine's address, so that is not compared; whose it
    # is, access control compares, as everywhere.
    elsewhere = "#verify_name_on_connect=false" if kind == "tls" else ""
    connect = [*endpoint.connect, *(address + elsewhere for address in tunnels)]
    values: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": [f"{kind}/{endpoint.listen}"] if endpoint.listen else [],
        "listen/exit_on_failure": True,
        "connect/endpoints": [f"{kind}/{address}" for address in connect],
        "connect/timeout_ms": -1,  # keep trying for ever, in the background
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 1.5},
        "open/return_conditions/connect_scouted": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,  # it would connect everybody with everybody
        "adminspace/enabled": False,
        "transport/shared_memory/enabled": False,  # it would bypass the network, and hide a slow link in a test
        "transport/link/protocols": [kind],
        "transport/unicast/open_timeout": int(tuning.opening * 1e3),
        "transport/link/tx/lease": int(tuning.lease * 1e3),
        "transport/link/tx/queue/congestion_control/block/wait_before_close": int(tuning.wait_before_close * 1e6),
        "transport/link/tx/queue/batching/enabled": False,  # it holds the last piece of a model back for a millisecond
        "transport/link/rx/buffer_size": tuning.receive_buffer,
        "transport/link/rx/max_message_size": 4 << 20,  # no chunk is larger: a stranger cannot fill the memory
        f"transport/link/{kind}/so_sndbuf": _send_buffer(endpoint),
        f"transport/link/{kind}/so_rcvbuf": tuning.socket_buffer,
    }
    for queue in ("data", "interactive_high", "real_time"):
        values[f"transport/link/tx/queue/size/{queue}"] = tuning.queue
    if endpoint.credentials is not None:
        values |= _mutual_tls(endpoint.credentials)
        if endpoint.neighbours or endpoint.listen:  # one that only asks to join takes nothing in but the answer
            values["access_control"] = _permissions(endpoint)
    return values


def _send_buffer(endpoint: Endpoint) -> int:
    """Bytes to begin with; a tunnel's connection is this machine's own, but what waits in it waits for a slow link."""
    if endpoint.relay is not None:
        return SMALLEST // 2
    return first_size(endpoint.listen) if endpoint.listen else endpoint.tuning.socket_buffer


def _mutual_tls(files: Credentials) -> dict[str, Any]:
    where = "transport/link/tls/"
    return {
        where + "root_ca_certificate": str(files.authority),
        where + "enable_mtls": True,
        where + "verify_name_on_connect": True,
        where + "listen_certificate": str(files.certificate),
        where + "listen_private_key": str(files.key),
        where + "connect_certificate": str(files.certificate),
        where + "connect_private_key": str(files.key),
        where + "close_link_on_expiration": False,  # it lives as long as both sides want it; who is to go is revoked
    }


_DECLARATIONS = ("declare_subscriber", "declare_queryable", "declare_liveliness_subscriber", "liveliness_query")
_EVERYTHING = (*_DECLARATIONS, "put", "delete", "query", "reply", "liveliness_token")


def _permissions(endpoint: Endpoint) -> dict[str, Any]:
    """Zenoh's access control: deny, but for what a neighbour says under its own name, and what the operator asks."""
    rules = [_rule("out", "egress", _EVERYTHING, ["walktalk/**"])]
    revocations = endpoint.credentials.revocations if endpoint.credentials is not None else Revocations()
    subjects, policies = [], []
    for name in dict.fromkeys((*endpoint.neighbours, *endpoint.admits, OPERATOR)):
        rules += _rules_for(endpoint, name)
        subjects.append({"id": name, "cert_common_names": revocations.accepted(name)})
        policies.append({"rules": ["out", f"say/{name}", f"live/{name}", f"hear/{name}"], "subjects": [name]})
    door = endpoint.key(endpoint.name, "*", JOIN)  # where anybody may knock whom the authority knows
    rules += [
        _rule("knock", "ingress", ("query",), [door]),
        _rule("door", "egress", ("declare_queryable", "reply"), [door]),
    ]
    subjects.append({"id": "anybody"})
    policies.append({"rules": ["knock", "door"], "subjects": ["anybody"]})
    return {"enabled": True, "default_permission": "deny", "rules": rules, "subjects": subjects, "policies": policies}


def _rules_for(endpoint: Endpoint, name: str) -> list[dict[str, Any]]:
    """What may come from this name: its own words, its own token, and its wish to hear what is meant for it."""
    own = endpoint.key(endpoint.name, name, "*")
    inbox = f"walktalk/{endpoint.cluster}/{name}/**"
    tokens = f"walktalk/{endpoint.cluster}/{ALIVE}/*"
    return [
        _rule(f"say/{name}", "ingress", ("put", "query"), [own]),
        _rule(f"live/{name}", "ingress", ("liveliness_token",), [endpoint.alive(name)]),
        _rule(f"hear/{name}", "ingress", (*_DECLARATIONS, "reply"), [inbox, tokens]),
    ]


def _rule(name: str, flow: str, messages: Iterable[str], keys: list[str]) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": [flow], "messages": list(messages), "key_exprs": keys}


class Line:
    """One Zenoh session of a node, and what was declared in it."""

    def __init__(self, session: zenoh.Session, admitted: Iterable[str], address: str = "") -> None:
        """
        - `session`: open already.
        - `admitted`: names whose words it takes in.
        - `address`: where the one neighbour of such a line is; "": at the relay.
        """
        self.session, self.admitted, self.address = session, frozenset(admitted), address
        self.held: list[Any] = []  # what is declared: kept, or Zenoh would withdraw it

    def declare(self, endpoint: Endpoint, ears: Mapping[str, Callable[[zenoh.Sample], None]], token: Any) -> None:
        """Announce that this node is alive, and listen to others.

        - `ears`: by channel, what is called with what comes on it.
        - `token`: called with tokens that come and go.
        """
        own, session = endpoint.name, self.session
        for channel, callback in ears.items():
            self.held.append(session.declare_subscriber(endpoint.key(own, "*", channel), at_once(callback)))
        self.held.append(session.liveliness().declare_token(endpoint.alive(own)))
        tokens = session.liveliness().declare_subscriber(endpoint.alive("*"), at_once(token), history=True)
        self.held.append(tokens)

    def undeclare(self) -> None:
        """Withdraw what was declared: the session stays open, so forgetting it is not enough."""
        for one in self.held:
            with suppress(zenoh.ZError):
                one.undeclare()
        self.held.clear()

    def close(self) -> None:
        """Close the session of a line, which may take some seconds."""
        self.held.clear()
        close_session(self.session, CLOSING_LINE)


def at_once(callback: Callable[[zenoh.Sample], None]) -> zenoh.handlers.Callback[zenoh.Sample]:
    """A callback that runs in Zenoh's own thread: one queue and one change of thread less for every chunk."""
    return zenoh.handlers.Callback(callback, indirect=False)
