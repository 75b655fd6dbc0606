"""What happens in virtual time when a node joins, or leaves for good: connections, news, and who takes over."""

from __future__ import annotations

from functools import partial

from walktalk.protocols import Leaving, NetworkChanged, PeerFound, PeerLost, Started, Surroundings
from walktalk.runtimes.simulator.blows import Blow, Stage
from walktalk.runtimes.simulator.changes import Changes
from walktalk.runtimes.simulator.deaths import Deaths
from walktalk.runtimes.simulator.pauses import Pauses

LOOK = 0.1  # seconds between two looks whether one that leaves may go
HAND_OVER = 60.0  # seconds that it waits at most; what it has then is lost


class Membership:
    """Of one run."""

    def __init__(self, stage: Stage, deaths: Deaths, pauses: Pauses, changes: Changes) -> None:
        """
        - `stage`: the run.
        - `deaths`: who is dead.
        - `pauses`: nodes that hang, and hear of changes when they go on.
        - `changes`: who is there.
        """
        self._stage, self._deaths, self._pauses, self._changes = stage, deaths, pauses, changes
        self._simulation = stage.simulation
        self.around: list[Surroundings] = self._simulation._surroundings()

    def linked(self, one: int, other: int) -> bool:
        """Whether two are neighbours now."""
        return other in self.around[one].neighbours

    def join(self, blow: Blow) -> None:
        """A node comes."""
        node, simulation = blow.node, self._simulation
        if node not in self._changes.absent:
            return
        self._changes.absent.discard(node)
        self._deaths.forget(node)
        self._stage.note(node, "joined", peer=node)
        simulation.restart_node(node)
        self._spread(node)
        simulation._give(node, Started(late=True))
        for peer in self.around[node].neighbours:
            if peer in self._deaths:
                simulation._give(node, PeerLost(peer))

    def leave(self, blow: Blow) -> None:
        """A node begins to leave."""
        node = blow.node
        if node in self._changes.leaving | self._changes.left:
            return
        self._changes.leaving.add(node)
        self._stage.note(node, "leaves_for_good", peer=node)
        self._spread()
        self._tell(node, Leaving())
        self._look_later(node, self._simulation.agenda.now + HAND_OVER)

    def _look(self, node: int, end: float) -> None:
        """Whether one that leaves may go by now, or must; one that dies meanwhile has left."""
        simulation, dead = self._simulation, node in self._deaths
        if not dead and simulation.agenda.now < end and not simulation.machines[node].may_go():
            self._look_later(node, end)
            return
        self._changes.leaving.discard(node)
        self._changes.left.add(node)
        if not dead:
            self._deaths.stop(node)
        self._deaths.forget(node)
        self._stage.note(node, "left_for_good", peer=node)
        self._spread()

    def _look_later(self, node: int, end: float) -> None:
        self._stage.later(LOOK, partial(self._look, node, end))

    def _spread(self, new: int = -1) -> None:
        """Everybody hears of it; new neighbours find each other after the link's latency. `new`: who has just come."""
        simulation, before = self._simulation, self.around
        self.around = simulation._surroundings()
        for around, known in zip(self.around, before, strict=True):
            node = around.node
            if node == new or around == known or node in self._deaths:
                continue
            self._tell(node, NetworkChanged(around))
            for peer in set(around.neighbours) - set(known.neighbours):
                self._deaths.tell(node, PeerFound(peer), simulation.latency(node, peer))

    def _tell(self, node: int, event: Leaving | NetworkChanged) -> None:
        self._stage.later(0.0, partial(self._hears, node, event))

    def _hears(self, node: int, event: Leaving | NetworkChanged) -> None:
        """The network is another, as a node sees it."""
        if not self._pauses.delays(node, partial(self._hears, node, event)) and node not in self._deaths:
            self._simulation._give(node, event)
