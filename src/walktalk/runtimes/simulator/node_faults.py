"""What hits single nodes in virtual time: they die, hang, join and leave; how long that lasts, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from walktalk.protocols import (
    Differentiate,
    Leaving,
    Machine,
    NetworkChanged,
    NetworkView,
    PeerFound,
    PeerLost,
    Rejoined,
    Started,
    Train,
    Trained,
)
from walktalk.runtimes.semantics import Output
from walktalk.runtimes.simulator.fault_plan import Fault
from walktalk.runtimes.simulator.links import Transport
from walktalk.runtimes.simulator.network_views import Changes
from walktalk.runtimes.simulator.nodes import Nodes, Timers, Trainings
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import FAULT, TRAINED, Agenda, Envelope, Terms, Training

Contacts: TypeAlias = Callable[[int], tuple[int, ...]]
Action: TypeAlias = Callable[[], None]  # content of an agenda's entry: something goes wrong, is undone, or is told
Thing = TypeVar("Thing", bound=Hashable)
How = TypeVar("How")


class FaultEvent(NamedTuple):
    """Something goes wrong, now."""

    fault: Fault
    node: int  # whom it hits; -1: nobody in particular
    number: int  # counts everything that went wrong: each undoes what it did itself, and nothing else


class Lasting(Generic[Thing, How]):
    """Things that are hit, each while any of the faults that hit it lasts."""

    def __init__(self) -> None:
        self._ongoing: dict[Thing, dict[int, How]] = {}

    def begin(self, thing: Thing, number: int, how: How) -> None:
        """The fault of this number hits a thing."""
        self._ongoing.setdefault(thing, {})[number] = how

    def end(self, thing: Thing, number: int) -> bool:
        """That fault is over; whether the thing was hit by it and is by nothing any more."""
        faults = self._ongoing.get(thing, {})
        was_hit = faults.pop(number, None) is not None
        if was_hit and not faults:
            del self._ongoing[thing]
        return was_hit and not faults

    def clear(self, thing: Thing) -> None:
        """All faults on this thing are over."""
        self._ongoing.pop(thing, None)

    def on(self, thing: Thing) -> Collection[How]:
        """How a thing is hit, the first fault first."""
        return self._ongoing.get(thing, {}).values()

    def __contains__(self, thing: object) -> bool:
        return thing in self._ongoing

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._ongoing)

    def __len__(self) -> int:
        return len(self._ongoing)


class FaultScheduler:
    """What all that goes wrong needs of a run: its agenda and its trace."""

    def __init__(self, agenda: Agenda, write: Callable[..., None]) -> None:
        """
        - `agenda`: the run's.
        - `write`: writes a line of the trace: node, event, and the other columns by name.
        """
        self._agenda, self.note = agenda, write

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._agenda.now

    @property
    def idle(self) -> bool:
        """Whether nothing more will happen by itself."""
        return not len(self._agenda)

    def later(self, seconds: float, action: Action) -> None:
        """Do this after so many seconds."""
        self._agenda.put(seconds, FAULT, action)

    def undo_later(self, fault: Fault, action: Action) -> None:
        """Do this when the fault is over; one that is for good never is."""
        if fault.seconds is not None:
            self.later(fault.seconds, action)

    def again(self, kind: int, content: Any) -> None:
        """Let an entry of the agenda that was held back happen now."""
        self._agenda.put(0.0, kind, content)


# Nodes that hang in virtual time: everything waits, and nobody is told.


class Pauses:
    """Nodes of one run that hang: what happens to them waits until they go on."""

    def __init__(self, scheduler: FaultScheduler) -> None:
        self._scheduler = scheduler
        self._ongoing: Lasting[int, bool] = Lasting()
        self._held: dict[int, list[tuple[int, Any]]] = {}  # paused node -> entries of the agenda that wait for it

    def __contains__(self, node: object) -> bool:
        return node in self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def holds(self, node: int, kind: int, content: Any) -> bool:
        """Whether this entry of the agenda waits, since its node hangs."""
        if node in self._held:
            self._held[node].append((kind, content))
        return node in self._held

    def delays(self, node: int, action: Action) -> bool:
        """Keeps what a hanging node would be told until it goes on; whether it hangs."""
        return self.holds(node, FAULT, action)

    def pause(self, fault_event: FaultEvent) -> None:
        """Makes a node hang; nobody is told."""
        node = fault_event.node
        self._scheduler.undo_later(fault_event.fault, partial(self._goes_on, node, fault_event.number))
        self._ongoing.begin(node, fault_event.number, True)
        if node not in self._held:
            self._scheduler.note(node, "pause")
            self._held[node] = []

    def _goes_on(self, node: int, number: int) -> None:
        if self._ongoing.end(node, number):  # not where it died meanwhile
            self._scheduler.note(node, "resume")
            for kind, content in self._held.pop(node):
                self._scheduler.again(kind, content)

    def dies(self, node: int) -> None:
        """A node that dies hangs no longer."""
        self._ongoing.clear(node)
        self._held.pop(node, None)


# Nodes whose trainings hang in virtual time: they talk, and train no more.


class Hangs:
    """Nodes of one run whose trainings hang. Walks go on without being trained there once it is noticed."""

    def __init__(
        self, scheduler: FaultScheduler, nodes: Nodes, trainings: Trainings, recording: Recording, lr: float
    ) -> None:
        """
        - `scheduler`: the run's.
        - `nodes`: are given their walks back.
        - `trainings`: those that hang, and how long they usually take.
        - `recording`: writes down that walks are handed on.
        - `lr`: what a machine is told of a training that was given up.
        """
        self._scheduler, self._nodes, self._trainings = scheduler, nodes, trainings
        self._recording, self._lr = recording, lr
        self._ongoing: Lasting[int, bool] = Lasting()
        self._held: dict[int, list[Training]] = {}  # node that hangs -> trainings that do not end
        self._noticed: set[int] = set()  # nodes of which it is known
        self._passing: dict[int, list[Train | Differentiate]] = {}  # by node: walks that go on in a moment
        self._void: set[int] = set()  # trainings whose walks were handed on

    def __bool__(self) -> bool:
        return bool(self._held)

    def hang(self, fault_event: FaultEvent) -> None:
        """No training of a node ends any more; nobody is told."""
        node = fault_event.node
        self._scheduler.undo_later(fault_event.fault, partial(self._works, node, fault_event.number))
        self._ongoing.begin(node, fault_event.number, True)
        if node not in self._held:
            self._scheduler.note(node, "hang")
            self._held[node] = []

    def holds(self, training: Training) -> bool:
        """Whether the end of a training does not come, or comes too late to count."""
        if training.number in self._void:
            self._void.discard(training.number)
            self._recording.lose_training(training)
            return True
        if training.node not in self._held:
            return False
        self._held[training.node].append(training)
        self._scheduler.later(self._trainings.usual[training.node].limit, partial(self._look, training))
        return True

    def _look(self, training: Training) -> None:
        """The node notices that this training hangs, if it still does: it hands its walks on."""
        node = training.node
        if training not in self._held.get(node, ()):
            return
        if node not in self._noticed:
            self._noticed.add(node)
            self._scheduler.note(node, "hangs")
        for held in self._held[node]:
            if held.walk > 0 and held.number not in self._void:
                self._void.add(held.number)
                self._trainings.give_up(held)
                self._hand_on(node, held)
        for effect in self._trainings.take_walks(node):
            self._hand_on(node, effect)

    def passes(self, node: int, effect: Train | Differentiate) -> bool:
        """Whether a walk is not trained at a node that knows that its trainings hang, but goes on in a moment."""
        if node not in self._noticed or effect.walk <= 0:
            return False
        self._passing.setdefault(node, []).append(effect)
        self._scheduler.later(self._trainings.usual[node].stay, partial(self._goes_on, node, effect))
        return True

    def _goes_on(self, node: int, effect: Train | Differentiate) -> None:
        passing = self._passing.get(node, [])
        if not any(one is effect for one in passing):
            return  # it died with the node
        self._passing[node] = [one for one in passing if one is not effect]
        if node in self._held:
            self._hand_on(node, effect)
        else:
            self._trainings.ask(node, effect)

    def _hand_on(self, node: int, what: Train | Differentiate | Training) -> None:
        interpreter = self._recording.interpreter
        if self._recording.written:
            interpreter.hand_on(node, what.slot, what.walk)
        self._nodes.give(node, Trained(what.slot, what.walk, self._lr, 0))
        if self._recording.written:
            interpreter.forget_result(node)

    def _works(self, node: int, number: int) -> None:
        """What made it hang is over: what waited for it ends now."""
        if self._ongoing.end(node, number):
            self._scheduler.note(node, "trains_again")
            held = self._held.pop(node)
            self._noticed.discard(node)
            for training in held:
                self._scheduler.again(TRAINED, training)

    def dies(self, node: int) -> None:
        """A node that dies hangs no longer; what hung there is gone."""
        self._ongoing.clear(node)
        self._noticed.discard(node)
        self._passing.pop(node, None)
        for training in self._held.pop(node, []):
            self._void.discard(training.number)
            self._recording.lose_training(training)


class Running(NamedTuple):
    """What a death ends: messages, trainings and timers that are under way, and the node's part of the output."""

    transport: Transport
    trainings: Trainings
    timers: Timers
    output: Output[Terms]


