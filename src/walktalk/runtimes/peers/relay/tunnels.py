"""A node's way to a relay (`server`): Zenoh connects to a port on this machine, and comes out at a node far away.

For every neighbour that is met at the relay there is a port on loopback. A connection to it is passed on through the
relay to that node, whose own tunnels pass it on to the port where its Zenoh listens. So Zenoh does not know of the
relay: it connects, encrypts and compares names as ever, from one node to the other. Where the relay is gone, such a
connection ends at once, and Zenoh tries again until the relay is back.

All of it is one thread with an event loop; the node never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers.identity.certificates import RELAY, Credentials
from walktalk.runtimes.peers.relay.streams import (
    LONGEST,
    MAGIC,
    PATIENCE,
    SILENCE,
    Flow,
    RelayError,
    encode,
    guest_context,
    hear,
    host_and_port,
    identity_error,
    join,
    keep_alive,
    open_connection,
    prepare,
    shrink_buffers,
)
from walktalk.runtimes.peers.wire.versions import GUESTS

log = logging.getLogger(__name__)

HERE = "127.0.0.1"
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0  # seconds until a relay that is gone is tried again, at first and in the long run
NAMESAKE_WAIT = 30.0  # seconds: two of one name would throw each other out many times a second
DIRECT = 1.0  # seconds for an address that may or may not be reached from here, before the relay is asked
CLOSING = 2.0  # seconds until the thread has ended


@dataclass(frozen=True)
class RelayPlace:
    """A relay as one node sees it."""

    address: str  # host:port
    calls: Mapping[str, str] = field(default_factory=dict)  # whom this one dials -> an address to try before, or ""

    @property
    def port(self) -> int:
        """The port on which the relay listens."""
        return host_and_port(self.address)[1]


@dataclass(frozen=True)
class Guest:
    """A node or an operator that comes to a relay."""

    cluster: str
    name: str
    files: Credentials | None
    listen: str = ""  # host:port where calls of others go to; "" where nobody may call


class ReplacedError(Exception):
    """Another has come to the relay under this node's name."""


