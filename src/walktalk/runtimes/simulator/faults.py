"""Faults in virtual time: nodes die, hang and come back, the network splits, links slow down, messages get lost,
and some send what they should not.

What a death is, `node_faults` says. A paused node hangs: everything waits, and nobody is told. A partition cuts
silently too: messages across it are lost, no connection breaks. A message that gets lost on its way alone, its receiver
notices when it would have come, as by a checksum or a gap in numbers. A node that swallows takes walks, says so, and
does not train them nor let them go until that is over; it answers and beats like any other. The trace has every fault,
every lost message and every walk that was swallowed.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from walktalk.core.errors import SpecError
from walktalk.graphs import Graph
from walktalk.protocols import AGGREGATE, Differentiate, Protocol, Record, Train
from walktalk.runtimes.simulator.fault_plan import AGGREGATOR, RANDOM, Fault, FaultKind
from walktalk.runtimes.simulator.links import Transfer, Transport
from walktalk.runtimes.simulator.node_faults import (
    Action,
    Deaths,
    EndWatch,
    FaultEvent,
    FaultScheduler,
    Hangs,
    Lasting,
    Living,
    Membership,
    Pauses,
    Running,
)
from walktalk.runtimes.simulator.nodes import Nodes
from walktalk.runtimes.simulator.recording import Recording
from walktalk.runtimes.simulator.schedule import ARRIVED, TIMER, TRAINED, Agenda, Envelope, Training
from walktalk.runtimes.simulator.timing import RunSetup, Stopwatch

# -- A network in virtual time that splits, loses messages or slows down; and nodes that become slow ------------------

Slowed: TypeAlias = int | tuple[int, int]  # a node, or a link


class BadNetwork:
    """Partitions, lost messages and slow links of one run."""

    def __init__(
        self, scheduler: FaultScheduler, rng: random.Random, stopwatch: Stopwatch, transport: Transport
    ) -> None:
        """
        - `scheduler`: the run's.
        - `rng`: says which messages get lost.
        - `stopwatch`: has the pace of nodes.
        - `transport`: has that of links.
        """
        self._scheduler, self._rng, self._stopwatch, self._transport = scheduler, rng, stopwatch, transport
        self._sides: dict[int, frozenset[int]] = {}  # number of the fault event -> one side of a partition
        self._shares: dict[int, float] = {}  # number of the fault event -> of messages that get lost
        self._slowed: Lasting[Slowed, float] = Lasting()  # by which factors

    def is_split(self, one: int, other: int) -> bool:
        """Whether two nodes are in different parts."""
        return any((one in side) != (other in side) for side in self._sides.values())

    def loses(self) -> bool:
        """Whether a message gets lost on its way."""
        return any(self._rng.random() < share for share in self._shares.values())

    def partition(self, fault_event: FaultEvent) -> None:
        """The network splits; nobody is told."""
        self._sides[fault_event.number] = side = frozenset(fault_event.fault.nodes)
        self._scheduler.note(-1, "partition", detail=" ".join(map(str, sorted(side))))
        self._scheduler.undo_later(fault_event.fault, partial(self._heals, fault_event.number))

    def _heals(self, number: int) -> None:
        side = self._sides.pop(number)
        self._scheduler.note(-1, "heal", detail=" ".join(map(str, sorted(side))))

    def lose(self, fault_event: FaultEvent) -> None:
        """A share of the messages gets lost."""
        self._shares[fault_event.number] = chance = fault_event.fault.chance
        self._scheduler.note(-1, "lose", detail=f"{chance:g}")
        self._scheduler.undo_later(fault_event.fault, partial(self._lost_enough, fault_event.number))

    def _lost_enough(self, number: int) -> None:
        del self._shares[number]
        self._scheduler.note(-1, "lose", detail="0")

    def slow(self, fault_event: FaultEvent) -> None:
        """A node or a link becomes slow."""
        fault = fault_event.fault
        slowed: Slowed = (min(fault.link), max(fault.link)) if fault.link is not None else fault_event.node
        self._slowed.begin(slowed, fault_event.number, fault.factor)
        self._scheduler.undo_later(fault, partial(self._fast_again, slowed, fault_event.number, fault.factor))
        self._set_pace(slowed, fault.factor)

    def _fast_again(self, slowed: Slowed, number: int, factor: float) -> None:
        self._slowed.end(slowed, number)
        self._set_pace(slowed, 1.0 / factor)

    def _set_pace(self, slowed: Slowed, change: float) -> None:
        """As all faults that last have it; `change`, by the last one, is for the trace."""
        factor = math.prod(self._slowed.on(slowed))
        if isinstance(slowed, int):
            self._scheduler.note(slowed, "slow", detail=f"{change:g}")
            self._stopwatch.slow_down(slowed, factor)
        else:
            self._scheduler.note(slowed[0], "slow", peer=slowed[1], detail=f"{change:g}")
            self._transport.slow_down(*slowed, factor)


# Nodes in virtual time that do what they should not: send what is no model of theirs, or swallow walks.


class BadNodes:
    """Nodes of one run that corrupt what they send, or swallow walks."""

    def __init__(
        self, scheduler: FaultScheduler, rng: random.Random, corrupt: dict[int, str], train: Callable[[int, Any], None]
    ) -> None:
        """
        - `scheduler`: the run's.
        - `rng`: says which walks are swallowed.
        - `corrupt`: where it is written who spoils what it sends, and how.
        - `train`: begins a training that was swallowed, after all.
        """
        self._scheduler, self._rng, self._corrupt, self._train = scheduler, rng, corrupt, train
        self._spoiling: Lasting[int, str] = Lasting()  # corrupt nodes, and how
        self.eaters: Lasting[int, float] = Lasting()  # nodes that swallow, and which share of the walks
        self._eaten: dict[int, list[Train | Differentiate]] = {}  # node -> what it would have trained

    def corrupt(self, fault_event: FaultEvent) -> None:
        """Some nodes spoil what they send."""
        fault = fault_event.fault
        for bad in fault.nodes or (fault_event.node,):
            self._spoiling.begin(bad, fault_event.number, fault.spoils)
            self._scheduler.note(bad, "corrupt", detail=fault.spoils)
            self._scheduler.undo_later(fault, partial(self._honest_again, bad, fault_event.number))
            self._spoil(bad)

    def _honest_again(self, node: int, number: int) -> None:
        self._spoiling.end(node, number)
        self._scheduler.note(node, "corrupt", detail="")
        self._spoil(node)

    def _spoil(self, node: int) -> None:
        """Corrupts what the node sends as the last fault says that still lasts."""
        self._corrupt.pop(node, None)
        for how in self._spoiling.on(node):
            self._corrupt[node] = how

    def swallow(self, fault_event: FaultEvent) -> None:
        """A node takes walks and does not train them."""
        node, chance = fault_event.node, fault_event.fault.chance
        self.eaters.begin(node, fault_event.number, chance)
        self._scheduler.note(node, "swallow", detail=f"{chance:g}")
        self._scheduler.undo_later(fault_event.fault, partial(self._sated, node, fault_event.number))

    def _sated(self, node: int, number: int) -> None:
        if self.eaters.end(node, number):
            self._scheduler.note(node, "swallow", detail="0")
            for effect in self._eaten.pop(node, []):
                self._train(node, effect)

    def eats(self, node: int, effect: Train | Differentiate) -> bool:
        """Whether a walk is swallowed in place of being trained."""
        eaten = effect.walk > 0 and any(self._rng.random() < share for share in self.eaters.on(node))
        if eaten:
            self._eaten.setdefault(node, []).append(effect)
            self._scheduler.note(node, "swallowed", walk=effect.walk)
        return eaten

    def dies(self, node: int) -> None:
        """What a node has swallowed dies with it."""
        self._eaten.pop(node, None)


# Whom a fault hits in virtual time: a node by its number, any, or the one that aggregates.


class Targets:
    """Chooses which node a fault hits: a given one, a random one, or the one that aggregates."""

    def __init__(self, graph: Graph, protocol: Protocol, deaths: Deaths, rng: random.Random) -> None:
        """
        - `graph`: the study's.
        - `protocol`: says who aggregates at first, and who cannot leave.
        - `deaths`: who is dead.
        - `rng`: choose where any node will do.
        """
        self._graph, self._protocol, self._deaths, self._rng = graph, protocol, deaths, rng
        self._aggregator = int(getattr(protocol, "aggregator", 0))
        self._elects = False  # whether the protocol says itself who aggregates

    def aggregates(self, node: int) -> None:
        """The protocol says that this node does."""
        self._aggregator, self._elects = node, True

    def dies(self, node: int) -> None:
        """Takes another node for the aggregator, where the protocol does not say who aggregates."""
        if not self._elects and self._aggregator == node:
            self._aggregator = -1

    def of(self, fault: Fault) -> int | None:
        """The node that it hits, -1 where it hits none in particular; None where there is nobody to hit."""
        if fault.node is None:
            return -1
        if fault.kind == "revive":
            dead = self._deaths.to_revive()
            gone = [fault.node] if isinstance(fault.node, int) else dead
            return gone[0] if gone and gone[0] in dead else None
        if fault.kind == "join" or (fault.kind == "kill" and fault.node in self._deaths):
            return int(fault.node)  # one that is dead already stays so for longer
        living = [node for node in range(self._graph.nodes) if node not in self._deaths]
        if len(living) < 2 and fault.kind in ("kill", "leave"):
            return None  # somebody must be left
        if fault.kind == "leave":
            living = [node for node in living if not self._protocol.irreplaceable(node)]
        if fault.node == RANDOM:
            return self._rng.choice(living)
        node = self._who_aggregates(living) if fault.node == AGGREGATOR else int(fault.node)
        return node if node in living else None

    def _who_aggregates(self, living: list[int]) -> int:
        """Whoever does; for a protocol without one whoever would be elected, so that all lose the same nodes."""
        if self._elects or self._aggregator in living:
            return self._aggregator
        return max(living, key=lambda v: (sum(u not in self._deaths for u in self._graph.neighbours(v)), -v))


log = logging.getLogger(__name__)
Happens: TypeAlias = Callable[[Any], None]


class Faults:
    """The faults of one run. It stands between the agenda and the simulation, and lets pass what may happen."""

    def __init__(
        self, setup: RunSetup, agenda: Agenda, recording: Recording, nodes: Nodes, running: Running,
        end: Callable[[], None],
    ) -> None:  # fmt: skip
        """
        - `setup`: the run's.
        - `agenda`: where faults and their ends are put.
        - `recording`: writes down what happens, and lets go of what is lost.
        - `nodes`: are told, and restarted.
        - `running`: what a death ends.
        - `end`: ends the run, where nothing will ever be trained again.
        """
        plan, interpreter = setup.faults, recording.interpreter
        for fault in plan.faults:
            fault.check(setup.graph.nodes, links=running.transport.links is not None)
        if getattr(setup.protocol, "mixing", "") == "matrix":
            raise SpecError("mixing: matrix mixes all nodes at once and knows no failures; use pairwise, or no faults")
        self._setup, self._recording, self._nodes = setup, recording, nodes
        self._scheduler = FaultScheduler(agenda, interpreter.note_down)
        self._rng, losses = plan.seed.child("faults").python(), plan.seed.child("lost messages").python()
        self._ongoing = 0  # everything that went wrong
        self._pauses = Pauses(self._scheduler)
        self.dead = Deaths(self._scheduler, self._pauses, nodes, self._contacts, running)
        self._bad_nodes = BadNodes(self._scheduler, losses, recording.corrupt, running.trainings.ask)
        self._network = BadNetwork(self._scheduler, losses, running.trainings.stopwatch, running.transport)
        self._hangs = Hangs(self._scheduler, nodes, running.trainings, recording, setup.lr)
        living = Living(nodes, self.dead, self._bad_nodes.eaters, self._pauses, self._hangs)
        self._end_watch = EndWatch(self._scheduler, recording, running.trainings, living, partial(self._over, end))
        self._targets = Targets(setup.graph, setup.protocol, self.dead, self._rng)
        self._membership = (
            Membership(self._scheduler, self.dead, self._pauses, nodes, nodes.changes)
            if nodes.changes is not None
            else None
        )
        self._kinds: dict[FaultKind, Callable[[FaultEvent], None]] = {
            "kill": self._kill,
            "revive": self.dead.revive,
            "pause": self._pauses.pause,
            "hang": self._hangs.hang,
            "partition": self._network.partition,
            "slow": self._network.slow,
            "lose": self._network.lose,
            "swallow": self._swallow,
            "corrupt": self._bad_nodes.corrupt,
        }
        if self._membership is not None:
            self._kinds |= {"join": self._membership.join, "leave": self._membership.leave}

    def begin(self) -> None:
        """Plan what has a time, and the first of what comes at random."""
        for fault in self._setup.faults.faults:
            self._plan_fault(fault)

    def _plan_fault(self, fault: Fault) -> None:
        if fault.at is not None:
            self._scheduler.later(fault.at - self._scheduler.now, partial(self._strike, fault))
        elif fault.rate is not None:
            self._scheduler.later(self._rng.expovariate(fault.rate), partial(self._strike, fault))

    def _strike(self, fault: Fault) -> None:
        target = self._targets.of(fault)
        if target is not None:
            self._ongoing += 1
            self._kinds[fault.kind](FaultEvent(fault, target, self._ongoing))
        if fault.rate is not None:
            self._plan_fault(fault)

    def _kill(self, fault_event: FaultEvent) -> None:
        if self.dead.kill(fault_event):
            self._bad_nodes.dies(fault_event.node)
            self._hangs.dies(fault_event.node)
            self._targets.dies(fault_event.node)
            self._end_watch.begin()

    def _swallow(self, fault_event: FaultEvent) -> None:
        self._bad_nodes.swallow(fault_event)
        self._end_watch.begin()

    def _over(self, end: Callable[[], None], guard: str) -> None:
        log.warning(
            "%s: all walks were lost by %g s and nobody starts them again; the run ends there (guard: %s would)",
            self._setup.protocol.label,
            self._scheduler.now,
            guard,
        )
        end()

    def _contacts(self, node: int) -> tuple[int, ...]:
        """All that a node has a link with now."""
        if self._membership is not None:
            return self._membership.around[node].neighbours
        return self._setup.graph.contacts(node)

    # -- what may pass --------------------------------------------------------------------------------------------

    def between(self, happens: tuple[Happens, ...]) -> tuple[Happens, ...]:
        """The simulation's own handlers, each behind a check; and one for faults."""
        trained, arrived, timer, transferred, *others = happens

        def tell_end(planned: tuple[Transfer, int]) -> None:
            envelope: Envelope = planned[0].content  # type: ignore[assignment]
            self.dead.tear(envelope)
            transferred(planned)

        return (
            lambda training: None if self._stops_training(training) else trained(training),
            lambda envelope: None if self._stops_message(envelope) else arrived(envelope),
            lambda content: None if self._pauses.holds(content[0], TIMER, content) else timer(content),
            tell_end,
            *others,
            _done,
        )

    def watching(self, record: Callable[[int, Any], None] | None) -> Callable[[int, Any], None]:
        """The simulation's handler of `Record`, watched: who aggregates."""

        def call(node: int, effect: Record) -> None:
            if effect.role == AGGREGATE:
                self._targets.aggregates(node)
            if record is not None:
                record(node, effect)

        return call

    def guarding(self, train: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        """The simulation's handler of `Train`: a walk that is swallowed is never trained."""

        def call(node: int, effect: Any) -> None:
            if not self._bad_nodes.eats(node, effect) and not self._hangs.passes(node, effect):
                train(node, effect)

        return call if any(fault.kind in ("swallow", "hang") for fault in self._setup.faults.faults) else train

    def _stops_training(self, training: Training) -> bool:
        if self.dead.ends(training):
            self._recording.lose_training(training)
            return True
        return self._pauses.holds(training.node, TRAINED, training) or self._hangs.holds(training)

    def _stops_message(self, envelope: Envelope) -> bool:
        if self._pauses.holds(envelope.to, ARRIVED, envelope):
            return True
        silently = self._is_cut(envelope)
        if not silently and not self._network.loses():
            return False
        self.dead.settled(envelope)
        self._recording.lose_message(envelope.number)
        self._scheduler.note(
            envelope.to, "lost", peer=envelope.sender, walk=envelope.message.walk, number=envelope.number
        )
        if not silently:
            self._nodes.miss(envelope)
        return True

    def _is_cut(self, envelope: Envelope) -> bool:
        """Whether nobody is there to notice, or nothing to be noticed."""
        here, there = envelope.sender, envelope.to
        if self.dead.is_lost(envelope):
            return True
        if self._membership is not None and not self._membership.linked(here, there):
            return True
        return self._network.is_split(here, there)


def _done(action: Action) -> None:
    """An entry of the agenda: something goes wrong, is undone, or is told."""
    action()