# Nodes that die in virtual time and come back, and who is told.
#
# A killed node forgets what it was doing; its neighbours hear of it after the link's latency, as of a broken
# connection. Messages to it, and those that it was still sending, are lost. A node that comes back has the slots that
# it died with, as if from a checkpoint, and a fresh machine. Who has not joined yet, or has left for good, counts as
# dead as well.


class Deaths:
    """Nodes of one run that are dead, and what is lost with them."""

    def __init__(
        self, scheduler: FaultScheduler, pauses: Pauses, nodes: Nodes, contacts: Contacts, running: Running
    ) -> None:
        """
        - `scheduler`: the run's.
        - `pauses`: nodes that hang, and hear of others when they go on.
        - `nodes`: are restarted, and hear of each other.
        - `contacts`: all that a node has a link with now.
        - `running`: what a death ends.
        """
        self._scheduler, self._pauses, self._contacts = scheduler, pauses, contacts
        self._nodes, self._changes, self._running = nodes, nodes.changes, running
        self._ongoing: Lasting[int, bool] = Lasting()
        self._trainings: dict[int, int] = {}  # node -> how many there were when it died last: older ones are void
        self._messages: dict[int, int] = {}  # node -> the same of messages
        self._torn: set[int] = set()  # messages that were cut short

    def __contains__(self, node: object) -> bool:
        return node in self._ongoing or (self._changes is not None and self._changes.is_away(node))

    def to_revive(self) -> list[int]:
        """Those that can come back: not who has not joined yet, or has left."""
        return sorted(node for node in self._ongoing if self._changes is None or not self._changes.is_away(node))

    def kill(self, fault_event: FaultEvent) -> bool:
        """A node dies, or stays dead for longer; whether it was alive."""
        node, was_dead = fault_event.node, fault_event.node in self
        self._scheduler.undo_later(fault_event.fault, partial(self._over, node, fault_event.number))
        if not was_dead:
            self._scheduler.note(node, "kill")
        self._ongoing.begin(node, fault_event.number, True)
        if not was_dead:
            self._pauses.dies(node)
            self._messages[node] = self._running.transport.messages
            self.stop(node)
            self._tell_contacts(node, PeerLost(node))
        return not was_dead

    def stop(self, node: int) -> None:
        """What a node was doing is gone with it."""
        self._trainings[node] = self._running.trainings.begun
        self._running.trainings.stop(node)
        self._running.timers.stop(node)
        self._running.output.node_dies(node)

    def forget(self, node: int) -> None:
        """A node joins, or leaves for good: whatever hit it before is over."""
        self._ongoing.clear(node)

    def _over(self, node: int, number: int) -> None:
        """What killed a node is over; others may keep it dead, and a revival may have come before."""
        if self._ongoing.end(node, number) and node not in self:
            self._comes_back(node)

    def revive(self, fault_event: FaultEvent) -> None:
        """A node comes back, whatever killed it."""
        self._ongoing.clear(fault_event.node)
        self._comes_back(fault_event.node)

    def _comes_back(self, node: int) -> None:
        self._scheduler.note(node, "revive")
        memory = self._nodes.machines[node].keepsake()  # as of its death, like its slots
        self._nodes.restart(node)
        self._nodes.give(node, Rejoined(memory))
        for peer in self._contacts(node):
            if peer in self:
                self._nodes.give(node, PeerLost(peer))
        self._tell_contacts(node, PeerFound(node))

    # -- who is told ----------------------------------------------------------------------------------------------

    def _tell_contacts(self, node: int, event: PeerLost | PeerFound) -> None:
        for peer in self._contacts(node):
            self._give_later(peer, event, self._running.transport.latency(node, peer))

    def find(self, node: int, peer: int) -> None:
        """A node hears that another is there, when its first word has come."""
        self._give_later(node, PeerFound(peer), self._running.transport.latency(node, peer))

    def _give_later(self, node: int, event: PeerLost | PeerFound, seconds: float) -> None:
        self._scheduler.later(seconds, partial(self._hears, node, event))

    def _hears(self, node: int, event: PeerLost | PeerFound) -> None:
        if node in self or isinstance(event, PeerFound) == (event.peer in self):
            return  # nobody to tell, or it is no longer true
        if not self._pauses.delays(node, partial(self._hears, node, event)):
            self._nodes.give(node, event)

    # -- what may pass --------------------------------------------------------------------------------------------

    def ends(self, training: Training) -> bool:
        """Whether a training was for nothing, since it died with its node."""
        return training.number < self._trainings.get(training.node, 0)

    def tear(self, envelope: Envelope) -> None:
        """Its transfer ends; what its sender had not sent whole when it died is lost."""
        if envelope.number < self._messages.get(envelope.sender, 0):
            self._torn.add(envelope.number)

    def is_lost(self, envelope: Envelope) -> bool:
        """Whether it was torn, or nobody is there to get it."""
        return envelope.to in self or envelope.number in self._torn

    def settled(self, envelope: Envelope) -> None:
        """It is lost, once and for all."""
        self._torn.discard(envelope.number)


