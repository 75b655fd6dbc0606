"""Who belongs to a cluster: those of its file, those who joined, less those who left for good.

Everybody keeps a *roster*: one entry for every name of which there is something to say. An entry is its owner's word
(or the operator's, of one that is dead), signed where there are certificates (`signed_statements`), and has a count of
how often the name came and went; of two entries of one name the later counts. So rosters are joined by taking the
greater, name by name, in any order and however often (a grow-only map), and all who hear of each other agree: after
partitions, restarts and joins at the same moment. Who is whose neighbour follows from the roster alone
(`graphs.Changing`).

A name goes through three states, again and again: it belongs; it is leaving, which means that nobody gives it anything
to do any more and that others have taken its edges over, though it is still listened to; it has left.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walktalk.core.lazy import later
from walktalk.core.untrusted import Limits, parsed_json
from walktalk.runtimes.peers.identity.certificates import Credentials
from walktalk.runtimes.peers.identity.signed_statements import UNSIGNED, Signed, sign, signer_of

if TYPE_CHECKING:
    from walktalk import graphs
    from walktalk.graphs import Changing, Graph
else:
    graphs = later("walktalk.graphs")  # NumPy and more, which a relay and an operator do without

MEMBERS_FILE = "roster.json"  # in a node's folder: who has joined and left, as far as it knew (`members`)
SPAN = 2**16  # numbers for those who join, behind those of the file
LARGEST = 2**20  # count of an entry: how often a name comes and goes
ENTRIES = 1000  # in a small cluster, at most
TIMES = 16  # and in a large one as many times its nodes
AT_MOST = 1 << 16  # bytes of what one message says
WHOLE = Limits(size=8 << 20)  # of a roster in a file, or in what an operator brings
ROOM = 3900  # bytes of a note
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]_-]{0,100}")
NEIGHBOURS = 256  # of one that joins
FURTHER, FURTHER_BYTES = 8, 1000  # fields of an entry that a later version has, and their length in JSON


class Standing(IntEnum):
    """Whether a name belongs to the cluster."""

    MEMBER = 0
    LEAVING = 1
    LEFT = 2


@dataclass(frozen=True)
class Entry:
    """What the roster says of one name."""

    name: str
    number: int
    count: int = 0  # grows with every change; what is left when it is divided by three is the standing
    address: str = ""  # host:port, of one that joined
    neighbours: tuple[str, ...] = ()  # those that it was given when it joined
    site: str = ""
    rank: int = 0  # of one that joined: above that of all whom it knew then; of two neighbours the lower one connects
    by: str = ""  # who says so: itself, or the operator
    signed: Signed = UNSIGNED
    further: tuple[Any, ...] = ()  # what a later version says of it: kept, and passed on as it is

    @property
    def standing(self) -> Standing:
        """Whether the name belongs, is leaving, or has left."""
        return Standing(self.count % 3)

    @property
    def order(self) -> tuple[int, bytes]:
        """What two entries of one name are compared by: the greater counts."""
        return self.count, self.content("")

    def content(self, cluster: str) -> bytes:
        """The bytes that are signed."""
        return json.dumps([cluster, *self._facts(), *self.further]).encode()

    def _facts(self) -> list[Any]:
        where = [self.address, list(self.neighbours), self.site, self.rank]
        return [self.name, self.number, self.count, *where, self.by]

    def said(self) -> list[Any]:
        """The entry as JSON can say it."""
        return [*self._facts(), self.signed.certificate, self.signed.signature, *self.further]

    @staticmethod
    def heard(said: Any) -> Entry:
        """Read an entry; `ValueError` where a field cannot be."""
        try:
            name, number, count, address, neighbours, site, rank, by, certificate, signature, *further = said
            texts = (name, address, site, by, certificate, signature, *neighbours)
        except (TypeError, ValueError) as error:
            raise ValueError(f"no entry of a roster: {error}") from error
        if not all(isinstance(text, str) for text in texts) or {type(n) for n in (number, count, rank)} != {int}:
            raise ValueError("no entry of a roster: a field is of another kind")
        if not all(NAME.fullmatch(text) for text in (name, *neighbours)) or not ADDRESS.fullmatch(address):
            raise ValueError(f"no entry of a roster: {name!r} at {address!r}")
        long = len(neighbours) > NEIGHBOURS or len(site) > 100 or len(by) > 63
        if long or not 0 <= count <= LARGEST or not 0 <= rank <= LARGEST:
            raise ValueError(f"no entry of a roster: of {name!r}, a field is out of bounds")
        if len(further) > FURTHER or len(json.dumps(further)) > FURTHER_BYTES:
            raise ValueError(f"no entry of a roster: of {name!r}, more is said than a later version says")
        signed = Signed(certificate, signature)
        return Entry(name, number, count, address, tuple(neighbours), site, rank, by, signed, tuple(further))


@dataclass
class Roster:
    """Who belongs to a cluster, as one node knows it.

    Args:
        cluster: its name.
        base: the graph of the file.
        names: those of the file, in the order of the graph's numbers.
        authority: the authority's certificate; None: nothing is signed.
        operator: the name of the operator, who may speak for the dead.
    """

    cluster: str
    base: Graph
    names: tuple[str, ...]
    authority: Path | None = None
    operator: str = "operator"
    entries: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._made: tuple[bytes, dict[int, str], Changing, Changing] | None = None

    # -- what it says ---------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether anybody ever came or left."""
        return bool(self.entries)

    @property
    def room(self) -> int:
        """How many names it holds of those who joined or left; it forgets none, or an old word could bring one back."""
        return min(max(ENTRIES, TIMES * len(self.names)), SPAN)

    @property
    def digest(self) -> bytes:
        """A digest that is equal where rosters are."""
        text = json.dumps([[name, *map(str, self.entries[name].order)] for name in sorted(self.entries)])
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    @property
    def network(self) -> Changing:
        """Who is there and whose neighbour, without those that are leaving."""
        return self._views()[2]

    @property
    def known(self) -> dict[int, str]:
        """The names of all that belong or have belonged, by number."""
        return self._views()[1]

    def standing(self, name: str) -> Standing:
        """The standing of a name; one of the file belongs until it says otherwise."""
        entry = self.entries.get(name)
        return entry.standing if entry is not None else Standing.MEMBER if name in self.names else Standing.LEFT

    def has(self, name: str) -> bool:
        """Whether there is or was such a node."""
        return name in self.known.values()

    def number(self, name: str) -> int:
        """The number of a known name."""
        return self.entries[name].number if name in self.entries else self.names.index(name)

    def present(self) -> list[str]:
        """Names of all that belong, or are leaving, in the order of their numbers."""
        return [name for _, name in sorted(self.known.items()) if self.standing(name) is not Standing.LEFT]

    def standing_of(self, *standings: Standing) -> frozenset[int]:
        """Numbers of all whose standing is one of these."""
        return frozenset(number for number, name in self.known.items() if self.standing(name) in standings)

    def neighbours(self, name: str) -> tuple[int, ...]:
        """Numbers of a node's neighbours: those that stay, and those that are leaving and have not left."""
        with_leaving, without = self._views()[3], self.network
        number = self.number(name)
        if self.standing(name) is not Standing.MEMBER:
            return with_leaving.rows.get(number, ())
        leaving = self.standing_of(Standing.LEAVING)
        still = [peer for peer in with_leaving.rows.get(number, ()) if peer in leaving]
        return tuple(sorted({*without.rows.get(number, ()), *still}))

    def is_first_edge(self, one: int, other: int) -> bool:
        """Whether two were neighbours from the first."""
        first = len(self.names)
        return one < first and other < first and other in self.base.contacts(one)

    def before(self, name: str, other: str) -> bool:
        """Whether the first of two that become neighbours while they run connects to the second."""
        ranks = [(self.entries[n].rank if n in self.entries else 0, self.number(n)) for n in (name, other)]
        return ranks[0] < ranks[1]

    def next_rank(self) -> int:
        """The rank of the next node that joins."""
        return 1 + max((entry.rank for entry in self.entries.values()), default=0)

    def free_number(self, name: str) -> int:
        """The number of a node that joins: always the same for the same name, unless another has it."""
        taken = {number: other for number, other in self.known.items() if other != name}
        for attempt in range(SPAN):
            drawn = hashlib.blake2b(f"{name} {attempt}".encode(), digest_size=8).digest()
            number = len(self.names) + int.from_bytes(drawn, "little") % SPAN
            if number not in taken:
                return number
        raise ValueError("there are no free numbers")

    # -- what it hears --------------------------------------------------------------------------------------------

    def join(self, entries: Iterable[Entry]) -> list[Entry]:
        """Merge what others know; returns the entries that are new here. `ValueError` where one cannot be."""
        new = [entry for entry in entries if self._is_news(entry)]
        for entry in new:
            self._check(entry)
        for entry in new:
            if self._is_news(entry):
                self.entries[entry.name] = entry
        return new

    def next(self, name: str, standing: Standing, **changes: Any) -> Entry:
        """The entry that comes after the present one of a name, not signed yet."""
        before = self.entries.get(name)
        if before is None:
            before = Entry(name, self.names.index(name) if name in self.names else self.free_number(name), count=-1)
            if name in self.names and standing is not Standing.MEMBER:
                before = replace(before, count=0)
        count = before.count + 1
        while count % 3 != standing:
            count += 1
        return replace(before, count=count, by=changes.pop("by", name), **changes)

    def _is_news(self, entry: Entry) -> bool:
        known = self.entries.get(entry.name)
        return known is None or entry.order > known.order

    def _check(self, entry: Entry) -> None:
        first = len(self.names)
        if entry.name not in self.entries and len(self.entries) >= self.room:
            raise ValueError(
                f"{self.room:,} names have come and gone, and the roster holds no more; end the run, and start it "
                "again with those that are there in the cluster's file"
            )
        if entry.name in self.names:
            if entry.number != self.names.index(entry.name):
                raise ValueError(f"{entry.name} is not number {entry.number}")
        elif not first <= entry.number < first + SPAN:
            raise ValueError(f"{entry.name} cannot be number {entry.number}")
        if entry.by not in (entry.name, self.operator):
            raise ValueError(f"{entry.by!r} cannot speak for {entry.name}")
        if entry.by == self.operator and entry.standing is not Standing.LEFT:
            raise ValueError(f"the operator can only let {entry.name} go")
        if self.authority is not None:
            signer = signer_of(entry.content(self.cluster), entry.signed, self.authority)
            if signer != entry.by:
                raise ValueError(f"what {entry.by!r} is to have said of {entry.name} is signed by {signer!r}")

    def _views(self) -> tuple[bytes, dict[int, str], Changing, Changing]:
        """The names by number, the graph without those that are leaving, and the graph with them."""
        digest = self.digest
        if self._made is None or self._made[0] != digest:
            known = dict(enumerate(self.names))
            for name in sorted(self.entries, reverse=True):  # of two that drew one number at once, one name counts
                known[self.entries[name].number] = name
            joined: dict[int, tuple[int, ...]] = {}
            numbers = {name: number for number, name in known.items()}
            for number, name in known.items():
                if name in self.entries:
                    given = self.entries[name].neighbours
                    if number >= len(self.names) or given:
                        joined[number] = tuple(numbers[peer] for peer in given if peer in numbers)
            standings = {number: self.standing(name) for number, name in known.items()}
            left = frozenset(n for n, standing in standings.items() if standing is Standing.LEFT)
            going = frozenset(n for n, standing in standings.items() if standing is not Standing.MEMBER)
            views = graphs.Changing(self.base, joined, going), graphs.Changing(self.base, joined, left)
            self._made = digest, known, *views
        return self._made


