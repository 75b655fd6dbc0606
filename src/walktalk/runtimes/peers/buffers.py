"""Send buffers that fit their links: what waits in one delays every heartbeat behind it, whatever its priority.

Zenoh sends words before models, but what it has handed to the system goes in its order: four megabytes of a model are
four seconds at 8 Mbit/s, and a neighbour that says nothing for so long is taken for dead. So connections to other
machines begin with a small buffer, and each is given, as its own measurements say, twice what can be on the wire at a
time: delivery rate times the shortest round trip. A fast link's grows to what it needs within seconds.

Linux alone tells those numbers (`TCP_INFO`); elsewhere buffers stay as they are.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

SMALLEST = 128 << 10  # bytes: an eighth of a second at 8 Mbit/s
LARGEST = 4 << 20  # half the time of 500 MB on loopback, against the system's own; the system may make it less
_MIN_RTT, _DELIVERY_RATE, _LENGTH = 148, 160, 168  # where they are in the kernel's `struct tcp_info`


def first_size(listen: str) -> int:
    """What to begin with, for a node that listens there: nothing is slow on the machine itself."""
    return LARGEST if is_here(listen.rpartition(":")[0]) else SMALLEST


def is_here(host: str) -> bool:
    """Whether an address is this machine's own loopback; a listener on all addresses is not."""
    if host in ("", "localhost"):
        return host == "localhost"
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def wanted(rate: float, round_trip: float) -> int:
    """Bytes of buffer for a link that delivers so many bytes a second, its round trip taking so many seconds."""
    return int(min(max(2.0 * rate * round_trip, SMALLEST), LARGEST))


def fit_buffers(ports: Iterable[int]) -> int:
    """Fit the buffers of this process's connections with one of these ports on either side; how many were fitted."""
    known, fitted = set(ports), 0
    if not hasattr(socket, "TCP_INFO"):
        return 0
    for number in _descriptors():
        with suppress(OSError, ValueError), _borrowed(number) as connection:
            fitted += _fit(connection, known)
    return fitted


def _fit(connection: socket.socket, ports: set[int]) -> bool:
    here, there = connection.getsockname(), connection.getpeername()
    if not {here[1], there[1]} & ports or is_here(there[0]):
        return False
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(info) < _LENGTH:
        return False
    (round_trip,), (rate,) = struct.unpack_from("<I", info, _MIN_RTT), struct.unpack_from("<Q", info, _DELIVERY_RATE)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted(float(rate), round_trip / 1e6))
    return True


def _descriptors() -> list[int]:
    """Open sockets of this process."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return []
    found = []
    for name in names:
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
    return found


@contextmanager
def _borrowed(number: int) -> Iterator[socket.socket]:
    """A socket that somebody else has opened; its own descriptor is another's, and is closed."""
    connection = socket.socket(fileno=os.dup(number))
    try:
        if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
            raise ValueError("not a TCP connection")
        yield connection
    finally:
        connection.close()
