"""Connections to a relay and through it: send buffers, bytes that are passed on, and the messages on the way.

Send buffers fit their links: what waits in one delays every heartbeat behind it, whatever its priority. Zenoh sends
words before models, but what it has handed to the system goes in its order: four megabytes of a model are four seconds
at 8 Mbit/s, and a neighbour that says nothing for so long is taken for dead. So connections to other machines begin
with a small buffer, and each is given, as its own measurements say, twice what can be on the wire at a time: delivery
rate times the shortest round trip. A fast link's grows to what it needs within seconds. Linux alone tells those numbers
(`TCP_INFO`); elsewhere buffers stay as they are.

Bytes of one connection are passed on to another in both directions, a little at a time: whoever is slow slows the other
down, and what waits in between is bounded, or heartbeats would wait behind models.

Everybody who comes to a relay opens one connection to ask and be told (*control*): lines of JSON, with certificates
inside mutual TLS. What two nodes have to say to each other goes over a connection of each to the relay (*data*), which
begins with a token that both were told on their control connections; from there on the relay passes bytes on that it
does not understand: the TLS of the two nodes, from one end to the other.

    to the relay:    {"cluster": …, "name": …, "version": 1, "listens": true}    first, on a control connection
                     {"dial": NAME, "id": 1}   {"who": NAME, "id": 2}   {}       {} says that one is still there
    from the relay:  {"welcome": "relay"}   {"refused": WHY}                     the answer to the first
                     {"id": 1, "token": …}   {"id": 1, "refused": WHY}   {"id": 2, "here": true}
                     {"call": TOKEN, "from": NAME}   {}                          somebody dials you: come with it
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import secrets
import socket
import ssl
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from walktalk.runtimes.peers.identity.certificates import Credentials, bearer, common_name

SMALLEST = 128 << 10  # bytes: an eighth of a second at 8 Mbit/s
LARGEST = 4 << 20  # half the time of 500 MB on loopback, against the system's own; the system may make it less
_MIN_RTT, _DELIVERY_RATE, _LENGTH = 148, 160, 168  # where they are in the kernel's `struct tcp_info`


def first_size(listen: str) -> int:
    """The size of a send buffer to begin with, for a node that listens there: nothing is slow on the machine itself."""
    return LARGEST if is_here(listen.rpartition(":")[0]) else SMALLEST


def is_here(host: str) -> bool:
    """Whether an address is this machine's own loopback; a listener on all addresses is not."""
    if host in ("", "localhost"):
        return host == "localhost"
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def wanted(rate: float, round_trip: float) -> int:
    """The buffer size for a link that delivers so many bytes a second, its round trip taking so many seconds."""
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
    """Numbers of the open sockets of this process."""
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
    """Borrow a socket that somebody else has opened: what is closed here is a duplicate."""
    connection = socket.socket(fileno=os.dup(number))
    try:
        if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
            raise ValueError("not a TCP connection")
        yield connection
    finally:
        connection.close()


# -- passing bytes on -------------------------------------------------------------------------------------------------

PIECE = 64 << 10  # bytes that are held at most, for each direction
LINGER = 5.0  # seconds that one direction may go on after the other has ended
IDLE, BETWEEN, TIMES = 15, 5, 3  # seconds and number of the system's own questions whether the other side lives
UNSENT = 30_000  # milliseconds that bytes may go unacknowledged until a connection counts as broken


@dataclass
class Flow:
    """How many bytes were passed on so far."""

    there: int = 0  # bytes, from the first connection to the second
    back: int = 0

    @property
    def total(self) -> int:
        """Bytes in both directions together."""
        return self.there + self.back


