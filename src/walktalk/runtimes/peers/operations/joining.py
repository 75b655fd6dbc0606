"""One that was not in the file joins: it knocks at a node that runs, is told who is there, and says who it is.

    1. It asks a node of the cluster, and says what its study is. Who answers compares, and says who belongs.
    2. It takes the neighbours that it was told to, or those that suit the graph (`graphs.attached`), signs its entry in
       the roster, and brings it. From there it spreads, and its neighbours connect to it.

In a cluster with a relay it knocks there where it does not reach a node, and one that does not say where it can be
reached is met there by all its neighbours; so it needs to dial the relay, and nothing else.

With certificates only who has one of the cluster's authority gets as far as the door, and only under its own name does
its entry count. Whatever is refused is said in a line on both sides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.untrusted import Boundary, parsed_json
from walktalk.graphs import attached
from walktalk.runtimes.peers.identity.certificates import RELAY, Credentials
from walktalk.runtimes.peers.node.news import why_absent
from walktalk.runtimes.peers.node.roster import WHOLE, Entry, Roster, Standing, signed_entry
from walktalk.runtimes.peers.operations.cluster import Cluster, Place, with_known_ports
from walktalk.runtimes.peers.relay.tunnels import DIRECT, Guest, RelayPlace, Tunnels, doors, why_not_met
from walktalk.runtimes.peers.wire.session import JOIN, Endpoint, Tuning, close_session, open_session
from walktalk.runtimes.peers.wire.versions import MESSAGES

PATIENCE = 20.0  # seconds until nobody opens
A_QUESTION = 3.0  # seconds for an answer to one
CLOSING = 5.0


@dataclass(frozen=True)
class JoinRequest:
    """What a node that joins asks for.

    Args:
        contact: where it knocks: a node of the file, host:port, or `relay` and its host:port for all that are there;
            "": at all whose address is known, or who can be met at the relay.
        neighbours: whom it wants as neighbours; none: those that suit the graph.
    """

    contact: str = ""
    neighbours: tuple[str, ...] = ()


class Door:
    """A connection to the nodes that one that wants to join asks. Use as a context manager."""

    def __init__(
        self, cluster: Cluster, name: str, place: Place, contact: str, files: Credentials | None, question: str = JOIN
    ) -> None:
        """
        - `cluster`: as in the file, with all that are known to have joined.
        - `name`, `place`, `files`: of the one that knocks.
        - `contact`: where it knocks (`JoinRequest`).
        - `question`: what it asks.
        """
        self._name, self._files, self._question = name, files, question
        self._tunnels: Tunnels | None = None
        self._session = (
            self._at_relay(cluster, place, contact) if _is_met(cluster, contact) else self._straight(cluster, contact)
        )

    def _straight(self, cluster: Cluster, contact: str) -> Any:
        name = self._name
        places = {n: p.address for n, p in with_known_ports(cluster).nodes.items() if p.has_port and n != name}
        if contact in cluster.nodes and contact not in places:
            raise SpecError(f"--join {contact}: nothing says where it listens; give host:port")
        if contact and contact not in places and not contact.rpartition(":")[2].isdecimal():
            raise SpecError(f"--join {contact!r} is no node of the file and no host:port; its nodes are "
                            f"{', '.join(cluster.file_names)}")  # fmt: skip
        chosen = {contact: places[contact]} if contact in places else {contact: contact} if contact else places
        self.addresses = chosen
        self._keys = [
            f"walktalk/{cluster.name}/{to}/{name}/{self._question}"
            for to in (chosen if contact in places else cluster.nodes)
        ]
        tuning = Tuning(opening=A_QUESTION)
        return open_session(Endpoint(cluster.name, name, 0, "", {}, tuple(chosen.values()), self._files, tuning))

    def _at_relay(self, cluster: Cluster, place: Place, contact: str) -> Any:
        """Connect to a node, or to all: those that it reaches straight, and the others through the relay.

        Whose certificate is at the other end of a tunnel is not compared with an address. So those that it knocks at
        count as neighbours here: what is answered under a name is heard only if it comes with that name's certificate.
        """
        others = {n: p for n, p in with_known_ports(cluster).nodes.items() if n != self._name}
        chosen = {contact: others[contact]} if contact in others else others
        self.addresses = {n: p.address if place.reaches(p) else "" for n, p in chosen.items()}
        relay = RelayPlace(cluster.relay, self.addresses)
        numbers = {n: number for number, n in enumerate(chosen)}
        tuning = Tuning(opening=A_QUESTION + DIRECT)
        here = Endpoint(cluster.name, self._name, len(numbers), "", numbers, (), self._files, tuning, relay=relay)
        self._keys = [here.key(to, self._name, self._question) for to in chosen]
        self._tunnels = Tunnels(relay, Guest(cluster.name, self._name, self._files))
        return open_session(here, doors(self._tunnels))

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        close_session(self._session, CLOSING)
        if self._tunnels is not None:
            self._tunnels.close()

    def ask(self, said: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """The first answer; `UnavailableError` where it is a refusal, or none comes in time."""
        payload, end = json.dumps(said).encode(), time.monotonic() + (PATIENCE if seconds is None else seconds)
        while time.monotonic() < end:
            waiting = [self._session.get(key, payload=payload, timeout=A_QUESTION) for key in self._keys]
            for replies in waiting:
                for reply in replies:
                    if reply.ok is not None:
                        return self._heard(str(reply.ok.key_expr).split("/")[2], reply.ok.payload.to_bytes())
            time.sleep(0.1)
        raise UnavailableError(f"{self._name}: nobody opens: {self._why()}")

    def _why(self) -> str:
        """The reason why nobody answers, as far as can be seen from here."""
        name, address = next(iter(self.addresses.items()), ("", ""))
        if self._tunnels is not None and not address:
            return why_not_met(self._tunnels.place, self._tunnels.guest, name)
        return why_absent(name, address, self._files)

    def _heard(self, who: str, answer: bytes) -> dict[str, Any]:
        content = parsed_json(answer, WHOLE)
        if not isinstance(content, dict):
            raise UnavailableError(f"{self._name}: {who} answers with nonsense")
        if "refused" in content:
            raise UnavailableError(f"{self._name}: {who} does not let it join: {content['refused']}")
        return dict(content)


def ask_to_join(
    cluster: Cluster, name: str, place: Place, asked: JoinRequest, facts: Mapping[str, Any], roster: Roster
) -> None:
    """Join a cluster that runs, by asking one of its nodes.

    Args:
        cluster: as in the file.
        name: of the one that joins.
        place: where it listens.
        asked: what it asks for.
        facts: of its study.
        roster: is filled with all that belong, this one among them.
    """
    files = cluster.own_credentials(name)
    with Door(cluster, name, place, asked.contact, files) as door:
        answer = door.ask({"name": name, **_said(facts)})
        roster.join(Entry.heard(said) for said in answer["roster"])
        changes: dict[str, Any] = {"address": cluster.told(place), "site": place.site}
        if name not in roster.names:
            changes |= {"neighbours": _neighbours(roster, name, asked, answer["there"]), "rank": roster.next_rank()}
        entry = signed_entry(roster.next(name, Standing.MEMBER, **changes), roster, files)
        answer = door.ask({"name": name, **_said(facts), "entry": entry.said()})
        roster.join(Entry.heard(said) for said in answer["roster"])
    if roster.entries[name] != entry:
        raise UnavailableError(f"{name}: another has joined under this name meanwhile; take another")


def was_let_go(cluster: Cluster, name: str, place: Place, facts: Mapping[str, Any], roster: Roster) -> bool:
    """Whether the others say, with the operator's signature, that a node has left for good; none may answer.

    Args:
        cluster: as in the file.
        name: of the node, which has been started again.
        place: where it listens.
        facts: of its study.
        roster: as the node knows it; it stays as it is.
    """
    with Door(cluster, name, place, "", cluster.own_credentials(name)) as door:
        answer = door.ask({"name": name, **_said(facts), "returns": True}, A_QUESTION)
    known, refused = replace(roster, entries=dict(roster.entries)), Boundary()
    for said in answer.get("roster", ()):
        refused("whoever answers", "an entry of its roster", partial(_hear, known, said), None)
    return known.standing(name) is Standing.LEFT


def _said(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"facts": dict(facts), "speaks": list(MESSAGES)}


def _hear(roster: Roster, said: Any) -> None:
    roster.join([Entry.heard(said)])


def _is_met(cluster: Cluster, contact: str) -> bool:
    """Whether one knocks at the relay: at a node of the cluster or all of them, not at an address."""
    return bool(cluster.relay) and (contact in ("", RELAY, cluster.relay) or contact in cluster.nodes)


def _neighbours(roster: Roster, name: str, asked: JoinRequest, there: Iterable[int]) -> tuple[str, ...]:
    known = roster.known
    if not asked.neighbours:
        return tuple(known[peer] for peer in attached(roster.network, name, set(there)))
    present = [known[number] for number in roster.network.present]
    for peer in asked.neighbours:
        if peer not in present or peer == name:
            raise SpecError(f"--neighbours: there is no {peer!r}; those that are there are {', '.join(present)}")
    return tuple(dict.fromkeys(asked.neighbours))
