"""How a node talks to the script that trains for it, on the same machine: a local socket, and shared memory for models.

Only processes of the same user come in: the socket's file is the user's alone, and both ends ask the system who the
other is. A message is a line of JSON; a model is numbers in memory that both have. Nothing is unpickled.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walktalk.core.errors import UnavailableError
from walktalk.core.untrusted import Limits, Refused, parsed_json

SOCKET = "site.sock"  # in a node's folder
LONGEST = 100  # characters of a path that a socket may have; longer ones go by way of the folder
_HEAD = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
LIMITS = Limits(size=1 << 22)
ANSWERS_WITHIN = 60.0  # seconds for a node's first words; it may just be mapping a large model


class Closed(ConnectionError):
    """The other end has gone."""


class LocalConnection:
    """One end of a conversation: whole messages, one after the other, and descriptors of shared memory with them."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.process = check_user(end)

    def send(self, message: dict[str, Any], memory: tuple[int, ...] = ()) -> None:
        """Send a message, with descriptors of files that the other end may use, too."""
        data = json.dumps(message).encode()
        head = _HEAD.pack(len(data))
        try:
            if memory:
                socket.send_fds(self._end, [head], list(memory))
            else:
                self._end.sendall(head)
            self._end.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it; waits. `Closed` where there will be none."""
        try:
            if descriptors:
                head, memory, _, _ = socket.recv_fds(self._end, _HEAD.size, descriptors)
                head += self._exactly(_HEAD.size - len(head))
            else:
                head, memory = self._exactly(_HEAD.size), []
            (size,) = _HEAD.unpack(head)
            if size > LIMITS.size:
                raise Refused(f"a message of {size:,} bytes; at most {LIMITS.size:,} are taken")
            said = parsed_json(self._exactly(size), LIMITS)
        except OSError as error:
            raise Closed(str(error)) from error
        if not isinstance(said, dict):
            raise Refused(f"a message is an object, not {type(said).__name__}")
        return said, list(memory)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._end.recv(size - len(data))
            if not more:
                raise Closed("the other end has gone")
            data += more
        return data

    def wait_at_most(self, seconds: float | None) -> None:
        """How long the other end may take for anything before it counts as gone; None: as long as it likes."""
        self._end.settimeout(seconds)

    def fileno(self) -> int:
        """The descriptor, to wait for several at once."""
        return self._end.fileno()

    def close(self) -> None:
        """Hang up; whoever waits for a message here is told."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


def check_user(end: socket.socket) -> int:
    """The process at the other end; `UnavailableError` where it is another user's."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0  # elsewhere than on Linux the file's mode alone keeps others out
    data = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    if user != os.getuid():
        raise UnavailableError(
            f"process {process} is user {user}'s; only user {os.getuid()}, whose node it is, may come"
        )
    return int(process)


def connect(folder: Path) -> LocalConnection | None:
    """A connection to the node whose folder this is; None where none runs, or something else is in its socket's place.

    Until the node has said its first words it may take `ANSWERS_WITHIN` seconds: one that is stopped never does.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.settimeout(ANSWERS_WITHIN)
    try:
        with _Near(folder) as near:
            if not stat.S_ISSOCK(os.lstat(f"{near}/{SOCKET}").st_mode):
                raise FileNotFoundError(SOCKET)  # a link leads to who knows whom
            end.connect(f"{near}/{SOCKET}")
    except OSError:
        end.close()
        return None
    return LocalConnection(end)


def listen(folder: Path) -> socket.socket:
    """Listen in a node's folder, for processes of the same user; what a killed node has left is replaced."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ours = f"{SOCKET}.{os.getpid()}"
    with _Near(folder) as near:
        with suppress(FileNotFoundError):
            os.unlink(f"{near}/{ours}")
        end.bind(f"{near}/{ours}")
        os.chmod(f"{near}/{ours}", 0o600)  # before anybody can come
        end.listen(8)
        os.replace(f"{near}/{ours}", f"{near}/{SOCKET}")
    return end


class _Near:
    """A short name of a folder, as long as it is needed: a socket's path has 108 bytes at most."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._opened = folder, -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._folder)) < LONGEST - len(SOCKET) - 12:
            return str(self._folder)
        self._opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._opened}"

    def __exit__(self, *error: object) -> None:
        if self._opened >= 0:
            os.close(self._opened)


class SharedMemory:
    """Memory that two processes have, and that goes when both have let it go: it has no name, so nothing is left."""

    def __init__(self, descriptor: int, size: int) -> None:
        """
        - `descriptor`: of the memory; it is this object's from now on.
        - `size`: bytes.
        """
        self.descriptor = descriptor
        # Its pages are there before the first model comes: finding them takes longer than copying one.
        self._mapped = mmap.mmap(descriptor, max(1, size), flags=mmap.MAP_SHARED | _POPULATE)
        self.bytes = torch.frombuffer(self._mapped, dtype=torch.uint8)

    @classmethod
    def new(cls, size: int) -> SharedMemory:
        """Memory of so many bytes."""
        if not hasattr(os, "memfd_create"):
            raise UnavailableError("wt.site: needs Linux, for memory that two processes share")
        descriptor = os.memfd_create("walktalk", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, max(1, size))
        return cls(descriptor, size)

    def numbers(self, start: int, count: int) -> Tensor:
        """So many 32-bit numbers from a byte on: the memory itself."""
        return self.bytes[start : start + 4 * count].view(torch.float32)

    def close(self) -> None:
        """Let the descriptor go; the memory stays as long as somebody uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
