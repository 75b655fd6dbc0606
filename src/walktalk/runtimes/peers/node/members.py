"""A node and who belongs to its cluster: what it hears of that, passes on, and makes of it (`roster`).

Neighbours compare digests of their rosters when they meet and every few seconds, and tell each other all where those
differ; what is new is passed on at once. When the graph around the node has become another, connections are opened and
given up, and the protocol's machine is told.
"""

from __future__ import annotations

import json
import logging
import queue
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeAlias

from walktalk.core.errors import StudyError
from walktalk.core.untrusted import parsed_json, shown
from walktalk.protocols import Leaving, Message, NetworkChanged, NetworkView
from walktalk.records import write_unless_there
from walktalk.runtimes.peers.identity.handshake import Hello, objections
from walktalk.runtimes.peers.identity.signed_statements import certificate_in
from walktalk.runtimes.peers.node.effect_runner import EffectRunner
from walktalk.runtimes.peers.node.neighbours import Neighbours
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.roster import (
    MEMBERS_FILE,
    WHOLE,
    Entry,
    Roster,
    Standing,
    as_text,
    from_note,
    notes,
    signed_entry,
)
from walktalk.runtimes.peers.node.state import NodeSetup, NodeState
from walktalk.runtimes.peers.wire.link import Link
from walktalk.runtimes.peers.wire.messages import Parcel
from walktalk.runtimes.peers.wire.session import JOIN, LEAVE, ROSTER
from walktalk.runtimes.peers.wire.versions import COUNTS_WITH_LENGTHS, MESSAGES, span_in

log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Mapping[str, str]], dict[str, Any]]

ROSTER_KIND = "roster"
DIGEST, ENTRIES = b"?", b"!"  # what a message begins with
COMPARE_EVERY = 5.0  # seconds
HAND_OVER = 20.0  # seconds that one which leaves for good waits at most until others have taken over what it did
ANSWER_WITHIN = 10.0  # seconds that a question waits for the node's loop
EVENTS = {
    Standing.MEMBER: "joined",
    Standing.LEAVING: "leaves_for_good",
    Standing.LEFT: "left_for_good",
}  # in the trace


