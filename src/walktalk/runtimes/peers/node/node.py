"""One node of a real deployment: a loop that gives events to a protocol machine and carries out what it asks for.

Everything that happens (a message, a neighbour gone, a training done, a signal) comes to one queue and is handled by
one thread, one after the other, so the machine needs no locks. That thread never waits for the network, the disk or a
training. `Node` makes the parts and gives each of them what it needs:

    link         messages and connections          inbox        what comes, and what of it is refused
    models       the contents of slots             runner       the machine, and the effects that it asks for
    neighbours   who is listened to                training     what is trained and measured
    members      who belongs to the cluster        progress     how far everybody is, and when the run is over
    memory       what a later life needs           reports      trace, log and counts
    file_server  what is collected from it         health       what it says of itself
    participation  who takes part
"""

from __future__ import annotations

import json
import logging
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from walktalk.core.errors import UnavailableError
from walktalk.core.wall_clock import wall_seconds
from walktalk.protocols import HEADER_BYTES, Context, PeerFound, PeerLost, Started, TimerFired
from walktalk.runtimes.peers.identity.editions import Sight, look_answer
from walktalk.runtimes.peers.identity.handshake import duplicate_name, facts_of, next_life, remember_life
from walktalk.runtimes.peers.identity.signed_statements import CERTIFICATE_KIND, SignedStatements
from walktalk.runtimes.peers.node.checkpoints import Checkpoints, Memory
from walktalk.runtimes.peers.node.effect_runner import MACHINE, EffectRunner, Inbox
from walktalk.runtimes.peers.node.event_log import FileServer
from walktalk.runtimes.peers.node.health import Health
from walktalk.runtimes.peers.node.members import ROSTER_KIND, Members
from walktalk.runtimes.peers.node.models import Models
from walktalk.runtimes.peers.node.neighbours import LATER_KIND, Neighbours, Reactions
from walktalk.runtimes.peers.node.participation import Participation
from walktalk.runtimes.peers.node.progress import TOLD_EVERY, Progress
from walktalk.runtimes.peers.node.reports import EventLog, Reports
from walktalk.runtimes.peers.node.roster import Standing
from walktalk.runtimes.peers.node.shutdown import Shutdown
from walktalk.runtimes.peers.node.state import NodeSetup, NodeState
from walktalk.runtimes.peers.node.statement import in_words, statement_of, write_statement
from walktalk.runtimes.peers.node.tally import COUNTS_KIND, TALLY_KIND, Count, Tally
from walktalk.runtimes.peers.node.training import HAND_ON, TrainingControl, TrainingQueue
from walktalk.runtimes.peers.wire.link import Link, Listener
from walktalk.runtimes.peers.wire.messages import Limits, Parcel
from walktalk.runtimes.peers.wire.session import LOOK, RECORDS, STATUS, STOP
from walktalk.runtimes.stacked import RowTrainer

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5  # seconds, while a node waits for its neighbours
COME_BACK = 1.0  # seconds that one which comes back gives its neighbours, after the first: connections take that long
SETTLE = 1.0  # seconds after the end in which what is on its way arrives: halves of an exchange, a walk


