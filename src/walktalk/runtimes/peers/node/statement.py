"""What a node has done and what has left it, signed: its part of the record of who trained what.

A node counts what it sends to whom and what comes from whom, by day, from the same lines that it writes into its event
log. The counts go on from life to life: they are in its checkpoint, and what came after that is read from the log. With
every checkpoint, at its end, and when somebody collects, it writes `statement.json` into its folder: all of that with
its trainings, its samples and its lives, signed with its own key. `operations.record` puts the statements of all sites
together.

Counts are of the protocol's messages, models above all. Beside them neighbours hear counts, losses and certificates,
and whoever collects gets event logs and the model, which is counted here under the operator's name.
"""

from __future__ import annotations

import base64
import collections
import datetime
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding

from walktalk import __version__
from walktalk.core.errors import UserError
from walktalk.records import TraceRow, write_text
from walktalk.runtimes.peers.identity.certificates import OPERATOR, Credentials, certificates_in, private_key
from walktalk.runtimes.peers.identity.signed_statements import signature_of
from walktalk.runtimes.peers.node.event_log import BEST, COPY, STATEMENT, parts_in, read_lines

log = logging.getLogger(__name__)

FORM = "walktalk-statement-1"
LIVES = 1000  # that are named one by one: the first, and the latest
SENT, RECEIVED = "sent", "received"
OTHERS = -1  # in place of a node's number: the operator, who collects


@dataclass
class Flow:
    """What went one way between two nodes."""

    models: int = 0
    messages: int = 0
    bytes: int = 0
    first: float = 0.0  # moment of the first, in seconds since 1970; 0: there was none
    last: float = 0.0
    days: dict[str, list[int]] = field(default_factory=dict)  # by day (UTC): models and bytes

    def add(self, moment: float, models: int, messages: int, size: int) -> None:
        """Count something more, or less."""
        self.models, self.messages, self.bytes = self.models + models, self.messages + messages, self.bytes + size
        if messages > 0:
            self.first, self.last = min(self.first or moment, moment), max(self.last, moment)
        day = self.days.setdefault(in_words(moment)[:10], [0, 0])
        day[0], day[1] = day[0] + models, day[1] + size

    def merge(self, other: Flow) -> None:
        """Add all that was counted elsewhere."""
        self.models, self.messages = self.models + other.models, self.messages + other.messages
        self.bytes += other.bytes
        self.first = min(filter(None, (self.first, other.first)), default=0.0)
        self.last = max(self.last, other.last)
        for day, (models, size) in other.days.items():
            known = self.days.setdefault(day, [0, 0])
            known[0], known[1] = known[0] + models, known[1] + size

    def said(self) -> dict[str, Any]:
        """The counts, as a statement says them."""
        moments = {"first": in_words(self.first), "last": in_words(self.last)} if self.first else {}
        return {"models": self.models, "messages": self.messages, "bytes": self.bytes, **moments, "days": self._days()}

    def kept(self) -> list[Any]:
        """The counts, as a checkpoint keeps them."""
        return [self.models, self.messages, self.bytes, int(1e3 * self.first), int(1e3 * self.last), self._days()]

    def _days(self) -> dict[str, list[int]]:
        """A copy: another thread writes it down while this one counts on."""
        return {day: list(both) for day, both in self.days.items()}


class Life(NamedTuple):
    """When a node was there, from one start to the next end."""

    began: float  # in seconds since 1970
    last: float  # moment of the last event
    walktalk: str = ""  # its version; "" where that is not known

    def said(self) -> dict[str, str]:
        """As a statement says it."""
        return {"began": in_words(self.began), "last": in_words(self.last), "walktalk": self.walktalk}


