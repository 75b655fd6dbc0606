"""A node and who belongs to its cluster: what it hears of that, passes on, and makes of it (`roster`).

Neighbours compare digests of their rosters when they meet and every few seconds, and tell each other all where those
differ; what is new is passed on at once. When the graph around the node has become another, connections are opened and
given up, and the protocol's machine is told.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from walktalk.errors import StudyError, UserError
from walktalk.protocols import Leaving, Message, NetworkChanged, Surroundings
from walktalk.records import write_unless_there
from walktalk.runtimes.peers.acquaintance import differences
from walktalk.runtimes.peers.roster import MEMBERS_FILE, Entry, Roster, Standing, as_text, noted, notes, signed_entry
from walktalk.runtimes.peers.session import JOIN, LEAVE, ROSTER
from walktalk.runtimes.peers.vouching import certificate_in
from walktalk.runtimes.peers.wire import Parcel

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node

log = logging.getLogger(__name__)

KIND = "roster"
DIGEST, ENTRIES = b"?", b"!"  # what a message begins with
COMPARE_EVERY = 5.0  # seconds
HAND_OVER = 20.0  # seconds that one which leaves for good waits at most until others have taken over what it did
ANSWER = 10.0  # seconds that a question waits for the node's loop
WORDS = {Standing.MEMBER: "joined", Standing.LEAVING: "leaves_for_good", Standing.LEFT: "left_for_good"}  # in the trace


class Members:
    """One node's part of it. Where the setup has no roster, nobody comes or goes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._compare_at = 0.0
        self._unwritten = False  # whether what is known is not written down yet: the disk may be full
        self.departs_at: float | None = None  # when this node goes at the latest, once it has begun to leave for good
        if self.roster is not None and self.roster.changed:
            self._write_down(self.roster)

    @property
    def roster(self) -> Roster | None:
        """What it knows."""
        return self._node.setup.roster

    @property
    def site(self) -> str:
        """Of one that joined: what it says of where it is."""
        entry = self.roster.entries.get(self._node.setup.endpoint.name) if self.roster is not None else None
        return entry.site if entry is not None else ""

    @property
    def refusal(self) -> str:
        """Why nobody can join or leave for good; "" where they can."""
        protocol = self._node.setup.protocol
        if self.roster is None:
            return "this node does not know its whole cluster"
        if not protocol.nodes_come_and_go:
            return f"{protocol.label} is not made for nodes that come and go while it runs; multi_walk and gossip are"
        base = self.roster.base
        if base.directed or base.rounds is not None:
            return f"on {base.name} links are one-way or change by round, so nodes cannot come and go"
        return ""

    # -- questions from outside, asked in other threads -----------------------------------------------------------

    def answer_questions(self) -> None:
        """Be ready for them."""
        link = self._node.link
        link.answer(JOIN, lambda asked: self._by_the_loop(self._knock, asked), asker="*")
        link.answer(LEAVE, lambda asked: self._by_the_loop(self._leave_asked, asked))
        link.answer(ROSTER, lambda asked: self._by_the_loop(self._roster_asked, asked))

    def _by_the_loop(self, call: Any, asked: Mapping[str, str]) -> bytes:
        """The answer, made by the node's loop when its turn comes."""
        future: Future[dict[str, Any]] = Future()

        def turn() -> None:
            try:
                future.set_result(call(asked))
            except (ValueError, KeyError, TypeError, UserError) as error:
                log.warning("%s: refuses what it is asked: %s", self._node.setup.endpoint.name, error)
                future.set_result({"refused": str(error)})

        self._node.events.put(turn)
        try:
            return json.dumps(future.result(ANSWER)).encode()
        except TimeoutError as error:
            raise ValueError("the node is busy") from error

    def _roster_asked(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """All entries; those that came with the question are taken in first."""
        if self.roster is None:
            return {"roster": []}
        if "said" in asked:
            self._take([Entry.heard(said) for said in json.loads(asked["said"])])
        return {"roster": [entry.said() for entry in self.roster.entries.values()]}

    def _leave_asked(self, asked: Mapping[str, str]) -> dict[str, Any]:
        if self.refusal:
            return {"refused": f"{self.refusal}; stop it instead"}
        self.leave()
        return {"name": self._node.setup.endpoint.name, "leaves": True}

    def _knock(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """One that wants to join: first it asks who is there, then it brings its entry."""
        said = json.loads(asked.get("said", "{}"))
        name = str(said.get("name", ""))
        entry = Entry.heard(said["entry"]) if "entry" in said else None
        why = self._objection(name, said.get("facts")) or self._distrust(entry) or self._unreachable(entry)
        if why:
            log.warning("%s: refuses %s, who wants to join: %s", self._node.setup.endpoint.name, name[:63] or "?", why)
            return {"refused": why}
        assert self.roster is not None
        if entry is not None:
            if entry.name != name or entry.standing is not Standing.MEMBER:
                raise ValueError(f"that is no entry of {name}")
            self._take([entry])
        tally = self._node.state.tally
        there = sorted(node for node in {*tally.there(), self._node.me} if node in self.roster.network.present)
        return {"roster": [entry.said() for entry in self.roster.entries.values()], "there": there}

    def _distrust(self, entry: Entry | None) -> str:
        """Why an entry is not to be believed, though the authority has once signed its signer's certificate."""
        files = self._node.link.endpoint.credentials
        since = (
            files.revocations.since(certificate_in(entry.signed)) if files is not None and entry is not None else None
        )
        return "" if since is None else f"its certificate was revoked on {since:%Y-%m-%d}"

    def _unreachable(self, entry: Entry | None) -> str:
        """Why its neighbours would never meet it: they were started before the cluster's file named a relay."""
        assert self.roster is not None
        if entry is None or entry.address or entry.name in self.roster.names or self._node.setup.endpoint.relay:
            return ""
        return (
            "it says no address, and this node knows of no relay; give --address HOST:PORT, or stop the nodes and "
            "start them with a cluster file that names the relay"
        )

    def _objection(self, name: str, facts: Any) -> str:
        """Why somebody may not join; "": it may."""
        node, roster = self._node, self.roster
        if self.refusal or roster is None:
            return self.refusal
        if not isinstance(facts, dict) or (differ := differences(node.facts, facts)):
            return f"its study is another: {'; '.join(differ) if isinstance(facts, dict) else 'it says nothing of it'}"
        if name in roster.names and roster.standing(name) is Standing.MEMBER:
            return f"the name {name} is taken: it is in the cluster's file"
        belongs = roster.has(name) and roster.standing(name) is not Standing.LEFT
        if belongs and roster.number(name) in node.state.tally.there():
            return f"the name {name} is taken: such a node has joined, and is there"
        if self.departs_at is not None or node.state.leaving or node.end.seen:
            return "this node is about to leave, or the run is over; ask another"
        return ""

    # -- neighbours -----------------------------------------------------------------------------------------------

    def hear(self, parcel: Parcel) -> None:
        """A neighbour's word; `ValueError` where it is nonsense."""
        note = parcel.message.note
        if self.roster is None:
            return
        if note[:1] == DIGEST:
            if note[1:] != self.roster.digest:
                self._tell(parcel.sender, self.roster.entries.values())
        elif note[:1] == ENTRIES:
            self._take(noted(note[1:]))
        else:
            raise ValueError("no word on a roster")

    def greet(self, peer: int) -> None:
        """A neighbour is there: compare."""
        if self.roster is not None:
            self._say(peer, DIGEST + self.roster.digest)

    def compare(self) -> None:
        """Now and then, with all neighbours: a word may be lost."""
        if self.roster is not None and time.monotonic() >= self._compare_at:
            self._compare_at = time.monotonic() + COMPARE_EVERY
            if self._unwritten:
                self._write_down(self.roster)
            for peer in self._node.state.alive:
                self.greet(peer)

    def _say(self, peer: int, note: bytes) -> None:
        node = self._node
        node.link.send(Parcel(node.me, peer, Message(KIND, note=note)), None)

    def _tell(self, peer: int, entries: Iterable[Entry]) -> None:
        for note in notes(entries):
            self._say(peer, ENTRIES + note)

    # -- what is new ----------------------------------------------------------------------------------------------

    def _take(self, entries: Iterable[Entry]) -> None:
        """Take entries in; what is new is written down, passed on, and acted upon."""
        node, roster = self._node, self.roster
        before = dict(roster.entries) if roster is not None else {}
        if roster is None or not (new := roster.join(entries)):
            return
        self._write_down(roster)
        for peer in node.state.alive:
            self._tell(peer, new)
        if self.departs_at is None or roster.standing(node.setup.endpoint.name) is not Standing.LEFT:
            self._follow(before, new)
            self._adjust()  # after its own last word it needs no other neighbours
        for entry in new:
            node.note(WORDS[entry.standing], peer=entry.number, detail=self._facts_of(entry))
            self._look_at_own(entry)

    def _write_down(self, roster: Roster) -> None:
        """Where the disk is full, later: a node goes on without, and comes back with what its neighbours know."""
        path, text = self._node.setup.folder / MEMBERS_FILE, as_text(roster.entries)
        try:
            write_unless_there(path, text)
            self._unwritten = False
        except (OSError, StudyError) as error:
            self._unwritten = True
            log.warning("%s: who belongs cannot be written down: %s", self._node.setup.endpoint.name, error)

    def _facts_of(self, entry: Entry) -> dict[str, Any]:
        """For whoever reads the trace: the graph as it is now, as far as this name is concerned."""
        assert self.roster is not None
        peers = self.roster.network.rows.get(entry.number, ())
        return {"name": entry.name, "neighbours": " ".join(self.roster.known[peer] for peer in peers)}

    def _look_at_own(self, entry: Entry) -> None:
        node = self._node
        if entry.name == node.setup.endpoint.name and entry.standing is Standing.LEFT and self.departs_at is None:
            node.news.say("the operator has let this node go for good")
            node.state.leaving = True

    def _adjust(self) -> None:
        """The graph may be another: open and give up connections, and tell the machine."""
        node, roster = self._node, self.roster
        assert roster is not None
        before, setup = node.setup.around, node.setup
        around = surroundings(setup.around, roster, setup.endpoint.name)
        names = roster.known
        endpoint = replace(setup.endpoint, neighbours={names[peer]: peer for peer in around.neighbours})
        node.state.tally.nodes = around.nodes
        node.news.change(endpoint, names)
        if around == before:
            return
        for peer in set(before.neighbours) - set(around.neighbours):
            node.link.cancel(peer)
            node.neighbours.drop(peer)
        node.link.change(endpoint, self._to_dial(endpoint.name, set(around.neighbours) - set(before.neighbours)))
        node.setup = replace(setup, around=around, endpoint=endpoint)
        if node.begun and setup.protocol.nodes_come_and_go:
            node.note("neighbours", detail={"neighbours": " ".join(endpoint.neighbours)})
            node.give(NetworkChanged(around))

    def _follow(self, before: Mapping[str, Entry], new: Iterable[Entry]) -> None:
        """One that joined has come back under another address: whoever dials it does so there."""
        own, roster = self._node.setup.endpoint, self.roster
        assert roster is not None
        for entry in new:
            known = before.get(entry.name)
            moved = known is not None and known.standing is entry.standing and known.address != entry.address
            if moved and entry.name in own.neighbours and roster.before(own.name, entry.name):
                self._node.link.redial(entry.name, entry.address)

    def _to_dial(self, name: str, new: Iterable[int]) -> dict[str, str]:
        """Where those of the new neighbours are that this node connects to; "": at the relay."""
        roster = self.roster
        assert roster is not None
        found = {}
        for peer in (roster.known[number] for number in new):
            if roster.before(name, peer):
                address = self._node.setup.dials(peer)
                if address is not None:
                    found[peer] = address
                elif self._node.setup.endpoint.relay is None:
                    log.warning("%s: %s is a neighbour now, but nothing says where it listens", name, peer)
        return found

    # -- leaving for good -----------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Begin to leave for good: nobody gives this node anything to do any more, and others take over what it did."""
        node = self._node
        if self.departs_at is not None:
            return
        node.news.say("leaves for good")
        self.departs_at = time.monotonic() + HAND_OVER
        self._sign_own(Standing.LEAVING)
        if node.begun:
            node.give(Leaving())

    @property
    def may_go(self) -> bool:
        """Whether a node that leaves for good has nothing left that others need."""
        if self.departs_at is None:
            return False
        return self._node.machine.may_go() or not self._node.state.alive or time.monotonic() > self.departs_at

    def say_left(self) -> None:
        """The last word of one that leaves for good."""
        if self.departs_at is not None:
            self._sign_own(Standing.LEFT)

    def _sign_own(self, standing: Standing) -> None:
        node, roster = self._node, self.roster
        assert roster is not None
        entry = roster.next(node.setup.endpoint.name, standing)
        self._take([signed_entry(entry, roster, node.link.endpoint.credentials)])


def surroundings(around: Surroundings, roster: Roster, name: str) -> Surroundings:
    """What a node knows of the network, as its roster has it."""
    if not roster.changed:
        return around
    neighbours, network = roster.neighbours(name), roster.network
    degrees = tuple(len(roster.neighbours(roster.known[peer])) for peer in neighbours)
    first = len(roster.names)
    return replace(
        around,
        nodes=len(network.present),
        neighbours=neighbours,
        degrees=degrees,
        joined=frozenset(number for number in roster.known if number >= first),
        leaving=roster.standing_of(Standing.LEAVING, Standing.LEFT),
        first=first,
    )
