"""Free ports for nodes that were given none, and a note in the cluster's folder that says which.

A node writes down its own port before it reads those of the others, so of two neighbours without a port at least one
finds the other, whichever starts first. A node that comes back takes the port that it had, if it is still free.
This works where nodes share the folder, as on one machine; on different machines one of two neighbours needs a port.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from walktalk.errors import StudyError
from walktalk.records import write_text
from walktalk.runtimes.peers.cluster import PORTS, Cluster, Place
from walktalk.runtimes.peers.unused_ports import free_ports


def with_own_port(cluster: Cluster, name: str) -> Cluster:
    """The cluster as this node should see it: its own port found and written down, those of others read."""
    place = cluster.nodes[name]
    changed = dict(cluster.nodes)
    if not place.has_port and not place.listen:
        port = _free_port(place.host, _noted(cluster, name))
        if port is not None:
            _write_down(cluster.folder / PORTS / name, port)
            changed[name] = _at(place, port)
    return _filled(cluster, changed)


def with_known_ports(cluster: Cluster) -> Cluster:
    """The cluster with all ports that were found so far, as the operator needs it."""
    return _filled(cluster, dict(cluster.nodes))


def _filled(cluster: Cluster, nodes: dict[str, Place]) -> Cluster:
    for name, place in nodes.items():
        noted = None if place.has_port else _noted(cluster, name)
        if noted is not None:
            nodes[name] = _at(place, noted)
    return cluster.model_copy(update={"nodes": nodes})


def _at(place: Place, port: int) -> Place:
    return place.model_copy(update={"address": f"{place.address}:{port}", "found": True})


def _write_down(path: Path, port: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{port}\n")
    except OSError as error:
        raise StudyError(f"folder: {path.parent} cannot be written: {error.strerror}; name another") from error


def _noted(cluster: Cluster, name: str) -> int | None:
    try:
        return int((cluster.folder / PORTS / name).read_text())
    except (OSError, ValueError):
        return None


def _free_port(host: str, wanted: int | None) -> int | None:
    """The wanted port, or any; None where the host is not this machine."""
    if wanted is not None:
        with suppress(OSError), socket.create_server((host, wanted)):
            return wanted
    with suppress(OSError):
        return free_ports(1, host)[0]
    return None
