"""One node of a real deployment: a loop that gives events to a protocol machine and carries out what it asks for.

Everything that happens (a message, a neighbour gone, a training done, a signal) comes to one queue and is handled by
one thread, one after the other, so the machine needs no locks. That thread never waits for the network, the disk or a
training.
"""

from __future__ import annotations

import json
import logging
import math
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from walktalk.errors import ProtocolError, UnavailableError
from walktalk.protocols import (
    AGGREGATE,
    INITIAL,
    Combine,
    Decode,
    Differentiate,
    Effect,
    Encode,
    Event,
    Forget,
    Message,
    Note,
    Outside,
    PeerFound,
    PeerLost,
    Received,
    Record,
    Rejoined,
    Screen,
    Send,
    SetTimer,
    Started,
    TimerFired,
    Train,
    Trained,
    control_bytes,
)
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import FLOAT_BYTES, NOTHING, Interpreter, Scale, Work
from walktalk.runtimes.peers import acquaintance
from walktalk.runtimes.peers import tally as tallies
from walktalk.runtimes.peers.assembly import Delivery, Limits
from walktalk.runtimes.peers.diary import Diary
from walktalk.runtimes.peers.handing_out import Copy, Desk
from walktalk.runtimes.peers.judging import Judge, Refused
from walktalk.runtimes.peers.keeping import Keeper, Kept, own_past
from walktalk.runtimes.peers.link import Link, Listener
from walktalk.runtimes.peers.lives import next_life
from walktalk.runtimes.peers.neighbours import Neighbours, Reactions
from walktalk.runtimes.peers.news import News
from walktalk.runtimes.peers.node_clock import Clock
from walktalk.runtimes.peers.node_end import ALL_LOST, End
from walktalk.runtimes.peers.node_state import SWALLOWS, NodeSetup, State, blocked_by, spoiling
from walktalk.runtimes.peers.node_status import status_of
from walktalk.runtimes.peers.node_training import Trainings
from walktalk.runtimes.peers.session import RECORDS, STATUS, STOP
from walktalk.runtimes.peers.slots import Tensors, to_wire
from walktalk.runtimes.peers.training import Outcome
from walktalk.runtimes.peers.wire import Parcel
from walktalk.runtimes.stacked import RowTrainer, parameters_of

log = logging.getLogger(__name__)

TALLY_EVERY = 0.25  # seconds between two rounds of gossip about how far everybody is
LOOK_EVERY = 0.5  # seconds, while a node waits for its neighbours
COME_BACK = 1.0  # seconds that one which comes back gives its neighbours, after the first: connections take that long
HAND_OVER = 10.0  # seconds that a leaving node takes at most to pass its walks on
SETTLE = 1.0  # seconds after the end in which what is on its way arrives: halves of an exchange, a walk
LAZY_STEPS = 10_000  # a walk that stays put so often has nowhere to go


