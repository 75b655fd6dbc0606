"""`checkup`: all that `walktalk doctor` looks at, and what it finds of peers and of a cluster's file."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

from walktalk.core.errors import UserError
from walktalk.testing.doctor.machine import Finding, data_sets, packages, python, room, torch_and_device


def checkup(folder: Path, cluster: Path | None = None) -> Iterator[Finding]:
    """Yields every finding of `walktalk doctor` as soon as it is known.

    Args:
        folder: Where results would be written.
        cluster: A cluster file, to look at its ports, nodes and certificates from this machine.
    """
    yield from python()
    yield from packages()
    found = list(torch_and_device())
    yield from found
    yield from room(folder)
    if found[0].state == "good":  # data and peers need torch
        yield from data_sets()
        yield from loopback()
        if cluster is not None:
            yield from cluster_file(cluster)


# -- whether nodes can talk on this machine; of a cluster, its ports, neighbours and certificates ----------------------

PATIENCE = 5.0  # seconds for a word to arrive, or for an address to answer
CLUSTER = "doctor"


def loopback() -> Iterator[Finding]:
    """Two Zenoh sessions of this process on 127.0.0.1, and a word from one to the other."""
    try:
        from walktalk.runtimes.peers import Endpoint, close_session, free_ports, open_session
    except (ImportError, UserError):
        return  # the extra is absent, which is said already
    try:
        (port,) = free_ports(1)
        began = time.monotonic()
        listens = open_session(Endpoint(CLUSTER, "a", 0, f"127.0.0.1:{port}", {"b": 1}))
        talks = open_session(Endpoint(CLUSTER, "b", 1, "", {"a": 0}, (f"127.0.0.1:{port}",)))
    except UserError as error:
        yield Finding("peers on loopback", "bad", str(error), "see that nothing forbids connections to 127.0.0.1")
        return
    try:
        key = f"walktalk/{CLUSTER}/a/b/word"
        with listens.declare_queryable(key, lambda query: query.reply(key, b"yes")):
            answered = False
            while not answered and time.monotonic() - began < PATIENCE:
                answered = any(reply.ok is not None for reply in talks.get(key, timeout=0.5))
    finally:
        for session in (talks, listens):
            close_session(session, PATIENCE)
    took = time.monotonic() - began
    if answered:
        yield Finding("peers on loopback", "good", f"a word from one to another after {took:.2f} s, port {port}")
    else:
        remedy = "see that no firewall forbids connections to 127.0.0.1"
        yield Finding("peers on loopback", "bad", f"no word arrived in {PATIENCE:g} s, port {port}", remedy)


def cluster_file(path: Path) -> Iterator[Finding]:
    """The cluster in this file, as seen from this machine."""
    try:
        from walktalk.runtimes.peers import OPERATOR, load_cluster

        cluster = load_cluster(path)
    except UserError as error:
        yield Finding("cluster", "bad", str(error))
        return
    yield Finding("cluster", "good", f"{cluster.name}, {len(cluster.nodes)} nodes, in {path}")
    if cluster.relay:
        yield _reached("relay", cluster.relay)
    for name, place in cluster.nodes.items():
        if cluster.relay and not (place.reachable and place.has_port):
            yield Finding(f"node {name}", "good", f"is met at the relay {cluster.relay}")
        elif not place.has_port:
            yield Finding(f"node {name}", "good", f"{place.address}, no port: it connects to the others")
        elif _is_here(place.listening):
            yield _own_port(name, place.listening)
        else:
            yield _reached(f"node {name}", place.address)
    if cluster.certificates is None:
        said = "none: nothing is encrypted, and anyone who reaches a port may join"
        yield Finding("certificates", "absent", said, f"walktalk certs --config {path}")
        return
    for name in (*cluster.nodes, OPERATOR):
        if (cluster.certificates / f"{name}.pem").exists():
            yield _certificate(cluster.certificates, name)
    if not any(cluster.certificates.glob("*.pem")):
        yield Finding("certificates", "bad", f"none in {cluster.certificates}", f"walktalk certs --config {path}")


def _certificate(folder: Path, name: str) -> Finding:
    from walktalk.runtimes.peers import credentials, valid_until

    try:
        found = credentials(folder, name)
    except UserError as error:
        return Finding(f"certificate {name}", "bad", str(error))
    return Finding(f"certificate {name}", "good", f"valid until {valid_until(found.certificate):%Y-%m-%d}")


def _is_here(listening: str) -> bool:
    """Whether this machine has the address that a node listens on."""
    host = listening.rpartition(":")[0].strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.bind(address)
    except OSError:
        return False
    return True


def _own_port(name: str, listening: str) -> Finding:
    host, _, port = listening.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
    except OSError as error:
        said = f"{listening}, here: {error.strerror or error}"
        return Finding(f"node {name}", "bad", said, "fine if the node is running; else give it another port")
    return Finding(f"node {name}", "good", f"{listening}, here: the port is free")


def _reached(name: str, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        said = f"{address} does not answer: {error.strerror or error}"
        return Finding(name, "absent", said, "fine if it is not running yet; else look at firewalls between")
    return Finding(name, "good", f"{address} answers")