class Exchanged:
    """Counts what a node sends and gets, and when it was there, over all its lives; callable from any thread."""

    def __init__(self, walktalk: str = "") -> None:
        """walktalk: the version that counts from now on."""
        self.flows: dict[tuple[str, int], Flow] = {}  # by way and neighbour
        self.lives: list[Life] = []  # in order; the last one is of now
        self.waiting = collections.deque[TraceRow]()  # lines that are counted when somebody wants to know
        self.whole = True  # all that earlier lives did is counted
        self._before = 0  # lives of before, at the beginning of the list
        self._walktalk = walktalk
        self._lock = threading.Lock()

    def add(self, row: TraceRow) -> None:
        """Count one more line of the node's trace."""
        if len(self.lives) == self._before:
            self.lives.append(Life(row.time, row.time, self._walktalk))
        self.lives[-1] = self.lives[-1]._replace(last=row.time)
        if row.event == "send":
            self._add(SENT, row.peer, row.time, int(bool(row.slot)), 1, row.bytes)
        elif row.event == "superseded":  # it was taken back before it left
            self._add(SENT, row.peer, row.time, -1, -1, -row.bytes)
        elif row.event == "receive":
            self._add(RECEIVED, row.peer, row.time, int(bool(row.slot)), 1, 0)

    def hand_out(self, file: str, size: int, begins: bool, moment: float) -> None:
        """Count a piece of a file that whoever collects has got.

        - `file`: its name; copies of the model count as models.
        - `size`: bytes of the piece.
        - `begins`: whether it is the first of the file.
        - `moment`: of now.
        """
        with self._lock:
            self._add(SENT, OTHERS, moment, int(begins and file in (COPY, BEST)), int(begins), size)

    def _add(self, way: str, peer: int, moment: float, models: int, messages: int, size: int) -> None:
        self.flows.setdefault((way, peer), Flow()).add(moment, models, messages, size)

    def _catch_up(self) -> None:
        while self.waiting:
            self.add(self.waiting.popleft())

    def said(self, name_of: Callable[[int], str]) -> dict[str, Any]:
        """All counts by name, and the lives, as a statement says them."""
        with self._lock:
            self._catch_up()
            found: dict[str, Any] = {SENT: {}, RECEIVED: {}, "lives": [life.said() for life in self.lives]}
            found["whole"] = self.whole
            for (way, peer), flow in sorted(self.flows.items()):
                said = flow.said()
                if way == RECEIVED:  # whoever sent it counts its bytes
                    del said["bytes"], said["days"]
                found[way][OPERATOR if peer == OTHERS else name_of(peer) or f"node {peer}"] = said
            return found

    def kept(self) -> dict[str, Any] | None:
        """What a checkpoint keeps; None while what earlier lives did is not counted."""
        with self._lock:
            self._catch_up()
            if not self.whole:
                return None
            flows = {f"{way} {peer}": flow.kept() for (way, peer), flow in self.flows.items()}
            lives = [[int(1e3 * life.began), int(1e3 * life.last), life.walktalk] for life in self.lives]
            return {"flows": flows, "lives": lives}

    def go_on(self, kept: Mapping[str, Any] | None, lives: Mapping[int, Sequence[Path]], number: int) -> None:
        """Count on from an earlier life, in a thread where all logs have to be read.

        - `kept`: what its checkpoint says; None: nothing, so all lives are counted from their logs.
        - `lives`: the event logs of all earlier lives, part by part.
        - `number`: of the checkpoint: what stands behind it in the log of the last life is counted, too.
        """
        if kept is None:
            self.whole = False
            threading.Thread(target=self._count_all, args=(list(lives.values()),), name="counts", daemon=True).start()
            return
        before = _counted(kept)
        for row in _behind(lives[max(lives)] if lives else (), number):
            before.add(row)
        self._merge(before)

    def _count_all(self, lives: Iterable[Sequence[Path]]) -> None:
        found = Exchanged()
        try:
            for parts in lives:
                found._before = len(found.lives)
                for part in parts:
                    for row in read_lines([part]):
                        found.add(row)
        except OSError as error:
            log.warning("what was sent before cannot be counted: %s", error)
            return
        self._merge(found)
        self.whole = True

    def _merge(self, earlier: Exchanged) -> None:
        with self._lock:
            for key, flow in earlier.flows.items():
                self.flows.setdefault(key, Flow()).merge(flow)
            lives = earlier.lives if len(earlier.lives) < LIVES else [earlier.lives[0], *earlier.lives[2 - LIVES :]]
            self.lives[:0] = lives
            self._before += len(lives)


