"""What happens in virtual time when a node joins, or leaves for good: connections, news, and who takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.protocols import Leaving, NetworkChanged, PeerFound, PeerLost, Started, Surroundings
from walktalk.runtimes.simulator.changes import Changes

if TYPE_CHECKING:
    from walktalk.runtimes.simulator.faults import Faults

FAULT = 6  # kind of agenda entries, as in `faults`
NOT_THERE = 0  # in place of a blow's number: it has not joined yet, or has left, so nothing can revive it
LOOK = 0.1  # seconds between two looks whether one that leaves may go
HAND_OVER = 60.0  # seconds that it waits at most; what it has then is lost


class Membership:
    """Of one run."""

    def __init__(self, faults: Faults, changes: Changes) -> None:
        """
        - `faults`: of the run; those who are not there count as dead.
        - `changes`: who is there.
        """
        self._faults, self._changes, self._simulation = faults, changes, faults.simulation
        self.around: list[Surroundings] = self._simulation._surroundings()

    def begin(self) -> None:
        """Those who join later are not there."""
        for node in self._changes.absent:
            self._faults.dead[node] = {NOT_THERE}

    def linked(self, one: int, other: int) -> bool:
        """Whether two are neighbours now."""
        return other in self.around[one].neighbours

    def join(self, node: int) -> None:
        """A node comes."""
        faults, simulation = self._faults, self._simulation
        if node not in self._changes.absent:
            return
        self._changes.absent.discard(node)
        del faults.dead[node]
        simulation.interpreter.note_down(node, "joined", peer=node)
        simulation.restart_node(node)
        self._spread(node)
        simulation._give(node, Started(late=True))
        for peer in self.around[node].neighbours:
            if peer in faults.dead:
                simulation._give(node, PeerLost(peer))

    def leave(self, node: int) -> None:
        """A node begins to leave."""
        if node in self._changes.leaving | self._changes.left:
            return
        self._changes.leaving.add(node)
        self._simulation.interpreter.note_down(node, "leaves_for_good", peer=node)
        self._spread()
        self._simulation.agenda.put(0.0, FAULT, ("changed", (node, Leaving())))
        self._look_later(node, self._simulation.agenda.now + HAND_OVER)

    def look(self, node: int, end: float) -> None:
        """Whether one that leaves may go by now, or must; one that dies meanwhile has left."""
        simulation, dead = self._simulation, node in self._faults.dead
        if not dead and simulation.agenda.now < end and not simulation.machines[node].may_go():
            self._look_later(node, end)
            return
        self._changes.leaving.discard(node)
        self._changes.left.add(node)
        if not dead:
            simulation.stop_node(node)
            self._faults.born[node] = simulation.trainings
            simulation.interpreter.node_dies(node)
        self._faults.dead[node] = {NOT_THERE}
        simulation.interpreter.note_down(node, "left_for_good", peer=node)
        self._spread()

    def _look_later(self, node: int, end: float) -> None:
        self._simulation.agenda.put(LOOK, FAULT, ("gone_yet", (node, end)))

    def _spread(self, new: int = -1) -> None:
        """Everybody hears of it; new neighbours find each other after the link's latency. `new`: who has just come."""
        simulation, before = self._simulation, self.around
        self.around = simulation._surroundings()
        for around, known in zip(self.around, before, strict=True):
            node = around.node
            if node == new or around == known or node in self._faults.dead:
                continue
            simulation.agenda.put(0.0, FAULT, ("changed", (node, NetworkChanged(around))))
            for peer in set(around.neighbours) - set(known.neighbours):
                simulation.agenda.put(simulation.latency(node, peer), FAULT, ("told", (node, PeerFound(peer))))