class Members:
    """Keeps the roster of a cluster, for one node. Where the setup has no roster, nobody comes or goes."""

    def __init__(
        self,
        setup: NodeSetup,
        state: NodeState,
        link: Link,
        neighbours: Neighbours,
        progress: Progress,
        runner: EffectRunner,
        reports: Reports,
        events: queue.SimpleQueue[Callable[[], None]],
    ) -> None:
        """
        - `setup`, `state`, `link`, `neighbours`, `progress`, `runner`, `reports`: the node's.
        - `events`: what its loop will do.
        """
        self.roster = setup.roster  # what it knows; None: it does not know its whole cluster
        self.view = setup.around  # the network around it, as it is now
        self.departs_at: float | None = None  # when this node goes at the latest, once it has begun to leave for good
        self._setup, self._state, self._link, self._neighbours = setup, state, link, neighbours
        self._progress, self._runner, self._reports, self._events = progress, runner, reports, events
        self._compare_at = 0.0
        self._unwritten = False  # whether what is known is not written down yet: the disk may be full
        if self.roster is not None and self.roster.changed:
            self._write_down(self.roster)

    @property
    def _name(self) -> str:
        return self._link.endpoint.name

    @property
    def site(self) -> str:
        """The site of a node that joined, as it said."""
        entry = self.roster.entries.get(self._name) if self.roster is not None else None
        return entry.site if entry is not None else ""

    @property
    def refusal(self) -> str:
        """Why nobody can join or leave for good; "" where they can."""
        protocol = self._setup.protocol
        if self.roster is None:
            return "this node does not know its whole cluster"
        if not protocol.nodes_come_and_go:
            why = f", because {protocol.why_nodes_stay}" if protocol.why_nodes_stay else ""
            return f"{protocol.label} is not made for nodes that come and go while it runs{why}"
        base = self.roster.base
        if base.directed or base.rounds is not None:
            return f"on {base.name} links are one-way or change by round, so nodes cannot come and go"
        return ""

    # -- questions from outside, asked in other threads -----------------------------------------------------------

    def answer_questions(self) -> None:
        """Be ready for questions of operators, and of nodes that want to join."""
        answer = self._link.connections.answer
        answer(JOIN, lambda asked: self._by_the_loop(self._answer_knock, asked), asker="*")
        answer(LEAVE, lambda asked: self._by_the_loop(self._answer_leave, asked))
        answer(ROSTER, lambda asked: self._by_the_loop(self._answer_roster, asked))

    def _by_the_loop(self, call: Answer, asked: Mapping[str, str]) -> bytes:
        """Let the node's loop make an answer when its turn comes."""
        future: Future[dict[str, Any]] = Future()

        def turn() -> None:
            try:
                future.set_result(call(asked))
            except Exception as error:  # of what a stranger asks, whoever has signed its certificate
                why = shown(error)
                log.warning("%s: refuses what it is asked: %s", self._name, why)
                future.set_result({"refused": why})

        self._events.put(turn)
        try:
            return json.dumps(future.result(ANSWER_WITHIN)).encode()
        except TimeoutError as error:
            raise ValueError("the node is busy") from error

    def _answer_roster(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Answer with all entries; those that came with the question are merged first."""
        if self.roster is None:
            return {"roster": []}
        if "said" in asked:
            self.merge([Entry.heard(said) for said in parsed_json(asked["said"], WHOLE)])
        return {"roster": [entry.said() for entry in self.roster.entries.values()]}

    def _answer_leave(self, asked: Mapping[str, str]) -> dict[str, Any]:
        why = self.refusal or self._setup.protocol.irreplaceable(self._setup.around.node)
        if why:
            return {"refused": f"{why}; stop it instead"}
        self.leave()
        return {"name": self._name, "leaves": True}

    def _answer_knock(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Answer a node that wants to join: first it asks who is there, then it brings its entry."""
        said = parsed_json(asked.get("said", "{}"))
        if not isinstance(said, dict):
            raise ValueError(f"a question is an object in JSON; this is a {type(said).__name__}")
        name = str(said.get("name", ""))
        entry = Entry.heard(said["entry"]) if "entry" in said else None
        why = self._objection(name, said) or self._distrust(entry) or self._unreachable(entry)
        if why:
            if not said.get("returns"):  # else it only asks, at its start, whether it has left for good
                log.warning("%s: refuses %s, who wants to join: %s", self._name, name[:63] or "?", why)
            return {"refused": why}
        assert self.roster is not None
        if entry is not None:
            if entry.name != name or entry.standing is not Standing.MEMBER:
                raise ValueError(f"that is no entry of {name}")
            self.merge([entry])
        tally = self._progress.tally
        there = sorted(node for node in {*tally.there(), tally.node} if node in self.roster.network.present)
        return {"roster": [entry.said() for entry in self.roster.entries.values()], "there": there}

    def _distrust(self, entry: Entry | None) -> str:
        """Why an entry is not to be believed, though the authority has once signed its signer's certificate."""
        files = self._link.endpoint.credentials
        if files is None or entry is None:
            return ""
        since = files.revocations.since(certificate_in(entry.signed))
        return "" if since is None else f"its certificate was revoked on {since:%Y-%m-%d}"

    def _unreachable(self, entry: Entry | None) -> str:
        """Why its neighbours would never meet it: they were started before the cluster's file named a relay."""
        assert self.roster is not None
        if entry is None or entry.address or entry.name in self.roster.names or self._link.endpoint.relay:
            return ""
        return (
            "it says no address, and this node knows of no relay; give --address HOST:PORT, or stop the nodes and "
            "start them with a cluster file that names the relay"
        )

    def _objection(self, name: str, said: Mapping[str, Any]) -> str:
        """Why somebody may not join; "": it may."""
        roster, facts = self.roster, said.get("facts")
        if self.refusal or roster is None:
            return self.refusal
        if not isinstance(facts, dict):
            return "its study is another: it says nothing of it"
        hello = Hello(facts, speaks=span_in({**facts, **said}))
        if differ := objections(self._neighbours.facts, hello):
            return f"its study is another: {'; '.join(differ)}"
        if name in roster.names and roster.standing(name) is Standing.MEMBER:
            return f"the name {name} is taken: it is in the cluster's file, so it need not join; leave --join out"
        belongs = roster.has(name) and roster.standing(name) is not Standing.LEFT
        if belongs and roster.number(name) in self._progress.tally.there():
            return f"the name {name} is taken: such a node has joined, and is there"
        if self.departs_at is not None or self._state.leaving or self._progress.end.seen:
            return "this node is about to leave, or the run is over; ask another"
        return ""

    # -- neighbours -----------------------------------------------------------------------------------------------

    def hear(self, parcel: Parcel) -> None:
        """A neighbour tells of its roster; `ValueError` where that is nonsense."""
        note = parcel.message.note
        if self.roster is None:
            return
        if note[:1] == DIGEST:
            if note[1:] != self.roster.digest:
                self._send(parcel.sender, self.roster.entries.values())
        elif note[:1] == ENTRIES:
            self.merge(from_note(note[1:]))
        else:
            raise ValueError("no word on a roster")

    def greet(self, peer: int) -> None:
        """A neighbour is there: send it the digest of the roster."""
        if self.roster is not None:
            self._say(peer, DIGEST + self.roster.digest)

    def compare(self) -> None:
        """Compare with all neighbours now and then: a word may be lost."""
        if self.roster is not None and time.monotonic() >= self._compare_at:
            self._compare_at = time.monotonic() + COMPARE_EVERY
            if self._unwritten:
                self._write_down(self.roster)
            for peer in self._state.alive:
                self.greet(peer)

    def _say(self, peer: int, note: bytes) -> None:
        self._link.send(Parcel(self._link.endpoint.number, peer, Message(ROSTER_KIND, note=note)), None)

    def _send(self, peer: int, entries: Iterable[Entry]) -> None:
        plain = self._state.speaks.get(peer, MESSAGES.oldest) < COUNTS_WITH_LENGTHS
        for note in notes(entry for entry in entries if not (plain and entry.further)):
            self._say(peer, ENTRIES + note)

    # -- what is new ----------------------------------------------------------------------------------------------

    def merge(self, entries: Iterable[Entry]) -> None:
        """Merge entries into the roster; what is new is written down, passed on, and acted upon."""
        roster = self.roster
        before = dict(roster.entries) if roster is not None else {}
        if roster is None or not (new := roster.join(entries)):
            return
        self._write_down(roster)
        for peer in self._state.alive:
            self._send(peer, new)
        if self.departs_at is None or roster.standing(self._name) is not Standing.LEFT:
            self._redial_moved(before, new)
            self._adjust()  # after its own last word it needs no other neighbours
        for entry in new:
            self._reports.trace(EVENTS[entry.standing], peer=entry.number, detail=self._facts_of(entry))
            self._look_at_own(entry)

    def _write_down(self, roster: Roster) -> None:
        """Where the disk is full, later: a node goes on without, and comes back with what its neighbours know."""
        path, text = self._setup.folder / MEMBERS_FILE, as_text(roster.entries)
        try:
            write_unless_there(path, text)
            self._unwritten = False
        except (OSError, StudyError) as error:
            self._unwritten = True
            log.warning("%s: who belongs cannot be written down: %s", self._name, error)

    def _facts_of(self, entry: Entry) -> dict[str, Any]:
        """The graph as it is now, as far as this name is concerned, for whoever reads the trace."""
        assert self.roster is not None
        peers = self.roster.network.rows.get(entry.number, ())
        return {"name": entry.name, "neighbours": " ".join(self.roster.known[peer] for peer in peers)}

    def _look_at_own(self, entry: Entry) -> None:
        if entry.name == self._name and entry.standing is Standing.LEFT and self.departs_at is None:
            self._reports.news.say("the operator has let this node go for good")
            self._state.leaving = True

    def _adjust(self) -> None:
        """The graph may be another: open and give up connections, and tell the machine."""
        before, roster, link = self.view, self.roster, self._link
        assert roster is not None
        view, names = network_view(before, roster, self._name), roster.known
        endpoint = replace(link.endpoint, neighbours={names[peer]: peer for peer in view.neighbours})
        self._progress.tally.nodes = view.nodes
        self._reports.news.change(endpoint, names)
        if view == before:
            return
        for peer in set(before.neighbours) - set(view.neighbours):
            link.cancel(peer)
            self._neighbours.drop(peer)
        link.change(endpoint, self._to_dial(endpoint.name, set(view.neighbours) - set(before.neighbours)))
        self.view = view
        if self._state.begun and self._setup.protocol.nodes_come_and_go:
            self._reports.trace("neighbours", detail={"neighbours": " ".join(endpoint.neighbours)})
            self._runner.give(NetworkChanged(view))

    def _redial_moved(self, before: Mapping[str, Entry], new: Iterable[Entry]) -> None:
        """A node that joined has come back under another address: whoever dials it does so there."""
        own, roster = self._link.endpoint, self.roster
        assert roster is not None
        for entry in new:
            known = before.get(entry.name)
            moved = known is not None and known.standing is entry.standing and known.address != entry.address
            if moved and entry.name in own.neighbours and roster.before(own.name, entry.name):
                self._link.connections.redial(entry.name, entry.address)

    def _to_dial(self, name: str, new: Iterable[int]) -> dict[str, str]:
        """Where those of the new neighbours are that this node connects to; "": at the relay."""
        roster = self.roster
        assert roster is not None
        found = {}
        for peer in (roster.known[number] for number in new):
            if roster.before(name, peer):
                address = self._setup.dials(peer)
                if address is not None:
                    found[peer] = address
                elif self._link.endpoint.relay is None:
                    log.warning("%s: %s is a neighbour now, but nothing says where it listens", name, peer)
        return found

    # -- leaving for good -----------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Begin to leave for good: nobody gives this node anything to do any more, and others take over what it did."""
        if self.departs_at is not None:
            return
        self._reports.news.say("leaves for good")
        self.departs_at = time.monotonic() + HAND_OVER
        self._sign_own(Standing.LEAVING)
        if self._state.begun:
            self._runner.give(Leaving())

    @property
    def may_go(self) -> bool:
        """Whether a node that leaves for good has nothing left that others need."""
        if self.departs_at is None:
            return False
        return self._runner.machine.may_go() or not self._state.alive or time.monotonic() > self.departs_at

    def say_left(self) -> None:
        """Tell the others that this node has left for good, if it has: its last word."""
        if self.departs_at is not None:
            self._sign_own(Standing.LEFT)

    def _sign_own(self, standing: Standing) -> None:
        roster = self.roster
        assert roster is not None
        entry = roster.next(self._name, standing)
        self.merge([signed_entry(entry, roster, self._link.connections.credentials)])


def network_view(around: NetworkView, roster: Roster, name: str) -> NetworkView:
    """What a node knows of the network, as its roster has it."""
    if not roster.changed:
        return around
    neighbours, network = roster.neighbours(name), roster.network
    degrees = tuple(len(roster.neighbours(roster.known[peer])) for peer in neighbours)
    first = len(roster.names)
    joined = frozenset(number for number in roster.known if number >= first)
    leaving, left = roster.standing_of(Standing.LEAVING), roster.standing_of(Standing.LEFT)
    return replace(
        around,
        nodes=len(network.present),
        neighbours=neighbours,
        degrees=degrees,
        joined=joined,
        leaving=leaving | left,
        first=first,
        version=zlib.crc32(repr([sorted(nodes) for nodes in (joined, leaving, left)]).encode()) >> 1,
        links=lambda node: network.rows.get(node, ()),
    )