def signed_entry(entry: Entry, roster: Roster, files: Credentials | None) -> Entry:
    """Sign an entry with the key in these files."""
    return replace(entry, signed=sign(entry.content(roster.cluster), files))


def notes(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Write entries as notes of messages, as many in each as fit."""
    batch: list[Entry] = []
    for entry in entries:
        if batch and len(_packed([*batch, entry])) > ROOM:
            yield _packed(batch)
            batch = []
        batch.append(entry)
    if batch:
        yield _packed(batch)


def from_note(note: bytes) -> list[Entry]:
    """Read entries from a note; `ValueError` where it is not what a roster says."""
    try:
        content = parsed_json(zlib.decompressobj().decompress(note, AT_MOST))
    except (zlib.error, ValueError) as error:
        raise ValueError(f"no part of a roster: {error}") from error
    if not isinstance(content, list):
        raise ValueError("no part of a roster")
    return [Entry.heard(said) for said in content]


def _packed(entries: Iterable[Entry]) -> bytes:
    return zlib.compress(json.dumps([entry.said() for entry in entries]).encode(), 9)


def as_text(entries: Mapping[str, Entry]) -> str:
    """Write entries as the text of a file."""
    return json.dumps([entries[name].said() for name in sorted(entries)], indent=1) + "\n"


def from_text(text: str) -> list[Entry]:
    """Read entries from a file's text; `ValueError` where it is none."""
    content = parsed_json(text, WHOLE)
    return [Entry.heard(said) for said in content] if isinstance(content, list) else []
