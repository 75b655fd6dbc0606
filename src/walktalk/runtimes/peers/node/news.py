"""A node's log: what happens seldom and matters, in words.

For the log of a node that waited in vain, also why a neighbour is not there, as far as one can see from here. Zenoh
tries to connect for ever and does not say what comes in between, so the same way is gone once by hand: the address, the
connection, and with certificates the handshake in both directions.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from cryptography import x509

from walktalk.runtimes.peers.identity.certificates import Credentials, bearer, common_name
from walktalk.runtimes.peers.relay.tunnels import Guest, why_not_met
from walktalk.runtimes.peers.wire.session import Endpoint

log = logging.getLogger(__name__)

PATIENCE = 3.0  # seconds for each step in which a neighbour is looked for
UNKNOWN_PLACE = "it has not come, and its port is not known here"
SILENT = (
    "it is reached, but does not answer; is it of another cluster, does it refuse this node's certificate, "
    "or does only one of the two use certificates? If this node has moved, its neighbours' files must say where to"
)

SELDOM = 60.0  # seconds between two lines about the same walk that is handed on
LINES = {
    "rejoined": "comes back from its checkpoint",
    "lost": "{peer} is gone",
    "found": "{peer} is there",
    "silent": "{peer} is silent for too long",
    "suspected": "nothing is heard of the aggregator, {peer}",
    "elected": "aggregates from now on, in term {number}",
    "stepped_down": "aggregates no more: another does, in a higher term",
    "restarted": "walk {walk} was lost and is started again",
    "joined": "{peer} joins",
    "leaves_for_good": "{peer} leaves for good",
    "left_for_good": "{peer} has left for good",
    "handed_on": "hands walk {walk} on",
}
"""Events that are a line in the log, by the trace's own words."""


def why_absent(name: str, address: str, files: Credentials | None) -> str:
    """Find out why a neighbour is not there, in one line; takes some seconds at most."""
    host, _, port = address.rpartition(":")
    if not host:
        return UNKNOWN_PLACE
    try:
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    except OSError as error:
        return f"{address} cannot be reached: {error.strerror or error}"
    with connection:
        return SILENT if files is None else _handshake(name, host, connection, files)


def is_running(name: str, address: str, files: Credentials) -> bool:
    """Whether whoever listens at an address has the certificate of this node."""
    return why_absent(name, address, files) == SILENT


def _handshake(name: str, host: str, connection: socket.socket, files: Credentials) -> str:
    try:
        certificate = _certificate(host, connection, files)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is of another authority, for another address, or out of date ({error.verify_message})"
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason:
            return f"it refuses this node's certificate ({reason.rpartition('alert ')[2]})"
        return f"it does not speak TLS ({reason}); has it no certificates?"
    except OSError as error:
        return f"it does not speak TLS ({error}); has it no certificates?"
    holder = common_name(certificate) if certificate is not None else ""
    if bearer(holder) != name:
        return f"whoever listens there has the certificate of {holder!r}"
    since = files.revocations.since(certificate) if certificate is not None else None
    return SILENT if since is None else f"its certificate was revoked on {since:%Y-%m-%d}"


def _certificate(host: str, connection: socket.socket, files: Credentials) -> x509.Certificate | None:
    """The certificate of the other side, if both sides accept each other's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    with context.wrap_socket(connection, server_hostname=host) as channel:
        form = channel.getpeercert(binary_form=True)
        with suppress(TimeoutError):
            channel.recv(1)  # the other side judges our certificate after its own part of the handshake is done
    return x509.load_der_x509_certificate(form) if form else None


class News:
    """Writes a node's log: a line for what happens seldom and matters."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._names = {number: name for name, number in endpoint.neighbours.items()}
        self._handed_at: dict[int, float] = {}  # by walk, when the log has told last that it was handed on

    def change(self, endpoint: Endpoint, names: Mapping[int, str]) -> None:
        """The node has other neighbours, and there are other names."""
        self._endpoint, self._names = endpoint, dict(names)

    def say(self, line: str, level: int = logging.INFO) -> None:
        """Write a line into the log."""
        log.log(level, "%s: %s", self._endpoint.name, line)

    def event(self, event: str, peer: int, walk: int, number: int) -> None:
        """An event of the trace has happened; most are of no interest here."""
        if event == "handed_on":  # where no script trains for days, each walk comes many times a minute
            if time.monotonic() - self._handed_at.get(walk, -math.inf) < SELDOM:
                return
            self._handed_at[walk] = time.monotonic()
        if event in LINES and not (event == "joined" and peer == self._endpoint.number):
            self.say(LINES[event].format(peer=self.name_of(peer), walk=walk, number=number))

    def name_of(self, peer: int) -> str:
        """The name of a node, where it is a neighbour."""
        return self._names.get(peer, f"node {peer}" if peer >= 0 else "whoever it is")

    def stranger(self, peer: int, why: str) -> None:
        """Log that a neighbour is not listened to."""
        what = "walktalk" if why.startswith("version ") else "study"
        log.warning("%s: refuses %s, whose %s is another: %s", self._endpoint.name, self.name_of(peer), what, why)

    def absent(self, peers: Iterable[int], level: int) -> None:
        """Find out why these did not come, and log it. Asking takes seconds, so a thread does."""
        missing = {self._names[peer]: self._endpoint.places.get(self._names[peer], "") for peer in sorted(peers)}
        if missing:
            threading.Thread(target=self._explain, args=(missing, level), name="absent", daemon=True).start()

    def _explain(self, missing: Mapping[str, str], level: int) -> None:
        for name, address in missing.items():
            why = self._why(name, address)
            log.log(level, "%s: without %s: %s", self._endpoint.name, name, why)

    def _why(self, name: str, address: str) -> str:
        here = self._endpoint
        if here.relay is not None and not address:
            return why_not_met(here.relay, Guest(here.cluster, here.name, here.credentials), name)
        return why_absent(name, address, here.credentials)
