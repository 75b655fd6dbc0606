"""A relay: where nodes meet that can only dial out.

Every node of a cluster that names one keeps a connection to it. Who wants to talk to a node that cannot be reached
dials it here: both are told a token, both come with it on a connection of their own, and from then on the relay passes
bytes on (`streams`). With certificates these bytes are the TLS of the two nodes: the relay can neither read nor
change them, nor speak for a node. It sees who talks to whom, when and how much, and it can refuse.

It keeps nothing on disk, needs no study and no torch, and may be ended and started again at any time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from walktalk.core.errors import UnavailableError
from walktalk.runtimes.peers.identity.certificates import RELAY, Credentials
from walktalk.runtimes.peers.identity.renewal import Renewal
from walktalk.runtimes.peers.relay.streams import (
    LONGEST,
    MAGIC,
    PATIENCE,
    SILENCE,
    TOKEN_LENGTH,
    Flow,
    RelayError,
    encode,
    fit_buffers,
    hear,
    host_and_port,
    identity_error,
    join,
    keep_alive,
    new_token,
    prepare,
    receive_exactly,
    relay_context,
)
from walktalk.runtimes.peers.wire.versions import GUESTS, span_in, why_not_understood

log = logging.getLogger(__name__)

AT_MOST = 4096  # connections
STRANGERS_AT_MOST = 128  # connections that have not said who they are: TLS takes 0.3 MB for each; the oldest gives way
DIALLING_AT_MOST = 256  # calls of one guest at a time
UNHEARD_AT_MOST = 1 << 16  # bytes that wait for a guest that does not read
FIT_EVERY = 1.0  # seconds between two looks at buffers
REPORTED_AT_MOST = 20  # guests in a row that are turned away with a line each; more are only counted


@dataclass(eq=False)
class Guest:
    """The control connection of a node or an operator at the relay."""

    cluster: str
    name: str
    writer: asyncio.StreamWriter
    listens: bool  # whether others may dial it
    dialling: int = 0  # calls of it to which not both sides have come yet

    def send(self, **said: Any) -> None:
        """Send a message; a guest that does not read for long is disconnected."""
        self.writer.write(encode(**said))
        if self.writer.transport.get_write_buffer_size() > UNHEARD_AT_MOST:
            self.writer.transport.abort()


@dataclass(eq=False)
class Call:
    """Two guests that are to be joined, and the connections that have come for it."""

    caller: Guest
    called: Guest
    tokens: tuple[str, str]  # with which the two come
    over: bool = False  # whether one of them is gone, and the other need not wait
    came: list[socket.socket] = field(default_factory=list)  # that of one side, until the other is there


class Relay:
    """Passes bytes on between nodes that can only dial out; `serve` runs until it is cancelled."""

    def __init__(self, listen: str, files: Credentials | None) -> None:
        """
        - `listen`: host:port; port 0 is any that is free.
        - `files`: the relay's certificate; None: nothing is encrypted, anyone may come.
        """
        self._files = self._looked_at = files
        self._renewal = Renewal(files, RELAY, None, self._use) if files is not None else None
        self._made: tuple[Credentials, ssl.SSLContext] | None = None  # for these files
        self._here: set[Guest] = set()
        self._guests: dict[tuple[str, str], Guest] = {}  # who may be dialled, by cluster and name
        self._meetings: dict[str, Call] = {}  # by both tokens
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None] | None, None] = {}  # in the order in which they came
        self._talks: dict[asyncio.Task[None], Call] = {}  # by whoever passes their bytes on
        self.passed_on = Flow()  # of connections that have ended
        self._turned_away = 0
        host, port = host_and_port(listen)
        try:
            self._door = socket.create_server((host, port), family=_family(host), backlog=256)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number is not None and number > 0 else error
            raise UnavailableError(f"relay: cannot listen on {listen}: {why}") from error
        self._door.setblocking(False)
        self.port: int = self._door.getsockname()[1]

    @property
    def joined(self) -> int:
        """The number of pairs that are talking now."""
        return len(self._talks)

    async def serve(self) -> None:
        """Accept connections, until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._start(self._look_after())
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._door)
                except OSError as error:  # too many open files, or a guest that is gone already
                    log.warning("relay: cannot let anybody in: %s", error.strerror)
                    await asyncio.sleep(FIT_EVERY)
                    continue
                if len(self._tasks) >= AT_MOST:
                    connection.close()
                    continue
                self._start(self._receive(prepare(connection), f"{address[0]}:{address[1]}"))
        finally:
            self._door.close()
            if self._renewal is not None:
                self._renewal.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(FIT_EVERY)
            fit_buffers([self.port])
            if self._files is not self._looked_at:
                self._looked_at = self._files
                self._disconnect_revoked()

    def _use(self, files: Credentials) -> None:
        """Use other certificates from now on; called in another thread."""
        self._files = files

    def _disconnect_revoked(self) -> None:
        """Disconnect guests whose certificates hold no more, and cut off what they have to say."""
        for guest in [guest for guest in self._here if identity_error(guest.writer, guest.name, self._files)]:
            log.warning("relay: %s of %s must go: its certificate was revoked", guest.name, guest.cluster)
            guest.writer.close()
            for task, meeting in list(self._talks.items()):
                if any(
                    (one.cluster, one.name) == (guest.cluster, guest.name) for one in (meeting.caller, meeting.called)
                ):
                    task.cancel()

    async def _receive(self, connection: socket.socket, address: str) -> None:
        self._count_unknown()
        try:
            first = await _first_byte(connection)
            if first == MAGIC[:1]:
                await self._bring_together(connection)
            elif first:
                await self._converse(connection)
            else:
                connection.close()  # somebody has looked whether the port is open
        except (OSError, asyncio.TimeoutError, RelayError) as error:  # TLS errors are OSErrors
            self._turn_away(address, str(error) or type(error).__name__)
        finally:
            self._introduced()

    def _count_unknown(self) -> None:
        """Count one more unknown connection. Whoever belongs here says so at once; the oldest unknown gives way."""
        self._strangers[asyncio.current_task()] = None
        if len(self._strangers) > STRANGERS_AT_MOST:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            if oldest is not None:
                oldest.cancel()

    def _introduced(self) -> None:
        self._strangers.pop(asyncio.current_task(), None)

    def _turn_away(self, address: str, why: str) -> None:
        self._turned_away += 1
        if self._turned_away <= REPORTED_AT_MOST:
            log.warning("relay: turns %s away: %s", address, " ".join(why.split()))

    def _context(self) -> ssl.SSLContext | None:
        """The TLS context for the files of now, made once for all guests; None without certificates."""
        files = self._files
        if files is not None and (self._made is None or self._made[0] is not files):
            self._made = files, relay_context(files)
        return self._made[1] if files is not None and self._made is not None else None

    # -- control connections --------------------------------------------------------------------------------------

    async def _converse(self, connection: socket.socket) -> None:
        """Talk with a guest on its control connection. From here on the connection is asyncio's, which closes it."""
        reader, writer = await _streams(connection, self._context())
        try:
            guest = await self._introduce(reader, writer)
            self._introduced()
            self._turned_away = 0
            self._here.add(guest)
            in_touch = asyncio.create_task(keep_alive(writer))
            try:
                await self._listen_to(guest, reader)
            except (RelayError, OSError) as error:
                log.info("relay: %s of %s leaves: %s", guest.name, guest.cluster, error)
            finally:
                in_touch.cancel()
                self._here.discard(guest)
                self._excuse(guest)
                if self._guests.get((guest.cluster, guest.name)) is guest:
                    del self._guests[guest.cluster, guest.name]
        finally:
            writer.close()

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Guest:
        said = await hear(reader, PATIENCE)
        name, cluster = said.get("name"), said.get("cluster")
        if not isinstance(name, str) or not isinstance(cluster, str):
            why = "it does not say who it is"
        else:
            why = why_not_understood(GUESTS, span_in(said)) or identity_error(writer, name, self._files)
        if why:
            writer.write(encode(refused=why))
            await writer.drain()
            raise RelayError(why)
        guest = Guest(str(cluster), str(name), writer, bool(said.get("listens")))
        if guest.listens:
            before = self._guests.get((guest.cluster, guest.name))
            if before is not None:  # it has come again: the connection of before is dead, or two have one name
                before.send(replaced=True)
                before.writer.close()
            self._guests[guest.cluster, guest.name] = guest
        guest.send(welcome=RELAY)
        log.info("relay: %s of %s is here", guest.name, guest.cluster)
        return guest

    async def _listen_to(self, guest: Guest, reader: asyncio.StreamReader) -> None:
        while True:
            said = await hear(reader, SILENCE)
            number, name = said.get("id"), said.get("dial", said.get("who"))
            if not said:
                continue
            if not isinstance(number, int) or not isinstance(name, str):
                raise RelayError("it asks for nothing that is known here")
            other = self._guests.get((guest.cluster, name))
            if "who" in said:
                guest.send(id=number, here=other is not None)
            elif other is None:
                guest.send(id=number, refused=f"{name} is not at the relay")
            elif guest.dialling >= DIALLING_AT_MOST:
                guest.send(id=number, refused="too many calls at a time")
            else:
                self._call(guest, other, number)
            await guest.writer.drain()

    def _call(self, caller: Guest, called: Guest, number: int) -> None:
        tokens = new_token(), new_token()
        meeting = Call(caller, called, tokens)
        self._meetings.update(dict.fromkeys(tokens, meeting))
        caller.dialling += 1
        caller.send(id=number, token=tokens[0])
        called.send(call=tokens[1], **{"from": caller.name})
        asyncio.get_running_loop().call_later(PATIENCE, self._give_up, meeting)

    def _excuse(self, guest: Guest) -> None:
        """A guest is gone: whoever calls it, and waits, shall call again, and find it if it has come back."""
        for meeting in {id(meeting): meeting for meeting in self._meetings.values()}.values():
            if meeting.called is guest and meeting.tokens[1] in self._meetings:  # it was told, and has not come
                meeting.over = True
                for connection in meeting.came:
                    connection.close()
                meeting.came.clear()

    def _give_up(self, meeting: Call) -> None:
        """Give up a call to which not both sides have come."""
        meeting.caller.dialling -= 1
        for token in meeting.tokens:
            self._meetings.pop(token, None)
        for connection in meeting.came:
            connection.close()
        meeting.came.clear()

    # -- data connections ------------------------------------------------------------------------------------------

    async def _bring_together(self, connection: socket.socket) -> None:
        with _closed_on_failure(connection):
            head = await asyncio.wait_for(receive_exactly(connection, len(MAGIC) + TOKEN_LENGTH), PATIENCE)
            token = head[len(MAGIC) :].decode("ascii", "replace")
            meeting = self._meetings.pop(token, None)
            if meeting is None or not head.startswith(MAGIC):
                raise RelayError("it comes with a token that is not known here, or not any more")
            self._introduced()
        if meeting.over:
            connection.close()
            return
        if not meeting.came:
            meeting.came.append(connection)
            return
        (other,) = meeting.came
        meeting.came.clear()
        await self._join(meeting, connection, other)

    async def _join(self, meeting: Call, one: socket.socket, other: socket.socket) -> None:
        flow, began = Flow(), time.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._talks[task] = meeting
        try:
            await join(one, other, flow)
        finally:
            del self._talks[task]
            self.passed_on.there += flow.there
            self.passed_on.back += flow.back
            who = f"{meeting.caller.name} and {meeting.called.name} of {meeting.caller.cluster}"
            log.info("relay: %s: %s in %.0f s", who, in_megabytes(flow.total), time.monotonic() - began)


def in_megabytes(size: int) -> str:
    """A size as a person reads it."""
    return f"{size / 1e6:,.1f} MB"


async def _first_byte(connection: socket.socket) -> bytes:
    """Look at the first byte and leave it there: TLS wants to read it, too."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    with _closed_on_failure(connection):
        loop.add_reader(connection, _wake, ready)
        try:
            await asyncio.wait_for(ready, PATIENCE)
        finally:
            loop.remove_reader(connection)
        return connection.recv(1, socket.MSG_PEEK)


@contextmanager
def _closed_on_failure(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _streams(
    connection: socket.socket, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Make streams of lines from a connection that was accepted."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    patience = PATIENCE if context is not None else None
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=context, ssl_handshake_timeout=patience
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _family(host: str) -> socket.AddressFamily:
    with suppress(OSError):
        return socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)[0][0]
    return socket.AF_INET
