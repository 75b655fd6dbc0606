"""A node's certificate files while it runs: new ones are taken without a restart, and what ends soon is warned of.

The files are looked at every few seconds. What has changed and holds together (certificate, key, authority, the list of
the revoked) is put into force: the link opens its connections anew (`Connections.reopen`), since Zenoh reads such files
only when it begins to listen. What does not hold together is said once, and what was in force stays so.

A connection outlives the certificates that it was opened with: who is to be gone is revoked. But a new one is made with
certificates that hold, on both sides. So a node with a new one leaves its connections as they are while a neighbour is
there whose certificate has run out: opened anew, that one would be lost. Each tells the others of its new certificate,
and when the last has one, all open their connections anew. A node whose own has run out does not wait for that where
somebody is missing whom it could meet with the new one.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from walktalk.core.errors import UserError
from walktalk.core.wall_clock import wall_moment
from walktalk.records import write_text
from walktalk.runtimes.peers.identity.certificates import (
    REVOKED_FILE,
    Credentials,
    Revocations,
    Revoked,
    Validity,
    bearer,
    certificates_in,
    credentials,
    judge,
    outlook,
    parse_revoked,
)

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0  # seconds
WARN_EVERY = (86_400.0, 86_400.0, 86_400.0, 3_600.0, 3_600.0)
"""Seconds between two lines about one and the same end, by how urgent it is (`Validity.warning`)."""


class Renewal:
    """Watches over one node's certificate files, in a thread, until it is closed."""

    def __init__(
        self,
        files: Credentials,
        name: str,
        others: Callable[[], Iterable[str]] | None,
        apply: Callable[[Credentials], None],
        there: Callable[[], tuple[Collection[str], Collection[str]]] = lambda: ((), ()),
    ) -> None:
        """
        - `files`: those in force.
        - `name`: the node's.
        - `others`: says whom it talks to; None for anybody.
        - `apply`: puts others into force.
        - `there`: says which neighbours are there, and which are missing.
        """
        self.files, self.name, self._apply = files, name, apply
        self.newest = files  # the newest that hold together: they may wait until they are in force
        self._others, self._there = others, there
        self._ends: dict[str, datetime.datetime] = {}  # by neighbour: when the latest certificate of it ends
        self.outlook: Validity = outlook(files)
        self._in_force_until = self.outlook.until
        self._taken = self._seen = self._digest()
        self._complained = self._waited = ""
        self._warned: tuple[str, float] = ("", 0.0)
        self._wake, self._ended = threading.Event(), False
        self._looking = threading.Lock()  # two that look at once would both take what is new
        self._say_who_is_refused(Revocations())
        self._warn()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching the files."""
        self._ended = True
        self._wake.set()

    def receive_list(self, text: str) -> bool:
        """Take over a list of the revoked that somebody brings; whether it is newer than the one in force.

        A `SpecError` where the authority has not signed it, `OSError` where it cannot be written.
        """
        new = parse_revoked(text.encode(), certificates_in(self.files.authority), "what was brought")
        if new.number <= self.files.revocations.number:
            return False
        write_text(self.files.authority.with_name(REVOKED_FILE), text)
        self._seen = self._digest()  # it is whole: there is no need to look twice
        self._wake.set()
        return True

    def learn_end(self, name: str, end: datetime.datetime) -> None:
        """A neighbour has shown a certificate that holds until then."""
        known = self._ends.get(name)
        self._ends[name] = end if known is None else max(known, end)

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(LOOK_EVERY)
            self._wake.clear()
            if not self._ended:
                self.look()

    def look(self) -> None:
        """Look at the files once. What has changed counts at the second look: it may be half written at the first."""
        try:
            with self._looking:
                digest = self._digest()
                if digest not in (self._taken, self._seen):
                    self._seen = digest
                elif digest != self._taken:
                    self._adopt(digest)
                self._warn()
        except Exception:  # whatever it is, the node goes on with what it has
            log.exception("%s: its certificates could not be looked at", self.name)

    def _adopt(self, digest: str) -> None:
        before = self.files
        try:
            new = credentials(before.certificate.parent, self.name)
        except Revoked as error:
            self.outlook = self.outlook._replace(state="revoked")
            self._complain(str(error))
            return
        except UserError as error:
            self._complain(f"{error}; it goes on with the certificate that it has")
            return
        if new.revocations.number < before.revocations.number:
            log.warning("%s: the list of the revoked is gone or old; the one before stays in force", self.name)
            new = replace(new, revocations=before.revocations)
        self.newest, self.outlook, self._complained = new, outlook(new), ""
        if not self._put_into_force(new, digest):
            return
        self.files, self._taken, self._waited = new, digest, ""
        self._in_force_until = self.outlook.until
        self._say_who_is_refused(before.revocations)

    def _put_into_force(self, new: Credentials, digest: str) -> bool:
        """Where nothing has changed that concerns connections of this node, they stay as they are."""
        before, same = self.files.revocations, self._certificates(digest) == self._certificates(self._taken)
        if all(before.accepted(one) == new.revocations.accepted(one) for one in self._concerned(new)):
            if same:
                return True
            if self._waits():
                return False
        what = "a list of revoked certificates" if same else f"a certificate valid until {outlook(new).until:%Y-%m-%d}"
        log.info("%s: takes %s, and opens its connections anew", self.name, what)
        try:
            self._apply(new)
        except UserError as error:  # the port is taken by what lingers: it is tried again
            self._complain(str(error))
            return False
        return True

    def _waits(self) -> bool:
        """Whether to leave connections as they are, for the sake of neighbours that would be refused now."""
        now = wall_moment()
        over = {name for name, end in self._ends.items() if end < now}
        there, missing = self._there()
        lost = ", ".join(sorted(over.intersection(there)))
        if not lost or (self._in_force_until < now and set(missing) - over):
            return False
        if lost != self._waited:
            self._waited = lost
            says = "%s: has a new certificate, and leaves its connections open until %s has one, too: renew it"
            log.warning(says, self.name, lost)
        return True

    def _concerned(self, files: Credentials) -> Iterable[str]:
        """Names of other nodes that may be in a list."""
        return sorted(set(map(bearer, files.revocations.names))) if self._others is None else self._others()

    def _say_who_is_refused(self, before: Revocations) -> None:
        now = self.files.revocations
        for other in self._concerned(self.files):
            if now.accepted(other) != before.accepted(other):
                since = max(when for name, when in now.names.items() if bearer(name) == other)
                log.warning("%s: refuses %s: its certificate was revoked on %s", self.name, other, f"{since:%Y-%m-%d}")

    def _complain(self, line: str) -> None:
        if line != self._complained:
            self._complained = line
            log.error("%s: %s", self.name, line)

    def _warn(self) -> None:
        """Warn once a day of what ends soon or has ended."""
        if self.outlook.state != "revoked":
            self.outlook = judge(self.outlook.until, self.outlook.which)
        line, now = self.outlook.in_words(), time.monotonic()
        warning = self.outlook.warning
        if not warning or (line == self._warned[0] and now < self._warned[1] + WARN_EVERY[warning]):
            return
        self._warned = line, now
        log.log(logging.WARNING if warning < 3 else logging.ERROR, "%s: %s", self.name, line)

    def _digest(self) -> str:
        """The digests of all files, one after the other."""
        return " ".join(self._digest_of(path) for path in self.files.files)

    @staticmethod
    def _digest_of(path: Path) -> str:
        with suppress(OSError):
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return "-"

    @staticmethod
    def _certificates(digest: str) -> list[str]:
        """The part of the digests that is about certificates and keys; the list comes last."""
        return digest.split()[:-1]