def _counted(kept: Mapping[str, Any]) -> Exchanged:
    """What a checkpoint says; the lines behind it are of its last life."""
    found = Exchanged()
    for key, (models, messages, size, first, last, days) in kept["flows"].items():
        way, _, peer = key.partition(" ")
        counts = int(models), int(messages), int(size), first / 1e3, last / 1e3
        found.flows[way, int(peer)] = Flow(*counts, {day: list(map(int, both)) for day, both in days.items()})
    found.lives = [Life(began / 1e3, last / 1e3, str(walktalk)) for began, last, walktalk in kept["lives"]]
    found._before = max(0, len(found.lives) - 1)
    return found


def _behind(parts: Sequence[Path], number: int) -> list[TraceRow]:
    """The lines of a life behind its checkpoint of a number; the last parts alone are read, where they have it."""
    found: list[TraceRow] = []
    for part in reversed(parts):
        rows = read_lines([part])
        at = [place for place, row in enumerate(rows) if row.event == "saved" and row.number == number]
        if at:
            return rows[at[-1] + 1 :] + found
        found = rows + found
    return []  # a life that has written no such checkpoint: all of it is in that


def earlier_lives(folder: Path, own: int) -> dict[int, list[Path]]:
    """The event logs of a node's earlier lives, part by part."""
    return {life: parts for life, parts in parts_in(folder).items() if life < own}


# -- the statement ----------------------------------------------------------------------------------------------------


def in_words(moment: float) -> str:
    """Seconds since 1970 as ISO 8601, in UTC."""
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).isoformat(timespec="seconds")


def signed(statement: Mapping[str, Any], files: Credentials | None) -> dict[str, Any]:
    """A statement with the certificates and the signature of whoever makes it; without files, unsigned.

    Args:
        statement: What is said: texts, whole numbers, lists and objects.
        files: The key, and its certificate.
    """
    if files is None:
        return {"statement": dict(statement), "certificates": [], "signature": ""}
    chain = [_text(one.public_bytes(Encoding.DER)) for one in certificates_in(files.certificate)]
    signature = signature_of(bytes_to_sign(statement), private_key(files.key))
    return {"statement": dict(statement), "certificates": chain, "signature": _text(signature)}


def bytes_to_sign(statement: Mapping[str, Any]) -> bytes:
    """The one form in which a statement is signed, whatever file it stands in."""
    return FORM.encode() + b"\0" + json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_statement(folder: Path, statement: Mapping[str, Any], files: Credentials | None) -> None:
    """Write a node's signed statement into its folder; where it cannot be, that is logged, and the next one may be."""
    try:
        text = json.dumps(signed(statement, files), indent=1, sort_keys=True)
        write_text(folder / STATEMENT, text + "\n")
    except (OSError, UserError, ValueError) as error:
        log.warning("%s cannot be written: %s", folder / STATEMENT, error)


def statement_of(facts: Mapping[str, Any], own: Mapping[str, Any], exchanged: Mapping[str, Any]) -> dict[str, Any]:
    """All that a node says of what it has done.

    Args:
        facts: Its study.
        own: Who it is, and its counts.
        exchanged: What was sent to whom, what came from whom, and when it was there.
    """
    study = {key: value for key, value in facts.items() if key != "version" and not isinstance(value, list | float)}
    return {"form": FORM, "walktalk": __version__, **own, "study": study, **exchanged}