# Nodes that join, or leave for good: connections, news, and who takes over.

LOOK = 0.1  # seconds between two looks whether one that leaves may go
HAND_OVER = 60.0  # seconds that it waits at most; what it has then is lost


class Membership:
    """Nodes of one run that join, and leave for good."""

    def __init__(
        self, scheduler: FaultScheduler, deaths: Deaths, pauses: Pauses, nodes: Nodes, changes: Changes
    ) -> None:
        """
        - `scheduler`: the run's.
        - `deaths`: who is dead.
        - `pauses`: nodes that hang, and hear of changes when they go on.
        - `nodes`: are told.
        - `changes`: who is there.
        """
        self._scheduler, self._deaths, self._pauses, self._changes = scheduler, deaths, pauses, changes
        self._nodes = nodes
        self.around: list[NetworkView] = nodes.network_views()

    def linked(self, one: int, other: int) -> bool:
        """Whether two are neighbours now."""
        return other in self.around[one].neighbours

    def join(self, fault_event: FaultEvent) -> None:
        """A node that was absent joins the run."""
        node = fault_event.node
        if node not in self._changes.absent:
            return
        self._changes.absent.discard(node)
        self._deaths.forget(node)
        self._scheduler.note(node, "joined", peer=node)
        self._nodes.restart(node)
        self._spread(node)
        self._nodes.give(node, Started(late=True))
        for peer in self.around[node].neighbours:
            if peer in self._deaths:
                self._nodes.give(node, PeerLost(peer))

    def leave(self, fault_event: FaultEvent) -> None:
        """A node begins to leave."""
        node = fault_event.node
        if node in self._changes.leaving | self._changes.left:
            return
        self._changes.leaving.add(node)
        self._scheduler.note(node, "leaves_for_good", peer=node)
        self._spread()
        self._give_later(node, Leaving())
        self._look_later(node, self._scheduler.now + HAND_OVER)

    def _look(self, node: int, end: float) -> None:
        """Whether one that leaves may go by now, or must; one that dies meanwhile has left."""
        dead = node in self._deaths
        if not dead and self._scheduler.now < end and not self._nodes.machines[node].may_go():
            self._look_later(node, end)
            return
        self._changes.leaving.discard(node)
        self._changes.left.add(node)
        if not dead:
            self._deaths.stop(node)
        self._deaths.forget(node)
        self._scheduler.note(node, "left_for_good", peer=node)
        self._spread()

    def _look_later(self, node: int, end: float) -> None:
        self._scheduler.later(LOOK, partial(self._look, node, end))

    def _spread(self, new: int = -1) -> None:
        """Everybody hears of it; new neighbours find each other after the link's latency. `new`: who has just come."""
        before = self.around
        self.around = self._nodes.network_views()
        for around, known in zip(self.around, before, strict=True):
            node = around.node
            if node == new or around == known or node in self._deaths:
                continue
            self._give_later(node, NetworkChanged(around))
            for peer in set(around.neighbours) - set(known.neighbours):
                self._deaths.find(node, peer)

    def _give_later(self, node: int, event: Leaving | NetworkChanged) -> None:
        self._scheduler.later(0.0, partial(self._hears, node, event))

    def _hears(self, node: int, event: Leaving | NetworkChanged) -> None:
        """The network is another, as a node sees it."""
        if not self._pauses.delays(node, partial(self._hears, node, event)) and node not in self._deaths:
            self._nodes.give(node, event)


