"""Bytes of one connection passed on to another, in both directions, a little at a time: whoever is slow slows the other
down, and what waits in between is bounded, or heartbeats would wait behind models."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass

from walktalk.runtimes.peers.buffers import SMALLEST

PIECE = 64 << 10  # bytes that are held at most, for each direction
LINGER = 5.0  # seconds that one direction may go on after the other has ended
IDLE, BETWEEN, TIMES = 15, 5, 3  # seconds and number of the system's own questions whether the other side lives
UNSENT = 30_000  # milliseconds that bytes may go unacknowledged until a connection counts as broken


@dataclass
class Flow:
    """What was passed on so far."""

    there: int = 0  # bytes, from the first connection to the second
    back: int = 0

    @property
    def total(self) -> int:
        """Both directions."""
        return self.there + self.back


def narrow(connection: socket.socket) -> socket.socket:
    """Little waits in a connection of this machine with itself, or at a door for such: what does, delays heartbeats."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, PIECE)
    return connection


def prepare(connection: socket.socket) -> socket.socket:
    """Words go at once, and a dead other side is noticed. The buffer is small at first (`buffers` fits it)."""
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
    """A plain connection, or `OSError`."""
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
    """So many bytes, or `OSError`."""
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