class Tunnels:
    """A node's way to a relay, at work from the first moment on until it is closed."""

    def __init__(self, place: RelayPlace, guest: Guest) -> None:
        self.place, self.guest = place, guest
        self.connected = False  # whether the relay is there
        self.passed_on = Flow()  # bytes to the relay, and from it
        self._line: asyncio.StreamWriter | None = None  # to the relay
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._told = ""  # the last that was said about the relay
        self._closing = False  # whether `close` was called: a cancellation gets lost where a line comes in that moment
        self._tasks: set[asyncio.Task[None]] = set()
        self._doors = {name: shrink_buffers(socket.create_server((HERE, 0))) for name in place.calls}
        self.addresses = {name: _address(door) for name, door in self._doors.items()}  # of those that it calls at first
        self._loop = asyncio.new_event_loop()
        self._work = self._loop.create_task(self._run())
        self._thread = threading.Thread(target=self._drive, name="tunnels", daemon=True)
        self._thread.start()

    def door(self, name: str) -> str:
        """The port on this machine that leads to a neighbour; the same again where it was called before."""
        if name not in self._doors:
            try:
                self._doors[name] = shrink_buffers(socket.create_server((HERE, 0)))
            except OSError as error:  # too many open files
                raise UnavailableError(f"no port for {name}, who is met at the relay: {error.strerror}") from error
            with suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._open, name)
        return _address(self._doors[name])

    def _open(self, name: str) -> None:
        self._start(self._attend(name, self._doors[name]))

    def renew(self, files: Credentials) -> None:
        """Come to the relay anew, with another certificate."""
        self.guest = replace(self.guest, files=files)
        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()

    def close(self) -> None:
        """End all connections through the relay."""
        self._closing = True
        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join(CLOSING)

    def status(self) -> dict[str, Any]:
        """What a person wants to know; callable from any thread."""
        return {
            "address": self.place.address,
            "connected": self.connected,
            "calls": sorted(self._doors),
            "bytes_sent": self.passed_on.there,
            "bytes_received": self.passed_on.back,
        }

    def _drive(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._work)
        self._loop.close()

    async def _run(self) -> None:
        try:
            for name in self.place.calls:
                self._open(name)
            await self._keep_in_touch()
        finally:
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks, timeout=FIRST_WAIT)
            for door in list(self._doors.values()):
                door.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- to the relay ----------------------------------------------------------------------------------------------

    async def _keep_in_touch(self) -> None:
        """Connect to the relay, again and again."""
        wait = FIRST_WAIT
        while not self._closing:
            try:
                reader, writer = await come(self.place.address, self.guest)
            except (OSError, RelayError, asyncio.TimeoutError) as error:
                self._say(f"cannot come to the relay {self.place.address}: {in_words(error)}", logging.WARNING)
                await asyncio.sleep(wait)
                wait = min(2.0 * wait, LONGEST_WAIT)
                continue
            wait = FIRST_WAIT
            self._say(f"is at the relay {self.place.address}", logging.INFO)
            try:
                await self._talk(reader, writer)
            except ReplacedError as error:
                self._say(f"has lost the relay {self.place.address}: {error}", logging.WARNING)
                wait = NAMESAKE_WAIT
            except (OSError, RelayError) as error:
                self._say(f"has lost the relay {self.place.address}: {in_words(error)}", logging.WARNING)
            await asyncio.sleep(wait)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._line, self.connected = writer, True
        in_touch = asyncio.create_task(keep_alive(writer))
        try:
            while not self._closing:
                self._hear(await hear(reader, SILENCE))
        finally:
            self._line, self.connected = None, False
            in_touch.cancel()
            for waiting in self._asked.values():
                waiting.cancel()
            writer.close()

    def _hear(self, said: dict[str, Any]) -> None:
        if said.get("replaced"):
            raise ReplacedError(f"another has come there as {self.guest.name}; stop one of the two")
        if "call" in said and self.guest.listen:
            self._start(self._answer(str(said["call"])))
        number = said.get("id")
        waiting = self._asked.get(number) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(said)

    def _say(self, line: str, level: int) -> None:
        """Log a line about the relay, once, until something else is to be said."""
        if line != self._told:
            self._told = line
            log.log(level, "%s: %s", self.guest.name, line)

    # -- connections -------------------------------------------------------------------------------------------------

    async def _attend(self, name: str, door: socket.socket) -> None:
        """Pass on what comes to the port that stands for this node."""
        door.setblocking(False)
        while True:
            try:
                connection, _ = await self._loop.sock_accept(door)
            except OSError as error:  # too many open files
                log.warning("%s: a connection to %s: %s", self.guest.name, name, error.strerror)
                await asyncio.sleep(LONGEST_WAIT)
                continue
            self._start(self._pass_on(name, shrink_buffers(prepare(connection))))

    async def _pass_on(self, name: str, connection: socket.socket) -> None:
        try:
            far = await self._reach(name)
        except BaseException as error:
            connection.close()
            if isinstance(error, (OSError, RelayError, asyncio.TimeoutError)):
                log.debug("%s: does not reach %s: %s", self.guest.name, name, error)
                return
            raise
        await join(connection, far, self.passed_on)

    async def _reach(self, name: str) -> socket.socket:
        """A connection to a node: the straight one where there is one, or through the relay."""
        direct = self.place.calls.get(name, "")
        if direct:
            with suppress(OSError):
                return await open_connection(*host_and_port(direct), DIRECT)
        answer = await self._ask(dial=name)
        if "token" not in answer:
            raise RelayError(str(answer.get("refused", "the relay does not say why")))
        return await self._come_with(str(answer["token"]))

    async def _answer(self, token: str) -> None:
        """Somebody dials this node: join what comes with where Zenoh listens."""
        here: socket.socket | None = None
        try:
            host, port = host_and_port(self.guest.listen)
            here = shrink_buffers(
                await open_connection(HERE if host in ("", "0.0.0.0", "::") else host, port, PATIENCE)
            )
            far = await self._come_with(token)
        except OSError as error:
            log.debug("%s: cannot answer a call: %s", self.guest.name, error)
            if here is not None:
                here.close()
            return
        await join(here, far, self.passed_on)

    async def _come_with(self, token: str) -> socket.socket:
        """Open a data connection to the relay with this token."""
        connection = await open_connection(*host_and_port(self.place.address), PATIENCE)
        try:
            await self._loop.sock_sendall(connection, MAGIC + token.encode("ascii", "replace"))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _ask(self, **asked: Any) -> dict[str, Any]:
        if self._line is None:
            raise RelayError(f"the relay {self.place.address} is not there")
        self._number += 1
        number, waiting = self._number, self._loop.create_future()
        self._asked[number] = waiting
        try:
            self._line.write(encode(id=number, **asked))
            await asyncio.wait({waiting}, timeout=PATIENCE)
            if not waiting.done() or waiting.cancelled():
                raise RelayError(f"the relay {self.place.address} does not answer")
            answer: dict[str, Any] = waiting.result()
            return answer
        finally:
            del self._asked[number]