# -- When a run in virtual time is over before its end, since nothing will ever be trained again ----------------------

LOOK_AGAIN = 60.0  # seconds
STARVED = 20  # looks: nobody trained for so long, and one that swallows walks may say that it has them

End: TypeAlias = Callable[[str], None]  # takes which guard would have started lost walks again


class Living(NamedTuple):
    """The nodes of a run, and what keeps each of them from its work."""

    nodes: Nodes
    dead: Deaths
    eaters: Lasting[int, float]  # nodes that swallow walks
    pauses: Pauses
    hangs: Hangs

    def honest(self) -> list[Machine]:
        """The machines of those that live and swallow nothing."""
        return [m for v, m in enumerate(self.nodes.machines) if v not in self.dead and v not in self.eaters]


class EndWatch:
    """Looks now and then whether anything will ever be trained again, once something has died or swallows."""

    def __init__(
        self, scheduler: FaultScheduler, recording: Recording, trainings: Trainings, living: Living, end: End
    ) -> None:
        """
        - `scheduler`: the run's.
        - `recording`: knows how much was trained.
        - `trainings`: those under way.
        - `living`: who could still have work, and whether any walk was swallowed or any node hangs.
        - `end`: ends the run.
        """
        self._scheduler, self._recording, self._trainings = scheduler, recording, trainings
        self._living, self._end = living, end
        self._looking = False

    def begin(self) -> None:
        """Look from now on."""
        if not self._looking:
            self._looking = True
            self._scheduler.later(LOOK_AGAIN, partial(self._look, -1, 0, 0))

    def _look(self, iterations: int, starved: int, idle: int) -> None:
        """If nothing will ever be trained again, twice in a row, the run is over.

        Without a guard lost walks stay lost, and heartbeats alone would go on for ever; with one, too, where it is told
        that a walk lives which was swallowed. Arguments: trainings at the last look, and at how many looks in a row
        nothing was trained, or there was also nothing to do.
        """
        done, living = self._recording.interpreter.iteration, self._living
        stands = iterations == done and not self._trainings.under_way and not living.pauses and not living.hangs
        works = any(machine.has_work() for machine in living.honest())
        starved, idle = (starved + 1 if stands else 0), (idle + 1 if stands and not works else 0)
        if idle > 1 or (living.eaters and starved > STARVED):
            self._scheduler.note(-1, "all_lost")
            self._end("create_if_late" if living.eaters else "aggregator")
        elif not self._scheduler.idle:  # else the run is over anyway
            self._scheduler.later(LOOK_AGAIN, partial(self._look, done, starved, idle))
