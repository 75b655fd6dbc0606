"""One node of a real deployment: a loop that gives events to a protocol machine and carries out what it asks for.

Everything that happens (a message, a neighbour gone, a training done, a signal) comes to one queue and is handled by
one thread, one after the other, so the machine needs no locks. That thread never waits for the network, the disk or a
training. Its rooms: what comes (`node_inbox`), what the machine asks for (`node_deeds`), what is trained and measured
(`node_lessons`), who belongs to the cluster (`node_members`), and how it goes (`node_parting`).
"""

from __future__ import annotations

import json
import logging
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from walktalk.errors import UnavailableError
from walktalk.protocols import (
    AGGREGATE,
    INITIAL,
    Effect,
    Event,
    Message,
    Outside,
    PeerFound,
    PeerLost,
    Record,
    Rejoined,
    Started,
    TimerFired,
)
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import FLOAT_BYTES, Interpreter, Scale
from walktalk.runtimes.peers import acquaintance, own_words
from walktalk.runtimes.peers import tally as tallies
from walktalk.runtimes.peers.assembly import Limits
from walktalk.runtimes.peers.counting import Counts
from walktalk.runtimes.peers.diary import Diary
from walktalk.runtimes.peers.handing_out import Copy, Desk
from walktalk.runtimes.peers.judging import Judge
from walktalk.runtimes.peers.keeping import Keeper, Kept, own_past
from walktalk.runtimes.peers.link import Link, Listener
from walktalk.runtimes.peers.lives import next_life, note_life
from walktalk.runtimes.peers.namesakes import two_called
from walktalk.runtimes.peers.neighbours import Neighbours, Reactions
from walktalk.runtimes.peers.news import News
from walktalk.runtimes.peers.node_clock import Clock
from walktalk.runtimes.peers.node_deeds import Deeds
from walktalk.runtimes.peers.node_end import End
from walktalk.runtimes.peers.node_inbox import Inbox
from walktalk.runtimes.peers.node_lessons import Lessons
from walktalk.runtimes.peers.node_members import Members
from walktalk.runtimes.peers.node_parting import Parting
from walktalk.runtimes.peers.node_state import NodeSetup, State, blocked_by, spoiling
from walktalk.runtimes.peers.node_status import status_of
from walktalk.runtimes.peers.node_training import Trainings
from walktalk.runtimes.peers.own_words import OwnWords
from walktalk.runtimes.peers.purse import Purse
from walktalk.runtimes.peers.session import RECORDS, STATUS, STOP
from walktalk.runtimes.peers.slots import Tensors
from walktalk.runtimes.peers.wire import Parcel
from walktalk.runtimes.stacked import RowTrainer, averaging_of, parameters_of

log = logging.getLogger(__name__)

TALLY_EVERY = 0.25  # seconds between two rounds of gossip about how far everybody is
LOOK_EVERY = 0.5  # seconds, while a node waits for its neighbours
COME_BACK = 1.0  # seconds that one which comes back gives its neighbours, after the first: connections take that long
SETTLE = 1.0  # seconds after the end in which what is on its way arrives: halves of an exchange, a walk


