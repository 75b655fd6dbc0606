"""Ports that nobody uses now, and that nobody is likely to use before the node that wants one listens on it.

The system gives ports from a range of its own to whoever connects somewhere. Twenty nodes that start make a hundred
connections, and one of those may get the very port on which a node that is a little slower is about to listen; so ports
are taken from below that range.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST = 10_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 50


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many, no two the same: all are held at once while they are found. `OSError` where the host is not here."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(host)) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _server(host: str) -> socket.socket:
    dice, end = random.SystemRandom(), _first_of_the_system()
    for _ in range(TRIES if end > LOWEST else 0):
        try:
            return socket.create_server((host, dice.randrange(LOWEST, end)))
        except OSError:
            continue
    return socket.create_server((host, 0))


def _first_of_the_system() -> int:
    """The lowest port that the system gives away by itself; 32768 is what Linux has unless somebody changed it."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