async def come(address: str, guest: Guest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a relay and introduce oneself; `RelayError` or `OSError` where it cannot be reached or refuses."""
    secure: dict[str, Any] = {}
    if guest.files is not None:
        secure = {
            "ssl": guest_context(guest.files),
            "server_hostname": host_and_port(address)[0],
            "ssl_handshake_timeout": PATIENCE,
        }
    connection = await open_connection(*host_and_port(address), PATIENCE)
    reader, writer = await asyncio.open_connection(sock=connection, limit=LONGEST, **secure)  # closes it, too
    try:
        why = identity_error(writer, RELAY, guest.files)
        if why:
            raise RelayError(why)
        first = {"cluster": guest.cluster, "name": guest.name, **GUESTS.told(), "listens": bool(guest.listen)}
        writer.write(encode(**first))
        answer = await hear(reader, PATIENCE)
        if "welcome" not in answer:
            raise RelayError(f"it refuses: {answer.get('refused', 'it does not say why')}")
    except BaseException:
        writer.close()
        raise
    return reader, writer


def in_words(error: BaseException) -> str:
    """An error in one line; errors of TLS and of the system have their words in different places."""
    said = getattr(error, "verify_message", "")
    if not said and isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        said = os.strerror(error.errno)  # asyncio has words of its own instead
    said = said or str(error)
    return " ".join(str(said).split()) or type(error).__name__


def doors(tunnels: Tunnels | None) -> Collection[str]:
    """Where Zenoh connects to reach those that are called from the first; none without a relay."""
    return tunnels.addresses.values() if tunnels is not None else ()


def _address(door: socket.socket) -> str:
    return f"{HERE}:{door.getsockname()[1]}"


def why_not_met(place: RelayPlace, guest: Guest, name: str) -> str:
    """One line about a neighbour that should be met at the relay, and has not come; takes some seconds at most."""

    async def ask() -> str:
        reader, writer = await come(place.address, Guest(guest.cluster, guest.name, guest.files))
        try:
            writer.write(encode(who=name, id=1))
            answer: dict[str, Any] = {}
            while "here" not in answer:
                answer = await hear(reader, PATIENCE)
        finally:
            writer.close()
        if answer["here"]:
            return (
                f"it is at the relay {place.address} but does not answer; do both have certificates of one authority?"
            )
        return f"it is not at the relay {place.address}; is it running, and does its file name this relay?"

    try:
        with ThreadPoolExecutor(1) as pool:  # of its own: in a notebook this thread has a loop that runs
            return pool.submit(asyncio.run, ask()).result()
    except (OSError, RelayError, asyncio.TimeoutError) as error:
        return f"it is met at the relay {place.address}, which cannot be used from here: {in_words(error)}"
