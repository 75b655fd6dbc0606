"""One that was not in the file joins: it knocks at a node that runs, is told who is there, and says who it is.

    1. It asks a node of the cluster, and says what its study is. Who answers compares, and says who belongs.
    2. It takes the neighbours that it was told to, or those that suit the graph (`graphs.attached`), signs its entry in
       the roster, and brings it. From there it spreads, and its neighbours connect to it.

With certificates only who has one of the cluster's authority gets as far as the door, and only under its own name does
its entry count. Whatever is refused is said in a line on both sides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from walktalk.errors import SpecError, UnavailableError
from walktalk.graphs import attached
from walktalk.runtimes.peers.absence import why_absent
from walktalk.runtimes.peers.certificates import Credentials
from walktalk.runtimes.peers.cluster import Cluster, Place
from walktalk.runtimes.peers.ports import with_known_ports
from walktalk.runtimes.peers.roster import Entry, Roster, Standing, signed_entry
from walktalk.runtimes.peers.session import JOIN, Endpoint, Tuning, close_session, open_session

PATIENCE = 20.0  # seconds until nobody opens
A_QUESTION = 3.0  # seconds for an answer to one
CLOSING = 5.0


@dataclass(frozen=True)
class Newcomer:
    """What one that joins asks for.

    Args:
        contact: where it knocks: a node of the file, or host:port; "": at all whose address is known.
        neighbours: whom it wants as neighbours; none: those that suit the graph.
    """

    contact: str = ""
    neighbours: tuple[str, ...] = ()


class Door:
    """A connection to those at which one that joins can knock. Use as a context manager."""

    def __init__(self, cluster: Cluster, name: str, contact: str, files: Credentials | None) -> None:
        places = {n: p.address for n, p in with_known_ports(cluster).nodes.items() if p.has_port and n != name}
        if contact in cluster.nodes and contact not in places:
            raise SpecError(f"--join {contact}: nothing says where it listens; give host:port")
        if contact and contact not in places and not contact.rpartition(":")[2].isdecimal():
            raise SpecError(f"--join {contact!r} is no node of the file and no host:port; its nodes are "
                            f"{', '.join(cluster.file_names)}")  # fmt: skip
        chosen = {contact: places[contact]} if contact in places else {contact: contact} if contact else places
        self.addresses, self._name, self._files = chosen, name, files
        self._keys = [
            f"walktalk/{cluster.name}/{to}/{name}/{JOIN}" for to in (chosen if contact in places else cluster.nodes)
        ]
        here = Endpoint(cluster.name, name, 0, "", {}, tuple(chosen.values()), files, Tuning(opening=A_QUESTION))
        self._session = open_session(here)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        close_session(self._session, CLOSING)

    def ask(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The first answer; `UnavailableError` where it is a refusal, or none comes."""
        payload, end = json.dumps(said).encode(), time.monotonic() + PATIENCE
        while time.monotonic() < end:
            waiting = [self._session.get(key, payload=payload, timeout=A_QUESTION) for key in self._keys]
            for replies in waiting:
                for reply in replies:
                    if reply.ok is not None:
                        return self._heard(str(reply.ok.key_expr).split("/")[2], reply.ok.payload.to_bytes())
            time.sleep(0.1)
        name, address = next(iter(self.addresses.items()), ("", ""))
        raise UnavailableError(f"{self._name}: nobody opens: {why_absent(name, address, self._files)}")

    def _heard(self, who: str, answer: bytes) -> dict[str, Any]:
        content = json.loads(answer)
        if "refused" in content:
            raise UnavailableError(f"{self._name}: {who} does not let it join: {content['refused']}")
        return dict(content)


def knock(cluster: Cluster, name: str, place: Place, asked: Newcomer, facts: Mapping[str, Any], roster: Roster) -> None:
    """Join a cluster that runs.

    Args:
        cluster: as in the file.
        name: of the one that joins.
        place: where it listens.
        asked: what it asks for.
        facts: of its study.
        roster: is filled with all that belong, this one among them.
    """
    files = cluster.own_credentials(name)
    with Door(cluster, name, asked.contact, files) as door:
        answer = door.ask({"name": name, "facts": dict(facts)})
        roster.join(Entry.heard(said) for said in answer["roster"])
        changes: dict[str, Any] = {"address": place.address, "site": place.site}
        if name not in roster.names:
            changes |= {"neighbours": _neighbours(roster, name, asked, answer["there"]), "rank": roster.next_rank()}
        entry = signed_entry(roster.next(name, Standing.MEMBER, **changes), roster, files)
        answer = door.ask({"name": name, "facts": dict(facts), "entry": entry.said()})
        roster.join(Entry.heard(said) for said in answer["roster"])
    if roster.entries[name] != entry:
        raise UnavailableError(f"{name}: another has joined under this name meanwhile; take another")


def _neighbours(roster: Roster, name: str, asked: Newcomer, there: Iterable[int]) -> tuple[str, ...]:
    known = roster.known
    if not asked.neighbours:
        return tuple(known[peer] for peer in attached(roster.network, name, set(there)))
    present = [known[number] for number in roster.network.present]
    for peer in asked.neighbours:
        if peer not in present or peer == name:
            raise SpecError(f"--neighbours: there is no {peer!r}; those that are there are {', '.join(present)}")
    return tuple(dict.fromkeys(asked.neighbours))