class Node:
    """One peer, from the first connection to the last."""

    def __init__(self, setup: NodeSetup, trainer: RowTrainer) -> None:
        setup.protocol.check(setup.around.nodes)
        if "peers" not in setup.protocol.runtimes:
            raise UnavailableError(f"{setup.protocol.label} runs in the simulator only; use --engine sim")
        self.setup, self.trainer = setup, trainer
        self.me = setup.around.node
        protocol = setup.protocol.hardened()
        self.machine = protocol.machine(setup.around)
        self.state = State(tallies.Tally(self.me, setup.around.nodes))
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.begun = False
        self.recorded: Record | None = None  # the last that the protocol showed
        self.early: list[Delivery] = []  # messages from before the start; one model for each neighbour at most
        self.clock = Clock()
        self.end = End(setup.stop, self.state.tally)
        self.news = News(setup.endpoint)
        self.tensors = Tensors(trainer.width, parameters_of(trainer))
        self.interpreter = Interpreter(
            self.tensors, protocol.messages, self._scale(), self._write, lambda: self.clock.wall
        )
        self.interpreter.add_node(self.me, setup.initial)
        self._look_how_to_spoil()
        self.limits = Limits(self._payloads())
        self.judge = Judge(setup.initial, setup.largest)
        self.facts = acquaintance.facts_of({"algorithm": protocol, **setup.study}, setup.initial, setup.frozen)
        self.keeper = Keeper(setup.folder, lambda: self.desk.put_copy())
        self.kept = own_past(self.keeper, self.facts, trainer.width) if setup.rejoin else None
        listener = Listener(self._later(self._arrived), lambda parcel: None, self._later(self._token))
        life = next_life(setup.folder)
        self.link = Link(setup.endpoint, self.limits, listener, life)
        reactions = Reactions(self._found, self._lost, self._arrived, self._remembers)
        self.neighbours = Neighbours(self.facts, self.link, self.news, self.state.alive, reactions)
        self.desk = Desk(setup.folder, self._newest_copy, setup.named)
        self.outside = Outside(0.0, setup.seed.child("protocol", self.me, life).python())
        self.telling = setup.seed.child("tally", self.me, life).python()
        self.diary = Diary(setup.folder, life)
        self.keys = setup.seed.child("batches", self.me, life).python()
        self.trainings = Trainings(setup, trainer, self._later(self._trained), self._later(self._measured_last))
        self._answer_questions()

    def _answer_questions(self) -> None:
        """Only when there is all that the answers are made of."""
        self.link.answer(STATUS, lambda asked: json.dumps(self.status(), allow_nan=False).encode())
        self.link.answer(STOP, lambda asked: json.dumps(self._stop_asked()).encode())
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
                self._step()
        finally:
            self._close()
        if self.state.failure is not None:
            raise self.state.failure

    def leave(self) -> None:
        """Ask the node to pass its walks on and go. Callable from any thread and from a signal handler."""
        self.events.put(self._leave)

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
        everyone = set(self.setup.endpoint.neighbours.values())
        returns = self.kept is not None
        while not self.state.leaving and time.monotonic() < end:
            if everyone == self.state.alive | set(self.neighbours.strangers):
                break
            self.neighbours.look_around()
            with suppress(queue.Empty):
                self.events.get(timeout=max(0.0, min(end - time.monotonic(), LOOK_EVERY)))()
            if returns and self.state.alive:
                end = min(end, time.monotonic() + COME_BACK)
        if not self.state.leaving:
            missing = everyone - self.state.alive - set(self.neighbours.strangers)
            self.news.absent(missing, logging.INFO if returns else logging.WARNING)

    def _begin(self) -> None:
        self.clock.begin()
        kept, self.kept = self.kept, None
        if kept is None:
            iterations, sent, self.clock.behind = self.setup.before
            self.state.tally.remember(iterations, sent)
            self._give(Started(late=self.neighbours.known))
        else:
            self.interpreter.slots[self.me] = {**kept.slots, INITIAL: self.setup.initial}
            self.interpreter.states = {(self.me, slot): state for slot, state in kept.states.items()}
            self.state.saved = kept.number
            self.state.tally.remember(kept.iterations, kept.sent)
            self.clock.behind = kept.seconds
            self._note("rejoined", number=kept.number)
            effects = self._answer(Rejoined(kept.memory))
            if (memory := self.machine.keepsake()) != kept.memory:
                self.keeper.save(replace(kept, memory=memory))  # what was left in order is gone on with once
            self._carry_out_all(effects)
            for peer in sorted(set(self.setup.endpoint.neighbours.values()) - self.state.alive):
                self._give(PeerLost(peer))
        self.interpreter.iteration = self.state.tally.own.iterations
        self.begun = True
        self._note("started", detail={"alive": len(self.state.alive)})
        self.news.say(f"begins; {len(self.state.alive)} of {len(self.setup.endpoint.neighbours)} neighbours are there")
        for delivery in self.early:
            self._arrived(delivery)
        self.clock.set_timer(tallies.KIND, TALLY_EVERY)

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

    def _close(self) -> None:
        """Part in order. Whatever of it fails is logged, and the rest is done: no token may outlive its node."""
        for part in (self._hand_walks_on, self._say_goodbye, self._keep, self.link.close, self.trainings.close):
            try:
                part()
            except Exception:
                log.exception("%s: something failed while it left", self.setup.endpoint.name)
        self.diary.close()

    def _say_goodbye(self) -> None:
        self.state.tally.end(over=False)
        for peer in self.state.alive:
            self._tell_tally(peer)
        if self.state.leaving:
            self._note("left")
            self._drain()

    def _keep(self) -> None:
        self.keeper.save(self._to_keep())
        self.desk.put_copy()

    def _drain(self) -> None:
        """Wait until the walks that were handed on are taken, by all that are not leaving too. Takes nothing in."""
        state, end = self.state, time.monotonic() + HAND_OVER
        self.begun = False
        while time.monotonic() < end:
            staying = [peer for peer in state.alive if not state.tally.counts.get(peer, tallies.Count()).done]
            if not self.link.waiting(staying):
                return
            with suppress(queue.Empty):
                self.events.get(timeout=0.02)()

    def _give(self, event: Event) -> None:
        """Let the machine take an event, and carry out what it asks for."""
        self._carry_out_all(self._answer(event))

    def _answer(self, event: Event) -> list[Effect]:
        """What the machine asks for."""
        return self.machine.handle(event, self._outside())

    def _outside(self) -> Outside:
        self.outside.now = self.clock.elapsed
        self.outside.resources = (self.link.bandwidth, *self.setup.around.resources[1:])
        return self.outside

    def _carry_out_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        what, me = self.interpreter, self.me
        match effect:
            case Combine():
                what.combine(me, effect)
            case Record():
                what.record(me, effect)
                self.recorded = effect
            case Send():
                self._send(effect)
            case Train() | Differentiate():
                if effect.walk > 0 and self._swallows():
                    self.trainings.swallow(effect)
                    self._note("swallowed", walk=effect.walk)
                    return
                self.trainings.ask(effect)
                self._train_next()
            case Forget():
                what.forget(me, effect)
            case Encode():
                what.encode(me, effect, self.keys.getrandbits(63))
            case Decode():
                what.decode(me, effect)
            case Screen():
                what.screen(me, effect, self.keys.getrandbits(63))
            case Note():
                what.note(me, effect)
            case SetTimer(name, after):
                self.clock.set_timer(f"machine/{name}", after)
            case _:
                raise UnavailableError(f"{self.setup.protocol.label}: {type(effect).__name__} needs the simulator")

    # -- training -----------------------------------------------------------------------------------------------

    def _swallows(self) -> bool:
        return (self.setup.folder / SWALLOWS).exists()

    def _train_next(self) -> None:
        effect = None if self.state.leaving or self.end.seen else self.trainings.next()
        if effect is None:
            return
        lr = self.setup.lr * self.setup.schedule(self.end.progress(self.clock.run_time))
        key, what = self.keys.getrandbits(63), self.interpreter
        try:
            work = what.begin_training(self.me, effect, self.trainings.count, key, lr)
        except ProtocolError as error:
            self.link.drop("nonsense", f"a training of {effect.slot!r}: {error}")
            return
        if what.keeps_states and work.state is None:
            work = work._replace(state=torch.zeros(self.trainer.state_width))
        self.trainings.begin(work)

    def _trained(self, outcome: Outcome) -> None:
        state, work, what = self.state, outcome.work, self.interpreter
        if not self.trainings.end(outcome):
            return
        if outcome.result is None:
            state.failure = outcome.error
            return
        if not self.judge.trained(outcome.result) and not work.gradient:
            self._diverged(work)
            return
        if outcome.loss is not None:
            state.loss = outcome.loss
            self._note_measured(outcome.loss, outcome.accuracy)
        state.tally.add(iterations=1)
        if what.keeps_states and outcome.state is not None:
            what.states[what.state_owner(self.me, work.slot)] = outcome.state
        what.end_training(work, outcome.result)
        state.busy_at = self.clock.elapsed
        self._after_training(work)

    def _diverged(self, work: Work) -> None:
        """A training that led to no finite model is as if it had not been."""
        if not self.state.diverged:
            log.warning(
                "%s: a training led to numbers that are not finite, and is left out; is optimizer.lr too large?",
                self.setup.endpoint.name,
            )
        self.state.diverged += 1
        self.interpreter.hand_on(self.me, work.slot, work.walk)
        self._after_training(work._replace(steps=0))

    def _after_training(self, work: Work) -> None:
        what = self.interpreter
        self._give(Trained(work.slot, work.walk, work.lr, work.steps))
        what.forget_result(self.me)
        self._see_the_end()
        self._train_next()

    def _measure_last(self) -> None:
        """What this node has in the end, on its own data: the last that is known of the run's loss."""
        copy = self._newest_copy() if self.setup.named is not None else None
        if copy is not None:
            self.trainings.measure(copy.model)

    def _measured_last(self, loss: float, accuracy: float) -> None:
        self._note_measured(loss, accuracy)
        self.trainings.measuring = False

    def _note_measured(self, loss: float, accuracy: float) -> None:
        """For whoever collects: nobody else sees this node's data."""
        facts = {"loss": loss, "samples": self.setup.samples, "accuracy": accuracy, "tested": self.setup.tested}
        self._note("measured", detail={name: value for name, value in facts.items() if not math.isnan(value)})

    def _see_the_end(self) -> None:
        why = "" if self.end.seen else self.end.look(self.clock.run_time, self.state.alive)
        if not why:
            return
        if why == ALL_LOST:
            self._note("all_lost")
        self._note("over")
        self.news.say(f"the run is over: {why}")
        self._measure_last()
        self.state.tally.end(over=True)
        for peer in self.state.alive:
            self._tell_tally(peer)

    # -- leaving ------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self.news.say("is asked to leave")
        self.state.leaving = True

    def _hand_walks_on(self) -> None:
        """Send every walk that is here to a neighbour, as if its training here had brought nothing."""
        state = self.state
        if not state.leaving or not state.alive:
            return
        what = self.interpreter
        for effect in self.trainings.give_up():
            for _ in range(LAZY_STEPS):
                self.trainings.give_up()  # it stays here, by the matrix: once more
                if effect.slot not in what.slots[self.me] or effect.walk <= 0:
                    break
                what.hand_on(self.me, effect.slot, effect.walk)
                self._give(Trained(effect.slot, effect.walk, self.setup.lr, 0))
        what.forget_result(self.me)

    # -- messages -----------------------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        what, message = self.interpreter, effect.message
        packed = what.pack(self.me, effect)
        if self.me in what.corrupt:
            packed = what.corrupted(self.me, effect.slot, packed, self.keys.getrandbits(63))
        travels = self.setup.optimizer_state == "walk" and message.walk > 0
        payload = to_wire(packed, self.trainer.state_width if travels else 0)
        parcel = Parcel(self.me, effect.to, message, -1 if payload is None else len(payload))
        withdrawn = 0
        if payload is not None:
            self._tell_tally(effect.to)  # where a model goes, training goes on: that node should know how far we are
            if effect.again and self.link.holds(parcel):
                return  # the protocol is impatient, but the link does not lose it
            if what.arrival(message).latest:
                withdrawn = self._withdraw(effect, packed.payload)
        stamp = self.link.send(parcel, payload)
        size = what.sent(self.me, effect, packed, stamp.number, stamp.incarnation)
        self.state.tally.add(sent=max(0, size - withdrawn))

    def _withdraw(self, effect: Send, payload: int) -> int:
        """Take back what waits for the same neighbour and is out of date; its bytes."""
        old, total = self.link.withdraw(effect.to, effect.message.kind, effect.message.walk), 0
        for parcel, stamp in old:
            size = control_bytes(parcel.message) + payload
            self.interpreter.superseded(self.me, effect.to, effect.slot, size, payload, *reversed(stamp))
            total += size
        return total

    def _arrived(self, delivery: Delivery) -> None:
        parcel, state = delivery.parcel, self.state
        if parcel.sender not in state.alive:
            self.link.look_around()  # its last words, or we have missed that it is there
        if not self.neighbours.admit(delivery):
            return
        if not self.begun and parcel.message.kind != tallies.KIND:
            self.early.append(delivery)
            return
        try:
            self._take(delivery) if parcel.message.kind != tallies.KIND else self._hear_tally(parcel)
        except Refused as error:
            self._refuse(parcel, error)
            self._carry_out_all(self.machine.refused(parcel.sender, parcel.message, self._outside()))
        except (ArithmeticError, LookupError, ValueError, ProtocolError) as error:
            self._refuse(parcel, error)  # nonsense from a neighbour must not end the node
        self.link.take(delivery)

    def _refuse(self, parcel: Parcel, why: Exception) -> None:
        self._note("refused", peer=parcel.sender, walk=parcel.message.walk)
        reason, sender = ("refused" if isinstance(why, Refused) else "nonsense"), self.news.name_of(parcel.sender)
        self.state.refused[sender] += 1
        self.link.drop(reason, f"{parcel.message.kind} from {sender}: {why}")

    def _hear_tally(self, parcel: Parcel) -> None:
        lasted = self.state.tally.hear(parcel.sender, parcel.message.note)
        if self.begun:
            self.clock.hear(lasted)
            self._see_the_end()

    def _take(self, delivery: Delivery) -> None:
        """The machine takes the message first, or refuses it; only then is anything written into a slot."""
        (sender, _, message, _), stamp, what = delivery.parcel, delivery.stamp, self.interpreter
        arrival, into, packed = what.arrival(message), what.arrives_in(sender, message), NOTHING
        if (delivery.payload is None) != (not into):
            raise ProtocolError(f"{'nothing' if into else 'a model'} came with it")
        if delivery.payload is not None:
            packed = self.tensors.from_wire(delivery.payload, into, arrival.codec)
            self.judge.check(sender, message.kind, packed)
            self.judge.check_room(sender, into, what.slots[self.me])
        effects = self._answer(Received(sender, message, into))
        what.receive(self.me, sender, message.walk, packed, stamp.number, stamp.incarnation)
        try:
            self._carry_out_all(effects)
        except (LookupError, ValueError, ProtocolError):
            what.forget(self.me, Forget(into))  # what is refused does not stay
            raise

    # -- neighbours ---------------------------------------------------------------------------------------------

    def _token(self, peer: int, there: bool) -> None:
        self.neighbours.token(peer, there)

    def _found(self, peer: int) -> None:
        if self.begun:
            self._note("found", peer=peer)
            self._give(PeerFound(peer))

    def _lost(self, peer: int) -> None:
        self.link.cancel(peer)  # the protocol sends it elsewhere, or again when the neighbour is back
        if self.begun:
            self._note("lost", peer=peer)
            self._give(PeerLost(peer))

    def _remembers(self, peer: int) -> bool:
        """Whether anything is known of what a neighbour has done."""
        count = self.state.tally.counts.get(peer)
        return count is not None and count.iterations > 0

    def _tell_tally(self, peer: int) -> None:
        note = self.state.tally.encode(self.clock.run_time, self.telling)
        self.link.send(Parcel(self.me, peer, Message(tallies.KIND, note=note)), None)

    def _look_how_to_spoil(self) -> None:
        """Whether this node is to be a bad one, for a trial of what protects from such."""
        how = spoiling(self.setup.folder)
        self.interpreter.corrupt = {self.me: how} if how else {}

    # -- timers and records ---------------------------------------------------------------------------------------

    def _timer(self, name: str) -> None:
        if name != tallies.KIND:
            self._give(TimerFired(name.removeprefix("machine/")))
            return
        waiting = bool(len(self.trainings) or self.link.waiting(self.state.alive))
        self.state.tally.say(not (waiting or self.machine.has_work()), self.state.loss, self.setup.samples)
        self._see_the_end()
        self.link.fit_buffers()
        self.link.blocked = blocked_by(self.setup.folder)
        self._look_how_to_spoil()
        if self.trainings.swallowed and not self._swallows():
            self.trainings.let_go()
            self._train_next()
        if len(self.state.alive) < len(self.setup.endpoint.neighbours):
            self.neighbours.look_around()
        for peer in self.state.alive:
            self._tell_tally(peer)
        self.keeper.save_sometimes(self._to_keep)
        self.clock.set_timer(tallies.KIND, TALLY_EVERY)

    def _to_keep(self) -> Kept:
        state, own, what = self.state, self.state.tally.own, self.interpreter
        state.saved += 1
        self._note("saved", number=state.saved)
        counts, over = (own.iterations, own.sent, state.saved), repr(self.setup.stop) if self.end.seen else ""
        states = {slot: tensor for (_, slot), tensor in what.states.items()}
        memory = self.machine.farewell() if state.leaving or self.end.seen else self.machine.keepsake()
        return Kept(dict(what.slots[self.me]), states, *counts, memory, self.clock.run_time, over, self.facts)

    def _newest_copy(self) -> Copy | None:
        """The aggregate, where this node aggregates, else the model that it showed last; callable from any thread."""
        what, recorded = self.interpreter, self.recorded
        if what.aggregate is not None and what.aggregate_slot in what.slots[self.me]:
            return Copy(what.aggregate, AGGREGATE, what.aggregate_term)
        if recorded is None or recorded.role == AGGREGATE:
            return None
        return Copy(what.members[recorded.key], recorded.role, recorded.key)

    def _note(self, event: str, slot: str = "", **columns: Any) -> None:
        self.interpreter.note_down(self.me, event, slot, **columns)

    def _write(self, row: TraceRow) -> None:
        self.news.event(row.event, row.peer, row.walk, row.number)
        self.diary.note(row)