class Node:
    """One peer, from the first connection to the last."""

    def __init__(self, setup: NodeSetup, trainer: RowTrainer) -> None:
        if setup.roster is None:  # else the cluster of the file was checked, and the aggregator may have left since
            setup.protocol.check(setup.around.nodes)
        if "peers" not in setup.protocol.runtimes:
            raise UnavailableError(f"{setup.protocol.label} runs in the simulator only; use --engine sim")
        self.setup, self.trainer = setup, trainer
        self.me = setup.around.node
        protocol = setup.protocol.hardened()
        self.machine = protocol.machine(setup.around)
        self.words = self._own_words()
        self.state = State(tallies.Tally(self.me, setup.around.nodes, self._knows, self.words))
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.begun = False
        self.counts = Counts()
        self.recorded: Record | None = None  # the last that the protocol showed
        self.clock = Clock()
        self.end = End(setup.stop, self.state.tally)
        self.news = News(setup.endpoint)
        self.tensors = Tensors(trainer.width, parameters_of(trainer), averaging_of(trainer, setup.protocol))
        self.interpreter = Interpreter(
            self.tensors, protocol.messages, self._scale(), self._write, lambda: self.clock.wall
        )
        self.interpreter.add_node(self.me, setup.initial)
        self.interpreter.privacy, self.interpreter.secret = protocol.privacy, setup.secret
        self.purse = Purse(setup.folder, protocol.privacy) if protocol.privacy is not None else None
        if self.purse is not None:
            purse = self.purse
            self.interpreter.may_release = lambda node: purse.take()
        self._look_how_to_spoil()
        self.limits = Limits(self._payloads())
        self.judge = Judge(setup.initial, setup.largest)
        self.facts = acquaintance.facts_of({"algorithm": protocol, **setup.study}, setup.initial, setup.frozen)
        self.keeper = Keeper(setup.folder, lambda: self.desk.put_copy())
        self.kept = own_past(self.keeper, self.facts, trainer.width) if setup.rejoin else None
        self.inbox, self.deeds, self.lessons, self.parting = Inbox(self), Deeds(self), Lessons(self), Parting(self)
        self.members = Members(self)
        listener = Listener(self._later(self.inbox.arrived), lambda parcel: None, self._later(self._token))
        self._noted_life = life = next_life(setup.folder)
        self.link = Link(setup.endpoint, self.limits, listener, life)
        reactions = Reactions(self._found, self._lost, self.inbox.arrived, self._remembers)
        self.neighbours = Neighbours(self.facts, self.link, self.news, self.state.alive, reactions)
        self.desk = Desk(setup.folder, self.newest_copy, setup.named)
        self.outside = Outside(0.0, setup.seed.child("protocol", self.me, life).python())
        self.telling = setup.seed.child("tally", self.me, life).python()
        self.diary = Diary(setup.folder, life, keep=setup.keep_traces)
        self.keys = setup.seed.child("batches", self.me, life).python()
        told = self._later(self.lessons.trained), self._later(self.lessons.measured_last)
        self.trainings = Trainings(setup, trainer, *told)
        self._answer_questions()

    def _own_words(self) -> OwnWords | None:
        """Signatures under what nodes say of themselves; None without certificates."""
        own = self.setup.endpoint
        if own.credentials is None:
            return None
        first = own.credentials
        return OwnWords(own.cluster, lambda: self.link.endpoint.credentials or first, self._name)

    def _name(self, number: int) -> str:
        """Of any node; "" where there is none of that number."""
        roster, own = self.setup.roster, self.setup.endpoint
        if number == self.me:
            return own.name
        known = roster.known if roster is not None else {peer: name for name, peer in own.neighbours.items()}
        return known.get(number, "")

    def _answer_questions(self) -> None:
        """Only when there is all that the answers are made of."""
        self.link.answer(STATUS, lambda asked: json.dumps(self.status(), allow_nan=False).encode())
        self.link.answer(STOP, lambda asked: json.dumps(self._stop_asked()).encode())
        self.members.answer_questions()
        self.link.answer(RECORDS, lambda asked: self.desk.answer(asked, self._how_far()))

    def _scale(self) -> Scale:
        setup, trainer = self.setup, self.trainer
        sizes = (FLOAT_BYTES * trainer.width, FLOAT_BYTES * trainer.state_width)
        beside = trainer.width - parameters_of(trainer)
        return Scale(*sizes, trainer.local_steps, setup.optimizer_state, beside > 0, FLOAT_BYTES * beside)

    def _payloads(self) -> dict[str, frozenset[int]]:
        """How many bytes may come with which kind of message: no other size is a model of this study."""
        kinds, size = self.interpreter.messages, self.interpreter.payload_of
        return {kind: frozenset((size(kind, 0), size(kind, 1))) for kind, arrival in kinds.items() if arrival.slot}

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the run is over or the node is asked to leave; raises what a training raised."""
        try:
            self.link.start()
            self._await_neighbours()
            self._begin()
            while not self._over():
                self._turn()
        finally:
            self.parting.close()
        if self.state.failure is not None:
            raise self.state.failure

    def leave(self) -> None:
        """Ask the node to pass its walks on and go. Callable from any thread and from a signal handler."""
        self.events.put(self._leave)

    def leave_for_good(self) -> None:
        """The same, never to come back: others take its place in the graph. Callable from any thread."""
        self.events.put(self.members.leave)

    def status(self) -> dict[str, Any]:
        """What a person wants to know; callable from any thread."""
        return status_of(self)

    @property
    def done(self) -> bool:
        """Whether it has seen the end of the run, and what was under way then has arrived and is written down."""
        return self.end.since > SETTLE and not self.trainings.measuring and not self.link.waiting(set(self.state.alive))

    def _how_far(self) -> dict[str, Any]:
        """For whoever collects."""
        return {"done": self.done, "iterations": self.state.tally.iterations}

    def _stop_asked(self) -> dict[str, Any]:
        self.leave()
        return {"name": self.setup.endpoint.name, "leaves": True}

    def _later(self, call: Callable[..., None]) -> Callable[..., None]:
        """The same call, but made by the loop when its turn comes."""
        return lambda *args: self.events.put(lambda: call(*args))

    def _await_neighbours(self) -> None:
        """Let the neighbours come, or some seconds pass; what early ones say is kept for later.

        One that comes back does not wait for those that are dead: walks are on their way to it already.
        """
        self.news.say(f"listens on {self.setup.endpoint.listen}, waits for its neighbours")
        end = time.monotonic() + self.setup.wait_for_neighbours
        returns = self.kept is not None
        while not self.state.leaving and time.monotonic() < end:
            everyone = set(self.setup.endpoint.neighbours.values())
            if everyone == self.state.alive | set(self.neighbours.strangers):
                break
            self.neighbours.look_around()
            with suppress(queue.Empty):
                self.events.get(timeout=max(0.0, min(end - time.monotonic(), LOOK_EVERY)))()
            if (returns or self.setup.joins) and self.state.alive:
                end = min(end, time.monotonic() + COME_BACK)
        if not self.state.leaving:
            missing = set(self.setup.endpoint.neighbours.values()) - self.state.alive - set(self.neighbours.strangers)
            self.news.absent(missing, logging.INFO if returns else logging.WARNING)

    def _begin(self) -> None:
        self.clock.begin()
        kept, self.kept = self.kept, None
        if kept is None:
            iterations, sent, self.clock.behind = self.setup.before
            self.state.tally.remember(iterations, sent)
            self.give(Started(late=self.neighbours.known or self.setup.joins))
        else:
            self.interpreter.slots[self.me] = {**kept.slots, INITIAL: self.setup.initial}
            self.interpreter.states = {(self.me, slot): state for slot, state in kept.states.items()}
            self.state.saved = kept.number
            self.state.tally.remember(kept.iterations, kept.sent)
            self.state.tally.remember_others(kept.others)
            self.clock.behind = kept.seconds
            self.note("rejoined", number=kept.number)
            effects = self.answer(Rejoined(kept.memory))
            if (memory := self.machine.keepsake()) != kept.memory:
                self.keeper.save(replace(kept, memory=memory))  # what was left in order is gone on with once
            self.deeds.carry_out_all(effects)
        if kept is not None or self.setup.joins:
            for peer in sorted(set(self.setup.endpoint.neighbours.values()) - self.state.alive):
                self.give(PeerLost(peer))
        self.interpreter.iteration = self.state.tally.own.iterations
        self.begun = True
        if self.setup.joins:
            self.note("joined", peer=self.me, detail={"name": self.setup.endpoint.name})
        self.note("started", detail={"alive": len(self.state.alive)})
        self.news.say(f"begins; {len(self.state.alive)} of {len(self.setup.endpoint.neighbours)} neighbours are there")
        self.inbox.catch_up()
        self.clock.set_timer(tallies.KIND, TALLY_EVERY)

    def _turn(self) -> None:
        if self.state.alive and self.link.namesakes.is_outvoted(self.state.alive):
            self._stand_aside()
        else:
            self._step()

    def _stand_aside(self) -> None:
        """Most neighbours listen to another node of this name: what comes here would not go on. A person has to look.

        It does not end: whoever watches over it would start it again, and then the other one would not be heard.
        """
        name = self.setup.endpoint.name
        log.error("%s: stands aside and does nothing any more: %s", name, two_called(name))
        self.state.aside, self.begun = True, False
        self._note_later_life()
        self.trainings.give_up()
        self.link.step_aside()
        self.state.alive.clear()
        while not self.state.leaving:
            with suppress(queue.Empty):  # all but this came from neighbours, or is of no use to them
                if self.events.get(timeout=LOOK_EVERY) in (self._leave, self.members.leave):
                    self._leave()

    def _step(self) -> None:
        """One event: the next in the queue, or the next timer."""
        name, seconds = self.clock.next_timer()  # there is always one: the tally's
        try:
            call = self.events.get(timeout=seconds)
        except queue.Empty:
            self.clock.drop_timer(name)
            self._timer(name)
        else:
            call()

    def _over(self) -> bool:
        state = self.state
        state.leaving = state.leaving or self.members.may_go
        if state.leaving or state.failure is not None:
            return True
        if not self.end.seen:
            return False
        if self.trainings.measuring and not self.end.long_seen:
            return False
        if self.desk.awaited or (self.end.since < self.setup.stay and not self.desk.collected):
            return False  # somebody comes for what was learned
        done = all(state.tally.counts.get(peer, tallies.Count()).done for peer in state.alive)
        return (done and not self.link.waiting(state.alive)) or self.end.long_seen

    def give(self, event: Event) -> None:
        """Let the machine take an event, and carry out what it asks for."""
        self.deeds.carry_out_all(self.answer(event))

    def answer(self, event: Event) -> list[Effect]:
        """What the machine asks for."""
        return self.machine.handle(event, self.look_outside())

    def look_outside(self) -> Outside:
        """The time and the rest, as it is now."""
        self.outside.now = self.clock.elapsed
        self.outside.resources = (self.link.bandwidth, *self.setup.around.resources[1:])
        return self.outside

    def _leave(self) -> None:
        self.news.say("is asked to leave")
        self.state.leaving = True

    # -- neighbours ---------------------------------------------------------------------------------------------

    def _token(self, peer: int, there: bool) -> None:
        self.neighbours.token(peer, there)

    def _knows(self, peer: int) -> bool:
        """Whether there is or was such a node."""
        return self.setup.around.knows(peer)

    def _found(self, peer: int) -> None:
        self.members.greet(peer)
        for chain in self.words.all() if self.words is not None else ():
            self.tell_certificate(peer, chain)
        if self.begun:
            self.note("found", peer=peer)
            self.give(PeerFound(peer))

    def _lost(self, peer: int) -> None:
        self.link.cancel(peer)  # the protocol sends it elsewhere, or again when the neighbour is back
        if self.begun:
            self.note("lost", peer=peer)
            self.give(PeerLost(peer))

    def _remembers(self, peer: int) -> bool:
        """Whether anything is known of what a neighbour has done."""
        count = self.state.tally.counts.get(peer)
        return count is not None and count.iterations > 0

    def tell_tally(self, peer: int) -> None:
        """Tell a neighbour how far everybody is."""
        note = self.state.tally.encode(self.clock.run_time, self.telling)
        self.link.send(Parcel(self.me, peer, Message(tallies.KIND, note=note)), None)
        if self.words is not None:
            self.tell_certificate(peer, self.words.next())  # words may get lost

    def tell_certificate(self, peer: int, chain: bytes) -> None:
        """By which a neighbour can tell whose words it hears."""
        self.link.send(Parcel(self.me, peer, Message(own_words.KIND, note=chain)), None)

    def _look_how_to_spoil(self) -> None:
        """Whether this node is to be a bad one, for a trial of what protects from such."""
        how = spoiling(self.setup.folder)
        self.interpreter.corrupt = {self.me: how} if how else {}

    # -- timers and records ---------------------------------------------------------------------------------------

    def _timer(self, name: str) -> None:
        if name != tallies.KIND:
            self.give(TimerFired(name.removeprefix("machine/")))
            return
        waiting = bool(len(self.trainings) or self.link.waiting(self.state.alive))
        idle = not (waiting or self.machine.has_work()) or (self.purse is not None and self.purse.empty)
        self.state.tally.say(idle, self.state.loss, self.setup.samples)
        self.lessons.see_the_end()
        self.link.fit_buffers()
        self.link.blocked = blocked_by(self.setup.folder)
        self._look_how_to_spoil()
        if self.trainings.swallowed and not self.lessons.swallows():
            self.trainings.let_go()
            self.lessons.train_next()
        if len(self.state.alive) < len(self.setup.endpoint.neighbours):
            self.neighbours.look_around()
        for peer in self.state.alive:
            self.tell_tally(peer)
        self.members.compare()
        self._note_later_life()
        self.keeper.save_sometimes(self.to_keep)
        self.clock.set_timer(tallies.KIND, TALLY_EVERY)

    def _note_later_life(self) -> None:
        """Neighbours listen to a later life of this node; the next one shall be heard, whatever the clock says."""
        later = self.link.namesakes.later
        if later > self._noted_life:
            self._noted_life = later
            note_life(self.setup.folder, later)

    def to_keep(self) -> Kept:
        """What a later life needs, as it is now."""
        state, own, what = self.state, self.state.tally.own, self.interpreter
        state.saved += 1
        self.note("saved", number=state.saved)
        counts, over = (own.iterations, own.sent, state.saved), repr(self.setup.stop) if self.end.seen else ""
        states = {slot: tensor for (_, slot), tensor in what.states.items()}
        memory = self.machine.farewell() if state.leaving or self.end.seen else self.machine.keepsake()
        return Kept(
            dict(what.slots[self.me]),
            states,
            *counts,
            memory,
            self.clock.run_time,
            over,
            self.facts,
            state.tally.others,
        )

    def newest_copy(self) -> Copy | None:
        """The aggregate, where this node aggregates, else the model that it showed last; callable from any thread."""
        what, recorded = self.interpreter, self.recorded
        if what.aggregate is not None and what.aggregate_slot in what.slots[self.me]:
            return Copy(what.aggregate, AGGREGATE, what.aggregate_term)
        if recorded is None or recorded.role == AGGREGATE:
            return None
        return Copy(what.members[recorded.key], recorded.role, recorded.key)

    def note(self, event: str, slot: str = "", **columns: Any) -> None:
        """A line in the trace."""
        self.interpreter.note_down(self.me, event, slot, **columns)

    def _write(self, row: TraceRow) -> None:
        self.news.event(row.event, row.peer, row.walk, row.number)
        self.counts.note(row)
        self.diary.note(row)
        if row.event == "elected":
            self.keeper.soon()  # where all nodes die at once, the next term must be a later one
