"""What a person asks of a running cluster: connect to all nodes, ask each, gather the answers, fetch files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from walktalk.runtimes.peers.certificates import OPERATOR
from walktalk.runtimes.peers.cluster import Cluster
from walktalk.runtimes.peers.ports import with_known_ports
from walktalk.runtimes.peers.session import BROUGHT, PIECE, RECORDS, open_session
from walktalk.runtimes.peers.tunnels import open_tunnels

AT_ONCE = 8  # pieces of a file under way: a round trip between two sites takes as long as a piece or more
TRY_AGAIN = 0.05  # seconds until who has not answered is asked again
SECONDS_A_PIECE = 10.0  # until a node that was there a moment ago is given up


class Caller:
    """The operator's connection to all nodes whose addresses are known. Use as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._endpoint = with_known_ports(cluster).operator()
        self.addresses = self._endpoint.connect
        self._tunnels = open_tunnels(self._endpoint)
        self._session = open_session(self._endpoint, self._tunnels)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()  # type: ignore[no-untyped-call]
        if self._tunnels is not None:
            self._tunnels.close()

    def ask(
        self, names: Iterable[str], question: str, seconds: float, **asked: object
    ) -> dict[str, dict[str, Any] | None]:
        """Each node's answer; None where none came in time. A text that is asked as `brought` goes along."""
        answers: dict[str, dict[str, Any] | None] = dict.fromkeys(names)
        end = time.monotonic() + seconds
        while (missing := [name for name, answer in answers.items() if answer is None]) and time.monotonic() < end:
            waiting = {name: self._get(name, question, max(0.5, seconds / 4), **asked) for name in missing}
            for name, replies in waiting.items():
                for reply in replies:
                    if reply.ok is not None:
                        answers[name] = _parsed(reply.ok.payload.to_bytes())
            time.sleep(TRY_AGAIN)
        return answers

    def fetch(self, name: str, file: str, size: int, to: Path, told: Callable[[int], None] = lambda size: None) -> bool:
        """Append to a file here what a node's file of that name has more, up to a size; whether all of it came.

        `told` is called with the bytes of every piece.
        """
        have = to.stat().st_size if to.exists() else 0
        starts = range(have, size, PIECE)
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("ab") as here:
            for first in range(0, len(starts), AT_ONCE):
                asked = [(start, self._ask_piece(name, file, start)) for start in starts[first : first + AT_ONCE]]
                for start, replies in asked:
                    piece = self._piece(replies) or self._piece(self._ask_piece(name, file, start))  # once more
                    if piece is None or len(piece) < min(PIECE, size - start):
                        return False
                    here.write(piece[: size - start])
                    told(min(PIECE, size - start))
        return True

    def _ask_piece(self, name: str, file: str, start: int) -> Any:
        return self._get(name, RECORDS, SECONDS_A_PIECE, file=file, **{"from": start})

    @staticmethod
    def _piece(replies: Any) -> bytes | None:
        for reply in replies:
            if reply.ok is not None:
                piece: bytes = reply.ok.payload.to_bytes()
                return piece
        return None

    def _get(self, name: str, question: str, seconds: float, **asked: object) -> Any:
        brought = asked.pop(BROUGHT, None)
        parameters = ";".join(f"{key}={value}" for key, value in asked.items())
        key = self._endpoint.key(name, OPERATOR, question)
        return self._session.get(f"{key}?{parameters}" if parameters else key, timeout=seconds, payload=brought)


def _parsed(answer: bytes) -> dict[str, Any] | None:
    """What a node said; None where it is nonsense."""
    try:
        said = json.loads(answer, parse_constant=lambda word: None)  # NaN is not JSON: others could not read it
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def ask_everyone(cluster: Cluster, question: str, seconds: float = 3.0) -> dict[str, dict[str, Any] | None]:
    """Each node's answer; None where none came in time."""
    with Caller(cluster) as caller:
        return caller.ask(cluster.nodes, question, seconds)
