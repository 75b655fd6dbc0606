"""What a node says of its site: which state of the cluster's file it was started with, and the form of its data.

A cluster's file goes to its sites in kits (`operations.kits`). An *edition* is what all kits have in common that were
made of one state of the file: a number that grows, dates, and a digest. A node that was started with a kit shows its
edition to its neighbours, so the first one with another sees which of the two is old, and both say so by name. An old
kit is no reason to refuse anybody: a study that differs is, and then the kits stand beside it.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

import walktalk
from walktalk.core.untrusted import Refused, parsed_json, reading
from walktalk.core.wall_clock import wall_moment, wall_seconds
from walktalk.learning import Schema
from walktalk.runtimes.peers.identity.certificates import certificates_in
from walktalk.runtimes.peers.identity.handshake import differences
from walktalk.runtimes.peers.identity.signed_statements import check_signature, signature_of

KIT, SIGNATURE = "kit", "kit signature"
"""By these names a node tells its edition, and the signature under it, among what it says of itself."""

SOON = 14  # days before the end of a kit from which on that is worth a word


@dataclass(frozen=True)
class Edition:
    """One state of a cluster's file, as it went to all sites."""

    cluster: str
    number: int  # grows with every change
    issued: str  # days, as 2026-11-19
    ends: str
    digest: str  # of the cluster's file, its study and the authority's certificate
    walktalk: str  # the version that made it
    signature: str = ""  # of the authority, in base64

    @property
    def words(self) -> str:
        """The edition as a person is told it."""
        return f"kit {self.number} of {self.issued}"

    @property
    def days_left(self) -> int:
        """Days until its end; less than 0 after it."""
        return (datetime.date.fromisoformat(self.ends) - wall_moment().date()).days

    def content(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(["walktalk kit", self.cluster, *self._told().split(" ")]).encode()

    def signed(self, key: PrivateKeyTypes) -> Edition:
        """The edition with the authority's signature."""
        return replace(self, signature=base64.b64encode(signature_of(self.content(), key)).decode())

    def check(self, authority: Path) -> None:
        """Raise `Refused` where nobody in this file of certificates has signed it."""
        check_signed(self.content(), self.signature, authority)

    def said(self) -> dict[str, str]:
        """What a node says of it to its neighbours."""
        return {KIT: self._told(), SIGNATURE: self.signature}

    def _told(self) -> str:
        return f"{self.number} {self.issued} {self.ends} {self.digest} {self.walktalk}"


def heard_edition(cluster: str, said: Mapping[str, Any], authority: Path | None) -> Edition | None:
    """The edition that a neighbour says it was started with; None where it names none, `Refused` where it lies.

    Args:
        cluster: whose kits these are.
        said: what it says of itself.
        authority: whose signature counts; None: nothing is checked.
    """
    told = said.get(KIT)
    if not isinstance(told, str):
        return None
    edition = reading("a kit's edition", lambda: _parsed(cluster, told, str(said.get(SIGNATURE, ""))))
    if authority is not None:
        edition.check(authority)
    return edition


def _parsed(cluster: str, told: str, signature: str) -> Edition:
    number, issued, ends, digest, version = told.split(" ")
    edition = Edition(cluster, int(number), issued, ends, digest, version, signature)
    datetime.date.fromisoformat(issued), datetime.date.fromisoformat(ends)
    return edition


def check_signed(content: bytes, signature: str, authority: Path) -> None:
    """Raise `Refused` where no authority in a file of certificates has signed this."""
    raw = reading("a signature", lambda: base64.b64decode(signature, validate=True))
    for one in certificates_in(authority):
        try:
            check_signature(content, raw, one)
        except ValueError:
            continue
        return
    raise Refused("it is not signed by the authority of this cluster")


def older_kit(own: Edition | None, other: Edition | None, names: tuple[str, str]) -> str:
    """The line that one of two nodes was started with an older kit; "" where neither was, or one has none.

    Args:
        own, other: what this node and its neighbour were started with.
        names: of this node and of the neighbour.
    """
    if own is None or other is None or (own.number, own.digest) == (other.number, other.digest):
        return ""
    if own.number == other.number:
        return f"{names[1]} and this node have two kits of one number, {own.number}: make all kits in one place"
    old, new = (own, other) if own.number < other.number else (other, own)
    who, whom = ("this node", names[1]) if old is own else (names[1], "this node")
    site = names[0] if old is own else names[1]
    return f"{who} was started with an old kit, {old.words}; {whom} has {new.words}: open the new kit at {site}"


# -- what a site says to another that looks at it (`operations.looking`) -----------------------------------------------

WEIGHED = 256 * 1024  # bytes there and back, by which a bandwidth is measured
MOST_WORDS = 20  # differences that are told


@dataclass(frozen=True)
class Sight:
    """What a site says of itself to another that looks at it."""

    facts: Mapping[str, Any]  # of its study
    schema: Schema | None  # of its data
    edition: Edition | None  # of its kit


def look_answer(sight: Sight) -> Callable[[Mapping[str, str]], bytes]:
    """What answers another site's look."""

    def answer(asked: Mapping[str, str]) -> bytes:
        said = parsed_json(asked.get("said", "{}"))
        if not isinstance(said, dict):
            raise ValueError("a look is an object in JSON")
        facts, wanted = said.get("facts"), said.get("bytes", 0)
        back = min(wanted, WEIGHED) if type(wanted) is int and wanted > 0 else 0
        return json.dumps(
            {
                "walktalk": walktalk.__version__,
                "time": wall_seconds(),
                "differs": differences(facts, sight.facts)[:MOST_WORDS] if isinstance(facts, dict) else [],
                "schema": None if sight.schema is None else sight.schema.said(),
                "kit": None if sight.edition is None else sight.edition.said(),
                "padding": " " * back,
            }
        ).encode()

    return answer
