"""Faults in virtual time: nodes die, hang and come back, the network splits, links slow down, messages get lost,
and some send what they should not.

A killed node forgets what it was doing; its neighbours hear of it after the link's latency, as of a broken connection.
Messages to it, and those that it was still sending, are lost. A node that comes back has the slots that it died with,
as if from a checkpoint, and a fresh machine. A paused node hangs: everything waits, and nobody is told. A partition
cuts silently too: messages across it are lost, no connection breaks. A message that gets lost on its way alone, its
receiver notices when it would have come, as by a checksum or a gap in numbers. A node that swallows takes walks, says
so, and does not train them nor let them go until that is over; it answers and beats like any other. The trace has every
fault, every lost message and every walk that was swallowed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from walktalk.errors import SpecError
from walktalk.protocols import AGGREGATE, Differentiate, Event, PeerFound, PeerLost, Record, Rejoined, Train
from walktalk.runtimes.simulator.fault_plan import AGGREGATOR, RANDOM, Fault, FaultPlan
from walktalk.runtimes.simulator.membership import NOT_THERE, Membership

if TYPE_CHECKING:
    from walktalk.runtimes.simulator.links import Transfer
    from walktalk.runtimes.simulator.simulation import Simulation
    from walktalk.runtimes.simulator.under_way import Envelope, Training

FAULT = 6  # kind of agenda entries, after the simulation's own
LOOK_AGAIN = 60.0  # seconds
STARVED = 20  # looks: nobody trained for so long, and one that swallows walks may say that it has them
log = logging.getLogger(__name__)
Happens: TypeAlias = Callable[[Any], None]


class Faults:
    """The faults of one run. It stands between the agenda and the simulation, and lets pass what may happen."""

    def __init__(self, plan: FaultPlan, simulation: Simulation) -> None:
        for fault in plan.faults:
            fault.check(simulation.setup.graph.nodes, links=simulation.links is not None)
        if getattr(simulation.setup.protocol, "mixing", "") == "matrix":
            raise SpecError("mixing: matrix mixes all nodes at once and knows no failures; use pairwise, or no faults")
        self.plan, self.simulation = plan, simulation
        self.dice = plan.seed.child("faults").python()
        self.losses = plan.seed.child("lost messages").python()
        self.blows = 0  # counts everything that went wrong: each undoes what it did itself, and nothing else
        self.dead: dict[int, set[int]] = {}  # node -> the blows that keep it so
        self.hung: dict[int, set[int]] = {}  # paused node -> the same
        self.slowed: dict[int | tuple[int, int], dict[int, float]] = {}  # node or link -> blow -> factor
        self.spoiling: dict[int, dict[int, str]] = {}  # corrupt node -> blow -> how
        self.born: dict[int, int] = {}  # node -> the number of trainings when it died last: older ones are void
        self.cut_off: dict[int, int] = {}  # node -> the number of messages when it died last
        self.held: dict[int, list[tuple[int, Any]]] = {}  # paused node -> what waits for it
        self.sides: list[frozenset[int]] = []  # partitions that are on
        self.shares: list[float] = []  # of lost messages, that are on
        self.torn: set[int] = set()  # messages that were cut short
        self.eaters: dict[int, dict[int, float]] = {}  # node -> blow -> share of the walks that it swallows
        self.eaten: dict[int, list[Train | Differentiate]] = {}  # node -> what it would have trained
        self.aggregator = int(getattr(simulation.setup.protocol, "aggregator", 0))
        self.elects = False  # whether the protocol says itself who aggregates
        self.looking = False  # whether it is looked now and then if all walks are lost
        self.membership = Membership(self, simulation.changes) if simulation.changes is not None else None

    def begin(self) -> None:
        """Plan what has a time, and the first of what comes at random."""
        if self.membership is not None:
            self.membership.begin()
        for fault in self.plan.faults:
            self._plan(fault)

    def strike(self, due: tuple[str, Any]) -> None:
        """An entry of the agenda: something goes wrong, is undone, or is told."""
        what, content = due
        getattr(self, f"_{what}")(content)

    # -- what may pass --------------------------------------------------------------------------------------------

    def between(self, happens: tuple[Happens, ...]) -> tuple[Happens, ...]:
        """The simulation's own handlers, each behind a check; and one for faults."""
        trained, arrived, timer, transferred, *others = happens
        return (
            lambda training: None if self._stops_training(training) else trained(training),
            lambda envelope: None if self._stops_message(envelope) else arrived(envelope),
            lambda content: None if self._holds(content[0], 2, content) else timer(content),
            lambda planned: transferred(self._torn(planned)),
            *others,
            self.strike,
        )

    def watching(self, record: Callable[[int, Any], None] | None) -> Callable[[int, Any], None]:
        """The simulation's handler of `Record`, watched: who aggregates."""

        def call(node: int, effect: Record) -> None:
            if effect.role == AGGREGATE:
                self.aggregator, self.elects = node, True
            if record is not None:
                record(node, effect)

        return call

    def guarding(self, train: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        """The simulation's handler of `Train`: a walk that is swallowed is never trained."""

        def call(node: int, effect: Any) -> None:
            if effect.walk > 0 and any(self.losses.random() < share for share in self.eaters.get(node, {}).values()):
                self.eaten.setdefault(node, []).append(effect)
                self._note(node, "swallowed", walk=effect.walk)
            else:
                train(node, effect)

        return call if any(fault.kind == "swallow" for fault in self.plan.faults) else train

    def _holds(self, node: int, kind: int, content: Any) -> bool:
        """A paused node's things wait."""
        if node in self.held:
            self.held[node].append((kind, content))
        return node in self.held

    def _stops_training(self, training: Training) -> bool:
        """A training that died with its node was for nothing."""
        if training.number < self.born.get(training.node, 0):
            self.simulation.under_way.pop(-1 - training.number, None)
            return True
        return self._holds(training.node, 0, training)

    def _stops_message(self, envelope: Envelope) -> bool:
        if self._holds(envelope.to, 1, envelope):
            return True
        silently = self._is_cut(envelope)
        if not silently and not any(self.losses.random() < share for share in self.shares):
            return False
        self.torn.discard(envelope.number)
        self.simulation.lose(envelope.number)
        self._note(envelope.to, "lost", peer=envelope.sender, walk=envelope.message.walk, number=envelope.number)
        if not silently:
            self.simulation.miss(envelope)
        return True

    def _is_cut(self, envelope: Envelope) -> bool:
        """Whether nobody is there to notice, or nothing to be noticed."""
        here, there = envelope.sender, envelope.to
        if there in self.dead or envelope.number in self.torn:
            return True
        if self.membership is not None and not self.membership.linked(here, there):
            return True
        return any((here in side) != (there in side) for side in self.sides)

    def _torn(self, planned: tuple[Transfer, int]) -> tuple[Transfer, int]:
        """A transfer ends; what its sender had not sent whole when it died is lost."""
        envelope: Envelope = planned[0].content  # type: ignore[assignment]
        if envelope.number < self.cut_off.get(envelope.sender, 0):
            self.torn.add(envelope.number)
        return planned

    def _note(self, node: int, event: str, **more: Any) -> None:
        self.simulation.interpreter.note_down(node, event, **more)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def _plan(self, fault: Fault) -> None:
        agenda = self.simulation.agenda
        if fault.at is not None:
            agenda.put_at(fault.at, FAULT, ("happens", fault))
        elif fault.rate is not None:
            agenda.put(self.dice.expovariate(fault.rate), FAULT, ("happens", fault))

    def _happens(self, fault: Fault) -> None:
        target = self._target(fault)
        if target is not None:
            self.blows += 1
            getattr(self, f"_{fault.kind}")(fault, target)
        if fault.rate is not None:
            self._plan(fault)

    def _undo_later(self, fault: Fault, what: str, content: Any) -> None:
        if fault.seconds is not None:
            self.simulation.agenda.put(fault.seconds, FAULT, (what, content))

    def _target(self, fault: Fault) -> int | None:
        """The node that it hits, -1 where it hits none in particular; None where there is nobody to hit."""
        if fault.node is None:
            return -1
        everyone = range(self.simulation.setup.graph.nodes)
        if fault.kind == "revive":
            dead = [node for node, blows in sorted(self.dead.items()) if NOT_THERE not in blows]
            gone = [fault.node] if isinstance(fault.node, int) else dead
            return gone[0] if gone and gone[0] in dead else None
        if fault.kind == "kill" and fault.node in self.dead:
            return int(fault.node)  # it stays dead for longer
        living = [node for node in everyone if node not in self.dead]
        if fault.kind == "join":
            return int(fault.node)
        if len(living) < 2 and fault.kind in ("kill", "leave"):
            return None  # somebody must be left
        if fault.node == RANDOM:
            return self.dice.choice(living)
        node = self._aggregator(living) if fault.node == AGGREGATOR else int(fault.node)
        return node if node in living else None

    def _aggregator(self, living: list[int]) -> int:
        """Whoever aggregates; for a protocol without one whoever would be elected, so that all lose the same nodes."""
        if self.elects or self.aggregator in living:
            return self.aggregator
        graph = self.simulation.setup.graph
        return max(living, key=lambda v: (sum(u not in self.dead for u in graph.neighbours(v)), -v))

    def _kill(self, fault: Fault, node: int) -> None:
        self._undo_later(fault, "life", (node, self.blows))
        if node in self.dead:
            self.dead[node].add(self.blows)
            return
        simulation = self.simulation
        self._note(node, "kill")
        self.dead[node] = {self.blows}
        self.held.pop(node, None)
        self.hung.pop(node, None)
        self.born[node], self.cut_off[node] = simulation.trainings, simulation.messages
        simulation.stop_node(node)
        self.eaten.pop(node, None)
        simulation.interpreter.node_dies(node)
        if not self.elects and self.aggregator == node:
            self.aggregator = -1
        self._tell_neighbours(node, PeerLost(node))
        self._look_for_an_end()

    def _look_for_an_end(self) -> None:
        if not self.looking:
            self.looking = True
            self.simulation.agenda.put(LOOK_AGAIN, FAULT, ("all_lost", (-1, 0, 0)))

    def _all_lost(self, seen: tuple[int, int, int]) -> None:
        """Look whether anything will ever be trained again; if not, twice in a row, the run is over.

        Without a guard lost walks stay lost, and heartbeats alone would go on for ever; with one, too, where it is told
        that a walk lives which was swallowed.
        """
        simulation, (iterations, starved, idle) = self.simulation, seen
        honest = [m for v, m in enumerate(simulation.machines) if v not in self.dead and v not in self.eaters]
        stands = iterations == simulation.iteration and not simulation.training and not self.held
        works = any(machine.has_work() for machine in honest)
        starved, idle = (starved + 1 if stands else 0), (idle + 1 if stands and not works else 0)
        if idle > 1 or (self.eaters and starved > STARVED):
            self._note(-1, "all_lost")
            log.warning(
                "%s: all walks were lost by %g s and nobody starts them again; the run ends there (guard: %s would)",
                simulation.setup.protocol.label,
                simulation.agenda.now,
                "create_if_late" if self.eaters else "aggregator",
            )
            simulation.end_early()
        elif len(simulation.agenda):  # else the run is over anyway
            simulation.agenda.put(LOOK_AGAIN, FAULT, ("all_lost", (simulation.iteration, starved, idle)))

    def _revive(self, fault: Fault, node: int) -> None:
        self._comes_back(node)

    def _life(self, blow: tuple[int, int]) -> None:
        """What killed a node is over; others may keep it dead, and a revival may have come before."""
        node, number = blow
        if number in self.dead.get(node, ()):
            self.dead[node].discard(number)
            if not self.dead[node]:
                self._comes_back(node)

    def _comes_back(self, node: int) -> None:
        simulation = self.simulation
        del self.dead[node]
        self._note(node, "revive")
        memory = simulation.machines[node].keepsake()  # as of its death, like its slots
        simulation.restart_node(node)
        simulation._give(node, Rejoined(memory))
        for peer in self.contacts(node):
            if peer in self.dead:
                simulation._give(node, PeerLost(peer))
        self._tell_neighbours(node, PeerFound(node))

    def contacts(self, node: int) -> tuple[int, ...]:
        """All that a node has a link with now."""
        if self.membership is not None:
            return self.membership.around[node].neighbours
        return self.simulation.setup.graph.contacts(node)

    def _join(self, fault: Fault, node: int) -> None:
        if self.membership is not None:
            self.membership.join(node)

    def _leave(self, fault: Fault, node: int) -> None:
        if self.membership is not None:
            self.membership.leave(node)

    def _changed(self, news: tuple[int, Event]) -> None:
        """The network is another, as a node sees it."""
        node, event = news
        if node in self.held:
            self.held[node].append((FAULT, ("changed", news)))
        elif node not in self.dead:
            self.simulation._give(node, event)

    def _gone_yet(self, due: tuple[int, float]) -> None:
        if self.membership is not None:
            self.membership.look(*due)

    def _tell_neighbours(self, node: int, event: Event) -> None:
        simulation = self.simulation
        for peer in self.contacts(node):
            simulation.agenda.put(simulation.latency(node, peer), FAULT, ("told", (peer, event)))

    def _told(self, news: tuple[int, Event]) -> None:
        node, event = news
        about = event.peer  # type: ignore[union-attr]
        if node in self.dead or isinstance(event, PeerFound) == (about in self.dead):
            return  # nobody to tell, or it is no longer true
        if node in self.held:
            self.held[node].append((FAULT, ("told", news)))
        else:
            self.simulation._give(node, event)

    def _pause(self, fault: Fault, node: int) -> None:
        self._undo_later(fault, "goes_on", (node, self.blows))
        self.hung.setdefault(node, set()).add(self.blows)
        if node not in self.held:
            self._note(node, "pause")
            self.held[node] = []

    def _goes_on(self, blow: tuple[int, int]) -> None:
        node, number = blow
        if number not in self.hung.get(node, ()):
            return  # it died meanwhile
        self.hung[node].discard(number)
        if not self.hung[node]:
            del self.hung[node]
            self._note(node, "resume")
            for kind, content in self.held.pop(node):
                self.simulation.agenda.put(0.0, kind, content)

    def _partition(self, fault: Fault, node: int) -> None:
        side = frozenset(fault.nodes)
        self.sides.append(side)
        self._note(-1, "partition", detail=" ".join(map(str, sorted(side))))
        self._undo_later(fault, "heals", side)

    def _heals(self, side: frozenset[int]) -> None:
        self.sides.remove(side)
        self._note(-1, "heal", detail=" ".join(map(str, sorted(side))))

    def _lose(self, fault: Fault, node: int) -> None:
        self.shares.append(fault.chance)
        self._note(-1, "lose", detail=f"{fault.chance:g}")
        self._undo_later(fault, "lost_enough", fault.chance)

    def _lost_enough(self, share: float) -> None:
        self.shares.remove(share)
        self._note(-1, "lose", detail="0")

    def _corrupt(self, fault: Fault, node: int) -> None:
        for bad in fault.nodes or (node,):
            self.spoiling.setdefault(bad, {})[self.blows] = fault.spoils
            self._note(bad, "corrupt", detail=fault.spoils)
            self._undo_later(fault, "honest_again", (bad, self.blows))
            self._spoil(bad)

    def _honest_again(self, blow: tuple[int, int]) -> None:
        node, number = blow
        del self.spoiling[node][number]
        self._note(node, "corrupt", detail="")
        self._spoil(node)

    def _spoil(self, node: int) -> None:
        """Of several blows the last that lasts counts."""
        corrupt = self.simulation.interpreter.corrupt
        corrupt.pop(node, None)
        for how in self.spoiling[node].values():
            corrupt[node] = how

    def _swallow(self, fault: Fault, node: int) -> None:
        self.eaters.setdefault(node, {})[self.blows] = fault.chance
        self._note(node, "swallow", detail=f"{fault.chance:g}")
        self._undo_later(fault, "sated", (node, self.blows))
        self._look_for_an_end()

    def _sated(self, blow: tuple[int, int]) -> None:
        node, number = blow
        del self.eaters[node][number]
        if not self.eaters[node]:
            del self.eaters[node]
            self._note(node, "swallow", detail="0")
            for effect in self.eaten.pop(node, []):
                self.simulation._ask_to_train(node, effect)

    def _slow(self, fault: Fault, node: int) -> None:
        what = (min(fault.link), max(fault.link)) if fault.link is not None else node
        self.slowed.setdefault(what, {})[self.blows] = fault.factor
        self._undo_later(fault, "fast_again", (what, self.blows))
        self._slow_down(what, fault.factor)

    def _fast_again(self, blow: tuple[int | tuple[int, int], int]) -> None:
        what, number = blow
        self._slow_down(what, 1.0 / self.slowed[what].pop(number))

    def _slow_down(self, what: int | tuple[int, int], change: float) -> None:
        """A node or link becomes slower, or faster again; `change` is for the trace."""
        simulation = self.simulation
        factor = math.prod(self.slowed[what].values())
        if isinstance(what, int):
            self._note(what, "slow", detail=f"{change:g}")
            simulation.stopwatch.slow_down(what, factor)
            return
        self._note(what[0], "slow", peer=what[1], detail=f"{change:g}")
        if simulation.links is not None:
            simulation._plan_ends(simulation.links.slow_down(*what, factor, simulation.agenda.now))
