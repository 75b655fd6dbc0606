"""Serves a cluster's page from this process, which has nothing else to do than to ask and to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from walktalk.report.live.board import Board
from walktalk.report.live.cluster import Answer, ClusterPage
from walktalk.report.live.server import Door, Server

Take = Callable[[dict[str, Answer | None], float], None]


@contextmanager
def served_cluster(page: ClusterPage, *, host: str | None = None, port: int = 0) -> Iterator[tuple[str, Take]]:
    """The page's address, and a function that takes the nodes' answers and the seconds since they were first asked.

    `host`: the interface to listen on, this machine alone if left out; `port`: 0 takes a free one.
    """
    board = Board()
    door = Door(host, port)
    server = Server(door, board, page.html, None)
    server.start()

    def take(answers: dict[str, Answer | None], seconds: float) -> None:
        page.take(answers, seconds)
        board.show(parts=page.parts(), progress=page.progress())

    try:
        yield door.url, take
    finally:
        server.stop()
