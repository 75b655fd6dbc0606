"""A small web server for one page: the page itself, its data, a stream of news, and the records that it links to.

On the loopback interface everybody on this machine may look, but only under this machine's own names: a page from
elsewhere in the same browser cannot reach it through a name of its own (DNS rebinding). On any other interface nothing
is answered without the token that is in the address.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import mimetypes
import secrets
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from walktalk.errors import UnavailableError
from walktalk.report.live.board import Board

LOOPBACK = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::", "")
SILENCE = 10.0  # seconds after which the stream says that it is still there
BETWEEN = 0.25  # seconds between two pieces of news: nobody reads faster


class Door:
    """Where a live page can be reached: a socket that listens, and the token that is needed, if one is."""

    def __init__(self, host: str | None = None, port: int = 0) -> None:
        self.host = host or LOOPBACK
        self.token = "" if is_loopback(self.host) else secrets.token_urlsafe(16)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((self.host, port))
        except (OSError, OverflowError) as error:
            self.socket.close()
            raise UnavailableError(_why_not(self.host, port, error)) from error
        self.socket.listen(32)
        self.port = int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The address to open."""
        name = socket.gethostname() if self.host in ANYWHERE else self.host
        shown = f"[{name}]" if ":" in name else name
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _why_not(host: str, port: int, error: Exception) -> str:
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == 99:
        return f"--host {host}: is no address of this machine; 0.0.0.0 is all of them, 127.0.0.1 this machine alone"
    return f"--port {port} on {host}: {getattr(error, 'strerror', None) or error}; leave --port out to take a free one"


class Server(ThreadingHTTPServer):
    """Answers at a door until it is shut; a thread for everybody who looks."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, door: Door, board: Board, html: Callable[[], str], folder: Path | None) -> None:
        self.door, self.board, self.html, self.folder = door, board, html, folder
        super().__init__((door.host, door.port), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = door.socket
        self.server_address = door.socket.getsockname()
        self.server_name, self.server_port = door.host, door.port

    def start(self) -> None:
        """Answer from now on, in a thread."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, name="live", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed in the middle of an answer is no error."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer what is asked for, if the one who asks may know."""
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        page = query.get("page", [""])[0]
        refused = self._refused(query)
        if refused:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", refused.encode())
        elif address.path == "/":
            if "text/html" in self.headers.get("Accept", ""):  # a browser: the page will ask for news
                self.server.board.opened()
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.html().encode())
        elif address.path == "/page.json":
            state = self.server.board.state
            content = {"version": state.parts_version, "parts": state.parts}
            self._answer(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False).encode())
            self.server.board.taken(page, state.parts_version)
        elif address.path == "/events":
            self._events(page)
        else:
            self._file(unquote(address.path))

    def _refused(self, query: dict[str, list[str]]) -> str:
        """Why not; nothing if they may."""
        door = self.server.door
        if door.token:
            given = query.get("token", [""])[0] or self._token_of_referer()
            allowed = hmac.compare_digest(given.encode(), door.token.encode())
            return "" if allowed else "This page needs the token that is in its address: ?token=…\n"
        asked = self.headers.get("Host", "").rsplit(":", 1)[0].strip("[]")
        return "" if is_loopback(asked) else "This page answers under the names of this machine only.\n"

    def _token_of_referer(self) -> str:
        """Links on the page to the records lead here without the token, but say where they come from."""
        return parse_qs(urlsplit(self.headers.get("Referer", "")).query).get("token", [""])[0]

    def _events(self, page: str) -> None:
        """News as they come, until the page of this name is closed or there is nothing more to tell."""
        self.send_response(HTTPStatus.OK)
        for name, value in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")):
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        board = self.server.board
        board.watch(page)
        try:
            self._tell(board)
        except OSError:  # the page was closed
            pass
        finally:
            board.leave(page)

    def _tell(self, board: Board) -> None:
        version, told = -1, -1
        pause = threading.Event()
        while True:
            state = board.after(version, SILENCE)
            if state.version == version:
                self._say("still", {})
                continue
            version = state.version
            self._say("progress", state.progress)
            if state.parts_version != told and state.parts is not None:
                told = state.parts_version
                self._say("page", {"version": told})
            if state.ended:
                self._say("end", {})
                return
            pause.wait(BETWEEN)

    def _say(self, event: str, content: dict[str, Any]) -> None:
        self.wfile.write(f"event: {event}\ndata: {json.dumps(content, allow_nan=False)}\n\n".encode())
        self.wfile.flush()

    def _file(self, path: str) -> None:
        """A record of the study: nothing outside its folder, nothing hidden."""
        root = self.server.folder.resolve() if self.server.folder is not None else None
        file = (root / path.lstrip("/")).resolve() if root is not None else None
        inside = file is not None and root is not None and file.is_relative_to(root) and file.is_file()
        if file is None or not inside or any(part.startswith(".") for part in file.parts[len(root.parts) :]):  # type: ignore[union-attr]
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"There is nothing of that name here.\n")
            return
        kind = mimetypes.guess_type(file.name)[0] or ("text/plain" if file.suffix == ".yaml" else None)
        self._answer(HTTPStatus.OK, kind or "application/octet-stream", file.read_bytes())

    def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's news."""
