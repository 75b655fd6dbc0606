"""A port for those who watch a node: `/metrics` for Prometheus, `/health` and `/live` for people and supervisors.

It answers GET and nothing else, reads nothing from the client but the path, and tells nothing of the data or the model
but its loss. Nobody is asked who they are: it listens on this machine alone unless told otherwise.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.runtimes.peers.node.health import Health

log = logging.getLogger(__name__)

HERE = "127.0.0.1"
MOST_CLIENTS = 16  # at once
CLIENTS_PATIENCE = 5.0  # seconds that a client may take to say what it wants
WHAT_THERE_IS = b"walktalk node: /metrics (Prometheus), /health (200 or 503, JSON), /live (200 unless it is stuck)\n"


def parse_address(given: str | int) -> tuple[str, int]:
    """Parse host and port of `9100`, `0.0.0.0:9100` or `[::]:9100`."""
    host, _, port = str(given).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SpecError(f"metrics: {given!r} is no place to listen; give a port such as 9100, or host:port")
    return host.strip("[]") or HERE, int(port)


class MonitoringServer:
    """Serves a node's metrics and health. Takes its port when it is made, and answers from `show` on."""

    def __init__(self, place: str | int) -> None:
        """`place`: where to listen; port 0 is any that is free."""
        self.host, port = parse_address(place)
        try:
            self._server = _Server((self.host, port), _Handler)
        except OSError as error:
            raise UnavailableError(
                f"metrics: cannot listen on {self.host}:{port}: {error.strerror or error}; each node of a machine "
                "needs its own: `walktalk node --metrics PORT`, or `metrics: PORT` at the node in the cluster file"
            ) from error
        self.port = int(self._server.server_address[1])
        self._serving = False

    def __enter__(self) -> MonitoringServer:
        return self

    def show(self, health: Health) -> None:
        """Answer whoever asks about the node with this health, or has asked already."""
        self._server.health, self._server.written = health, _written_metrics(health)
        threading.Thread(target=self._server.serve_forever, name="watched", daemon=True).start()
        self._serving = True
        log.info("%s: metrics are at http://%s/metrics", health.name, self.address)

    @property
    def address(self) -> str:
        """host:port, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._serving:
            self._server.shutdown()
        self._server.server_close()


@contextmanager
def shown(place: str | int | None) -> Iterator[Callable[[Health], None]]:
    """What is to be called with a node's health, once there is one; without a place nobody is shown anything."""
    if place is None:
        yield lambda health: None
        return
    with MonitoringServer(place) as window:
        yield window.show


def _written_metrics(health: Health) -> Callable[[str], tuple[bytes, str]]:
    try:
        from walktalk.runtimes.peers.operations.metrics import written_metrics
    except ImportError as error:
        raise UnavailableError("metrics need prometheus-client: pip install 'walktalk[peers]'") from error
    return written_metrics(health)


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a client that hangs does not keep the node
    block_on_close = False
    health: Health  # what is shown
    written: Callable[[str], tuple[bytes, str]]  # its metrics, in the form that a client accepts, and that form's name

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        self._room = threading.Semaphore(MOST_CLIENTS)
        super().__init__(place, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a client in a thread of its own; of too many at once some are turned away."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a client, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a watcher went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENTS_PATIENCE
    server_version, sys_version = "walktalk", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        if path == "/metrics":
            self._answer(HTTPStatus.OK, *self.server.written(self.headers.get("Accept", "")))
        elif path == "/health":
            complaints = self.server.health.complaints()
            self._answer_json(not complaints, {"healthy": not complaints, "reasons": complaints, **self._facts()})
        elif path == "/live":
            stuck = self.server.health.is_stuck
            self._answer_json(not stuck, {"live": not stuck})
        elif not path:
            self._answer(HTTPStatus.OK, WHAT_THERE_IS, "text/plain; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, WHAT_THERE_IS, "text/plain; charset=utf-8")

    do_HEAD = do_GET

    def _facts(self) -> dict[str, object]:
        health = self.server.health
        status = health.status()
        status["alive"] = [name for name, there in status["neighbours"].items() if there]
        status["missing"] = [name for name, there in status["neighbours"].items() if not there]
        return {
            name: status[name]
            for name in ("name", "state", "iterations", "loss", "alive", "missing", "checkpoint_age", "warnings")
        }

    def _answer_json(self, well: bool, content: dict[str, object]) -> None:
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, json.dumps(content, allow_nan=False).encode() + b"\n", "application/json")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes every few seconds are nothing for a node's log."""