class Node:
    """One peer of a cluster, from its first connection to its last."""

    def __init__(self, setup: NodeSetup, trainer: RowTrainer) -> None:
        """
        - `setup`: everything that the node needs to know.
        - `trainer`: trains on its data.
        """
        if setup.roster is None:  # else the cluster of the file was checked, and the aggregator may have left since
            setup.protocol.check(setup.around.nodes)
        if "peers" not in setup.protocol.runtimes:
            raise UnavailableError(f"{setup.protocol.label} runs in the simulator only; use --engine sim")
        self.setup = setup
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        protocol, me, endpoint = setup.protocol.resilient_form(), setup.around.node, setup.endpoint
        machine = protocol.machine(setup.around)
        facts = facts_of({"algorithm": protocol, **setup.study}, setup.initial, setup.frozen)
        checkpoints = Checkpoints(
            setup.folder, lambda: self.file_server.put_copies(), lambda: self.reports.event_log.sync()
        )
        if setup.rejoin:
            checkpoints.recall(facts, trainer.width)
        life = next_life(setup.folder)
        self.state = NodeState(life)
        event_log = EventLog(setup.folder, life, keep=setup.keep_traces)
        self.reports = Reports(endpoint, event_log, self.state.clock, checkpoints.soon)
        batches = setup.seed.child("batches", me, life).python()
        self.models = Models(setup, trainer, self.reports.write, self.state.clock, batches)
        self.link = Link(endpoint, Limits(self.models.payloads()), incarnation=life)
        statements = self._signed_statements()
        largest = max((size for sizes in self.models.payloads().values() for size in sizes), default=0)
        tally = Tally(me, setup.around.nodes, self._knows, statements, HEADER_BYTES + largest, self._edges)
        dice = setup.seed.child("tally", me, life).python()
        self.progress = Progress(tally, statements, setup.stop, self.link, self.state, dice)
        context = Context(0.0, setup.seed.child("protocol", me, life).python(), setup.around.resources)
        self.runner = EffectRunner(
            machine,
            context,
            self.models,
            self.link,
            self.state,
            self.progress,
            lambda request: self.training.ask(request),
        )
        trainings = TrainingQueue(
            setup,
            trainer,
            self._later(lambda outcome: self.training.trained(outcome)),
            self._later(lambda measured: self.training.measured_last(measured)),
        )
        self.training = TrainingControl(
            setup, trainings, self.models, self.state, self.progress, self.link, self.reports, self.runner.give
        )
        reactions = Reactions(self._found, self._lost, lambda delivery: self.inbox.arrived(delivery), tally.remembers)
        signed = b"" if statements is None else statements.signed_life(me, life)
        self.sight = Sight(facts, setup.schema, setup.edition)
        self.neighbours = Neighbours(
            facts,
            self.link,
            self.reports.news,
            self.state.alive,
            reactions,
            lambda: signed,
            self.state.speaks,
            self.sight,
        )
        self.members = Members(
            setup, self.state, self.link, self.neighbours, self.progress, self.runner, self.reports, self.events
        )
        hear = {
            TALLY_KIND: self._hear_tally,
            COUNTS_KIND: self._hear_tally,
            ROSTER_KIND: self.members.hear,
            CERTIFICATE_KIND: self.progress.hear_certificate,
            LATER_KIND: self._hear_of_later_life,
        }
        self.inbox = Inbox(
            self.events.put, self.state, self.link, self.neighbours, self.models, self.runner, self.reports, hear
        )
        self.link.listener = Listener(self.inbox.put, peer=self._later(self.neighbours.token))
        self.memory = Memory(
            setup, facts, checkpoints, self.models, self.runner, self.state, self.progress, self.reports
        )
        handed_out = self.reports.exchanged.hand_out
        self.file_server = FileServer(
            setup.folder, self.models.newest_copy, setup.named, self._state_what_was_done, handed_out
        )
        returns = checkpoints.past is not None or setup.joins
        self.participation = Participation(tally, self._names, setup.at_least, self.reports.news, returns)
        self.health = Health(
            self.state,
            self.link,
            self.models,
            trainings,
            self.progress,
            self.neighbours,
            self.members,
            self.memory,
            self.reports,
            self.participation,
        )
        self._answer_questions()

    def _signed_statements(self) -> SignedStatements | None:
        """Signatures under what nodes say of themselves; None without certificates."""
        own, connections = self.setup.endpoint, self.link.connections
        if own.credentials is None:
            return None
        first = own.credentials
        nodes = len(self.setup.roster.names) if self.setup.roster is not None else 0
        return SignedStatements(own.cluster, lambda: connections.credentials or first, self._name, nodes)

    def _name(self, number: int) -> str:
        """The name of any node; "" where there is none of that number."""
        roster, own = self.setup.roster, self.link.endpoint
        if number == own.number:
            return own.name
        known = roster.known if roster is not None else {peer: name for name, peer in own.neighbours.items()}
        return known.get(number, "")

    def _names(self) -> dict[int, str]:
        """The names of all that belong, by number; of a node that knows no roster, of itself and its neighbours."""
        roster, own = self.setup.roster, self.link.endpoint
        if roster is None:
            return {own.number: own.name, **{peer: name for name, peer in own.neighbours.items()}}
        return {n: name for n, name in roster.known.items() if roster.standing(name) is not Standing.LEFT}

    def _state_what_was_done(self) -> None:
        """Write this node's signed statement of what it has done; from any thread."""
        setup, tally, state = self.setup, self.progress.tally, self.state
        own = {
            "cluster": setup.endpoint.cluster,
            "node": setup.endpoint.name,
            "site": self.members.site,
            "members": sorted(self._names().values()),
            "iterations": tally.own.iterations,
            "bytes_sent": tally.own.sent,
            "samples": setup.samples if setup.owned is None else setup.owned,
            "state": "over" if self.progress.end.seen else "left" if state.leaving else "runs",
            "moment": in_words(wall_seconds()),
        }
        if self.models.budget is not None:
            own["epsilon"] = f"{self.models.budget.epsilon:.4g}"  # what its privacy has cost
        said = statement_of(self.memory.facts, own, self.reports.exchanged.said(self._name))
        files = self.link.connections.credentials or setup.endpoint.credentials
        write_statement(setup.folder, said, files)

    def _knows(self, number: int) -> bool:
        """Whether there is or was such a node."""
        return self.members.view.knows(number)

    def _edges(self, number: int) -> int:
        """How many neighbours a node of the first graph has, as far as it is known here."""
        roster, around = self.setup.roster, self.setup.around
        if roster is not None:
            return len(roster.base.contacts(number)) if number < roster.base.nodes else 0
        return dict(zip(around.neighbours, around.degrees, strict=False)).get(number, 0)

    def _answer_questions(self) -> None:
        """Declare what can be asked, once there is all that the answers are made of."""
        answer = self.link.connections.answer
        answer(STATUS, lambda asked: json.dumps(self.status(), allow_nan=False).encode())
        answer(LOOK, look_answer(self.sight), asker="*")
        answer(STOP, lambda asked: json.dumps(self._stop_asked()).encode())
        answer(RECORDS, lambda asked: self.file_server.answer(asked, self._how_far()))
        self.members.answer_questions()

    def _stop_asked(self) -> dict[str, Any]:
        self.leave()
        return {"name": self.setup.endpoint.name, "leaves": True}

    def _how_far(self) -> dict[str, Any]:
        """Whether the run is over here, for whoever collects, and what is known of the others: some may be gone."""
        tally = self.progress.tally
        others = {name: counts for node, counts in tally.others.items() if (name := self._name(node))}
        return {"done": self.done, "iterations": tally.iterations, "others": others}

    def _later(self, call: Callable[..., None]) -> Callable[..., None]:
        """Wrap a call so that it is made by the loop when its turn comes."""
        return lambda *args: self.events.put(partial(call, *args))

    # -- from outside -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take part until the run is over or the node is asked to leave; raises what a training raised."""
        try:
            self.link.start()
            self._await_neighbours()
            self._begin()
            while not self._over():
                self._turn()
            if self.progress.end.seen:
                self.participation.end()
        finally:
            Shutdown(
                self.state, self.training, self.members, self.progress, self.link, self.reports, self.events, self._keep
            ).close()
        if self.state.failure is not None:
            raise self.state.failure

    def leave(self) -> None:
        """Ask the node to pass its walks on and go. Callable from any thread and from a signal handler."""
        self.events.put(self._leave)

    def fail(self, why: Exception) -> None:
        """End the node with an error, which `run` raises. Callable from any thread."""
        self.events.put(lambda: setattr(self.state, "failure", why))

    def leave_for_good(self) -> None:
        """Ask the node to leave and never come back: others take its place in the graph. Callable from any thread."""
        self.events.put(self.members.leave)

    def status(self) -> dict[str, Any]:
        """What a person wants to know; callable from any thread."""
        return self.health.status()

    @property
    def done(self) -> bool:
        """Whether it has seen the end of the run, and what was under way then has arrived and is written down."""
        waiting = self.training.queue.measuring or self.link.waiting(set(self.state.alive))
        return self.progress.end.since > SETTLE and not waiting

    # -- the loop -----------------------------------------------------------------------------------------------

    def _await_neighbours(self) -> None:
        """Let the neighbours come, or some seconds pass; what early ones say is kept for later.

        One that comes back does not wait for those that are dead: walks are on their way to it already.
        """
        news, state, strangers = self.reports.news, self.state, self.neighbours.strangers
        news.say(f"listens on {self.setup.endpoint.listen}, waits for its neighbours")
        end = time.monotonic() + self.setup.wait_for_neighbours
        returns = self.memory.checkpoints.past is not None
        while not state.leaving and time.monotonic() < end:
            if set(self.link.endpoint.neighbours.values()) == state.alive | set(strangers):
                break
            self.neighbours.look_around()
            with suppress(queue.Empty):
                self.events.get(timeout=max(0.0, min(end - time.monotonic(), LOOK_EVERY)))()
            if (returns or self.setup.joins) and state.alive:
                end = min(end, time.monotonic() + COME_BACK)
        self._await_enough()
        if not state.leaving:
            missing = set(self.link.endpoint.neighbours.values()) - state.alive - set(strangers)
            news.absent(missing, logging.INFO if returns else logging.WARNING)

    def _await_enough(self) -> None:
        """Wait until as many nodes are there as the run asks for, however long that takes; neighbours or not."""
        state, tally, say_at = self.state, self.progress.tally, 0.0
        while not state.leaving and self.participation.is_waited_for:
            if (now := time.monotonic()) >= say_at:  # not after every event: an answer is one, too
                say_at = now + LOOK_EVERY
                tally.say(False, None, self.setup.samples)
                self.progress.announce_to_all()
                self.neighbours.look_around()
                self.participation.remind()
            with suppress(queue.Empty):
                self.events.get(timeout=max(0.0, say_at - now))()

    def _begin(self) -> None:
        state, tally, past = self.state, self.progress.tally, self.memory.checkpoints.past
        state.clock.begin()
        if past is None:
            iterations, sent, state.clock.behind = self.setup.before
            tally.remember(iterations, sent)
            self.runner.give(Started(late=self.neighbours.known or self.setup.joins))
        else:
            self.memory.put_back(past)
        neighbours = self.link.endpoint.neighbours
        if past is not None or self.setup.joins:
            for peer in sorted(set(neighbours.values()) - state.alive):
                self.runner.give(PeerLost(peer))
        self.models.interpreter.iteration = tally.own.iterations
        state.begun = True
        if self.setup.joins:
            self.reports.trace("joined", peer=self.models.me, detail={"name": self.setup.endpoint.name})
        self.reports.trace("started", detail={"alive": len(state.alive)})
        self.reports.news.say(f"begins; {len(state.alive)} of {len(neighbours)} neighbours are there")
        self.participation.begin()
        self.inbox.catch_up()
        state.clock.set_timer(TALLY_KIND, TOLD_EVERY)

    def _turn(self) -> None:
        twins = self.link.duplicate_names
        proved = self.progress.statements is None or twins.proved > self.link.incarnation
        if self.state.alive and proved and twins.is_outvoted(self.state.alive):
            self._stand_aside()
        else:
            self._step()

    def _stand_aside(self) -> None:
        """Most neighbours listen to another node of this name: what comes here would not go on. A person has to look.

        It does not end: whoever watches over it would start it again, and then the other one would not be heard.
        """
        name, state = self.setup.endpoint.name, self.state
        log.error("%s: stands aside and does nothing any more: %s", name, duplicate_name(name))
        state.aside, state.begun = True, False
        self._note_later_life()
        self.training.queue.give_up()
        self.link.step_aside()
        state.alive.clear()
        while not state.leaving:
            with suppress(queue.Empty):  # all but this came from neighbours, or is of no use to them
                if self.events.get(timeout=LOOK_EVERY) in (self._leave, self.members.leave):
                    self._leave()

    def _step(self) -> None:
        """Handle one event: the next in the queue, or the next timer."""
        name, seconds = self.state.clock.next_timer()  # there is always one: the tally's
        try:
            call = self.events.get(timeout=seconds)
        except queue.Empty:
            self.state.clock.drop_timer(name)
            if name == TALLY_KIND:
                self._look_after()
            elif name == HAND_ON:
                self.training.hand_hung_walks_on()
            else:
                self.runner.give(TimerFired(name.removeprefix(MACHINE)))
        else:
            call()

    def _over(self) -> bool:
        state, end = self.state, self.progress.end
        state.leaving = state.leaving or self.members.may_go
        if state.leaving or state.failure is not None:
            return True
        if not end.seen:
            return False
        if self.training.queue.measuring and not end.long_seen:
            return False
        if self.file_server.awaited or (end.since < self.setup.stay and not self.file_server.collected):
            return False  # somebody comes for what was learned
        done = all(self.progress.tally.counts.get(peer, Count()).done for peer in state.alive)
        return (done and not self.link.waiting(state.alive)) or end.long_seen

    def _look_after(self) -> None:
        """Do what is to be done several times a second, whatever comes."""
        state, connections = self.state, self.link.connections
        waiting = bool(len(self.training.queue) or self.link.waiting(state.alive))
        idle = not (waiting or self.runner.machine.has_work()) or self.models.budget_spent
        self.progress.tally.say(idle, state.loss, self.setup.samples, bool(state.hangs), state.score)
        self.training.watch()
        self.training.look_for_end()
        self.file_server.keep_best(self.training.look_for_best())
        connections.fit_buffers()
        self.neighbours.leave_out_the_deaf()
        self.neighbours.tell_of_later_lives()
        if len(state.alive) < len(self.link.endpoint.neighbours):
            self.neighbours.look_around()
        self.progress.announce_to_all()
        self.participation.look()
        self.members.compare()
        self._note_later_life()
        self.memory.save_sometimes()
        state.clock.set_timer(TALLY_KIND, self.progress.end.next_round(state.clock.run_time))

    def _note_later_life(self) -> None:
        """Neighbours listen to a later life of this node; the next one shall be heard, whatever the clock says."""
        later = self.link.duplicate_names.later
        if later > self.state.life:
            self.state.life = later
            remember_life(self.setup.folder, later)

    def _leave(self) -> None:
        self.reports.news.say("is asked to leave")
        self.state.leaving = True

    def _keep(self) -> None:
        """Write what was spent, the checkpoint, and the copies of the model for whoever collects."""
        if self.models.budget is not None:
            self.models.budget.close()
        self.memory.save()
        self.file_server.put_copies()

    # -- neighbours ---------------------------------------------------------------------------------------------

    def _found(self, peer: int) -> None:
        self.members.greet(peer)
        self.progress.greet(peer)
        if self.state.begun:
            self.reports.trace("found", peer=peer)
            self.runner.give(PeerFound(peer))

    def _lost(self, peer: int) -> None:
        self.link.cancel(peer)  # the protocol sends it elsewhere, or again when the neighbour is back
        if self.state.begun:
            self.reports.trace("lost", peer=peer)
            self.runner.give(PeerLost(peer))

    def _hear_of_later_life(self, parcel: Parcel) -> None:
        """A neighbour shows what a later life of this node has signed; `ValueError` where nobody of its name has."""
        statements, twins = self.progress.statements, self.link.duplicate_names
        if statements is not None:
            twins.proved = max(twins.proved, statements.life_in(self.models.me, parcel.message.note))

    def _hear_tally(self, parcel: Parcel) -> None:
        self.progress.hear(parcel)
        if self.state.begun:
            self.training.look_for_end()