def shrink_buffers(connection: socket.socket) -> socket.socket:
    """Make the buffers of a connection within this machine small: what waits there delays heartbeats."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, PIECE)
    return connection


def prepare(connection: socket.socket) -> socket.socket:
    """Set a socket up so that words go at once and a dead other side is noticed; its buffer is small at first."""
    connection.setblocking(False)
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, SMALLEST))
    for name, value in (
        ("TCP_KEEPIDLE", IDLE),
        ("TCP_KEEPINTVL", BETWEEN),
        ("TCP_KEEPCNT", TIMES),
        ("TCP_USER_TIMEOUT", UNSENT),
    ):
        if hasattr(socket, name):  # not every system has all of them
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    for option in options:
        with suppress(OSError):
            connection.setsockopt(*option)
    return connection


async def open_connection(host: str, port: int, seconds: float) -> socket.socket:
    """Open a plain connection, or raise `OSError`."""
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(f"there is no host {host}")
    for family, kind, protocol, _, place in places:
        connection = socket.socket(family, kind, protocol)
        try:
            prepare(connection)
            await asyncio.wait_for(loop.sock_connect(connection, place), seconds)
        except asyncio.TimeoutError:
            failure = OSError("it does not answer")
            connection.close()
        except OSError as error:
            failure = error
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failure


async def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes, or raise `OSError`."""
    loop, got = asyncio.get_running_loop(), b""
    while len(got) < size:
        piece = await loop.sock_recv(connection, size - len(got))
        if not piece:
            raise OSError("the connection has ended")
        got += piece
    return got


async def join(one: socket.socket, other: socket.socket, flow: Flow) -> None:
    """Pass on in both directions until both have ended; closes both connections."""
    ways = (_pass_on(one, other, flow, True), _pass_on(other, one, flow, False))
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks, timeout=LINGER)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        one.close()
        other.close()


async def _pass_on(source: socket.socket, target: socket.socket, flow: Flow, there: bool) -> None:
    loop, room = asyncio.get_running_loop(), memoryview(bytearray(PIECE))
    with suppress(OSError):
        while size := await loop.sock_recv_into(source, room):
            await loop.sock_sendall(target, room[:size])
            if there:
                flow.there += size
            else:
                flow.back += size
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


# -- messages ---------------------------------------------------------------------------------------------------------

LONGEST = 4096  # bytes of a line
MAGIC = b"WTR1"  # a data connection begins with it; TLS and JSON do not
TOKEN_LENGTH = 32  # hexadecimal digits
PATIENCE = 10.0  # seconds for a handshake, for a first line, and for both sides of a call to come
STILL_THERE = 10.0  # seconds between two empty lines: address translation forgets idle connections after half a minute
SILENCE = 30.0  # seconds without a line until the other side counts as gone


class RelayError(Exception):
    """The other side does not speak this language, or ended the conversation."""


def new_token() -> str:
    """A random token that nobody guesses."""
    return secrets.token_hex(TOKEN_LENGTH // 2)


def encode(**words: Any) -> bytes:
    """Write a message as a line of JSON."""
    return json.dumps(words).encode() + b"\n"


async def hear(reader: asyncio.StreamReader, seconds: float) -> dict[str, Any]:
    """Read the next message; `RelayError` where none comes in time, the connection ends, or it is none."""
    try:
        line = await asyncio.wait_for(reader.readline(), seconds)
    except asyncio.TimeoutError:
        raise RelayError(f"silent for {seconds:g} s") from None
    except (OSError, ValueError) as error:  # a line that is too long is a ValueError
        raise RelayError(str(error)) from error
    if not line.endswith(b"\n"):
        raise RelayError("the connection has ended")
    try:
        words = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RelayError("not a line of JSON") from error
    if not isinstance(words, dict):
        raise RelayError("not a line of JSON")
    return words


async def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Send an empty message now and then, until this is cancelled or the connection ends."""
    with suppress(OSError):
        while True:
            await asyncio.sleep(STILL_THERE)
            writer.write(encode())
            await writer.drain()


def host_and_port(address: str) -> tuple[str, int]:
    """Both parts of host:port; an IPv6 address stands in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def relay_context(files: Credentials) -> ssl.SSLContext:
    """The TLS context of a relay: whoever comes must have a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _with_files(context, files)


def guest_context(files: Credentials) -> ssl.SSLContext:
    """The TLS context of those who come to a relay."""
    return _with_files(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _with_files(context: ssl.SSLContext, files: Credentials) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


def identity_error(writer: asyncio.StreamWriter, name: str, files: Credentials | None) -> str:
    """Why the other side is not who it says it is; "" where all is well, or there is no TLS."""
    channel = writer.get_extra_info("ssl_object")
    if channel is None or files is None:
        return ""
    certificate = x509.load_der_x509_certificate(channel.getpeercert(binary_form=True))
    holder, since = common_name(certificate), files.revocations.since(certificate)
    if bearer(holder) != name:
        return f"its certificate is made out to {holder!r}, not to {name!r}"
    return "" if since is None else f"the certificate of {name} was revoked on {since:%Y-%m-%d}"
