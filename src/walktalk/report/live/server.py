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
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from walktalk.core.errors import UnavailableError

# -- what live pages show now, and a way for their threads to wait for a change ---------------------------------------

OPENING = 10.0  # seconds after which a page that was handed out and asked for no news was closed again


class Snapshot(NamedTuple):
    """What live pages show at one moment, with the number of its version."""

    version: int  # grows with every change
    parts: dict[str, Any] | None  # `sections` and `data` of the page; None before there is anything to show
    parts_version: int  # when they changed last
    progress: dict[str, Any]  # how far it is, in words and numbers
    ended: bool  # nothing will come any more


class PageState:
    """The state, and who waits for it: pages, each under a name of its own, which it keeps when it is loaded again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = Snapshot(0, None, 0, {}, False)
        self._opening: list[float] = []  # when pages were handed out that have not asked for news yet
        self._watching: Counter[str] = Counter()  # streams of news that are open, by page
        self._to_come: set[str] = set()  # of those that heard of the end, which have not taken the last state yet

    @property
    def state(self) -> Snapshot:
        """The state as it is now."""
        return self._state

    def update(
        self, *, parts: dict[str, Any] | None = None, progress: dict[str, Any] | None = None, ended: bool = False
    ) -> None:
        """Replace the parts that are given, and wake whoever waits for a change."""
        with self._changed:
            before = self._state
            version = before.version + 1
            self._state = Snapshot(
                version,
                before.parts if parts is None else parts,
                before.parts_version if parts is None else version,
                before.progress if progress is None else progress,
                before.ended or ended,
            )
            if ended and not before.ended:
                self._to_come = set(self._watching)
            self._changed.notify_all()

    def wait_for_change(self, version: int, seconds: float) -> Snapshot:
        """The first state after this version; the same one if nothing changes for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.version > version, seconds)
            return self._state

    @property
    def is_watched(self) -> bool:
        """Whether any page is open at the moment."""
        return bool(self._watching)

    def page_handed_out(self) -> None:
        """A page is handed out; it will ask for news in a moment, unless it is closed before."""
        with self._changed:
            self._opening = [*self._recent(), time.monotonic()]

    def page_listens(self, page: str) -> None:
        """A page waits for news from now on."""
        with self._changed:
            del self._opening[:1]
            self._watching[page] += 1
            if self._state.ended:  # it was loaded while this ended: it gets the last state, too
                self._to_come.add(page)
            self._changed.notify_all()

    def page_left(self, page: str) -> None:
        """A stream of news has ended: the page is closed or loaded again, or has heard of the end."""
        with self._changed:
            self._watching -= Counter([page])  # to none, a page is no more in it

    def page_received(self, page: str, version: int) -> None:
        """A page has taken the parts of this version; after the end, it has all that there will be."""
        with self._changed:
            if self._state.ended and version == self._state.parts_version:
                self._to_come.discard(page)
                self._changed.notify_all()

    def wait_until_received(self, seconds: float) -> bool:
        """Whether all pages that are open or being opened have the last state; waits for it so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._to_come and not self._recent(), seconds)

    def _recent(self) -> list[float]:
        return [when for when in self._opening if time.monotonic() - when < OPENING]


LOOPBACK = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::", "")
SILENCE = 10.0  # seconds after which the stream says that it is still there
BETWEEN = 0.25  # seconds between two pieces of news: nobody reads faster


class LiveAddress:
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
    """Answers at an address until it is shut; a thread for everybody who looks."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: LiveAddress, pages: PageState, html: Callable[[], str], folder: Path | None) -> None:
        self.address, self.pages, self.html, self.folder = address, pages, html, folder
        super().__init__((address.host, address.port), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = address.socket
        self.server_address = address.socket.getsockname()
        self.server_name, self.server_port = address.host, address.port

    def start(self) -> None:
        """Answer from now on, in a thread."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, name="live", daemon=True).start()

    def stop(self) -> None:
        """Stop answering and close the socket."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed in the middle of an answer is no error."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request of a browser: the page, its data, a stream of events, or a file of the study."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer what is asked for, if the one who asks may know."""
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        page = query.get("page", [""])[0]
        refused = self._refused(query)
        if refused:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", refused.encode())
        elif asked.path == "/":
            if "text/html" in self.headers.get("Accept", ""):  # a browser: the page will ask for news
                self.server.pages.page_handed_out()
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.html().encode())
        elif asked.path == "/page.json":
            state = self.server.pages.state
            content = {"version": state.parts_version, "parts": state.parts}
            self._answer(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False).encode())
            self.server.pages.page_received(page, state.parts_version)
        elif asked.path == "/events":
            self._events(page)
        else:
            self._file(unquote(asked.path))

    def _refused(self, query: dict[str, list[str]]) -> str:
        """Why the request is refused; empty where it is allowed."""
        address = self.server.address
        if address.token:
            given = query.get("token", [""])[0] or self._token_of_referer()
            allowed = hmac.compare_digest(given.encode(), address.token.encode())
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
        pages = self.server.pages
        pages.page_listens(page)
        try:
            self._stream_events(pages)
        except OSError:  # the page was closed
            pass
        finally:
            pages.page_left(page)

    def _stream_events(self, pages: PageState) -> None:
        version, told = -1, -1
        pause = threading.Event()
        while True:
            state = pages.wait_for_change(version, SILENCE)
            if state.version == version:
                self._send_event("still", {})
                continue
            version = state.version
            self._send_event("progress", state.progress)
            if state.parts_version != told and state.parts is not None:
                told = state.parts_version
                self._send_event("page", {"version": told})
            if state.ended:
                self._send_event("end", {})
                return
            pause.wait(BETWEEN)

    def _send_event(self, event: str, content: dict[str, Any]) -> None:
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
