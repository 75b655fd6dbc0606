"""Nodes that die in virtual time and come back, and who is told.

A killed node forgets what it was doing; its neighbours hear of it after the link's latency, as of a broken connection.
Messages to it, and those that it was still sending, are lost. A node that comes back has the slots that it died with,
as if from a checkpoint, and a fresh machine. Who has not joined yet, or has left for good, counts as dead as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from walktalk.protocols import PeerFound, PeerLost, Rejoined
from walktalk.runtimes.simulator.blows import Blow, Lasting, Stage
from walktalk.runtimes.simulator.pauses import Pauses
from walktalk.runtimes.simulator.under_way import Envelope, Training


class Deaths:
    """Of one run."""

    def __init__(self, stage: Stage, pauses: Pauses, contacts: Callable[[int], tuple[int, ...]]) -> None:
        """
        - `stage`: the run.
        - `pauses`: nodes that hang, and hear of others when they go on.
        - `contacts`: all that a node has a link with now.
        """
        self._stage, self._pauses, self._contacts = stage, pauses, contacts
        self._simulation, self._changes = stage.simulation, stage.simulation.changes
        self._blows: Lasting[int, bool] = Lasting()
        self._trainings: dict[int, int] = {}  # node -> how many there were when it died last: older ones are void
        self._messages: dict[int, int] = {}  # node -> the same of messages
        self._torn: set[int] = set()  # messages that were cut short

    def __contains__(self, node: object) -> bool:
        return node in self._blows or (self._changes is not None and self._changes.is_away(node))

    def to_revive(self) -> list[int]:
        """Those that can come back: not who has not joined yet, or has left."""
        return sorted(node for node in self._blows if self._changes is None or not self._changes.is_away(node))

    def kill(self, blow: Blow) -> bool:
        """A node dies, or stays dead for longer; whether it was alive."""
        node, was_dead = blow.node, blow.node in self
        self._stage.undo_later(blow.fault, partial(self._over, node, blow.number))
        if not was_dead:
            self._stage.note(node, "kill")
        self._blows.begin(node, blow.number, True)
        if not was_dead:
            self._pauses.dies(node)
            self._messages[node] = self._simulation.messages
            self.stop(node)
            self._tell_contacts(node, PeerLost(node))
        return not was_dead

    def stop(self, node: int) -> None:
        """What a node was doing is gone with it."""
        self._trainings[node] = self._simulation.trainings
        self._simulation.stop_node(node)
        self._simulation.interpreter.node_dies(node)

    def forget(self, node: int) -> None:
        """A node joins, or leaves for good: whatever hit it before is over."""
        self._blows.clear(node)

    def _over(self, node: int, number: int) -> None:
        """What killed a node is over; others may keep it dead, and a revival may have come before."""
        if self._blows.end(node, number) and node not in self:
            self._comes_back(node)

    def revive(self, blow: Blow) -> None:
        """A node comes back, whatever killed it."""
        self._blows.clear(blow.node)
        self._comes_back(blow.node)

    def _comes_back(self, node: int) -> None:
        simulation = self._simulation
        self._stage.note(node, "revive")
        memory = simulation.machines[node].keepsake()  # as of its death, like its slots
        simulation.restart_node(node)
        simulation._give(node, Rejoined(memory))
        for peer in self._contacts(node):
            if peer in self:
                simulation._give(node, PeerLost(peer))
        self._tell_contacts(node, PeerFound(node))

    # -- who is told ----------------------------------------------------------------------------------------------

    def _tell_contacts(self, node: int, event: PeerLost | PeerFound) -> None:
        for peer in self._contacts(node):
            self.tell(peer, event, self._simulation.latency(node, peer))

    def tell(self, node: int, event: PeerLost | PeerFound, seconds: float) -> None:
        """A node hears of another, after so many seconds."""
        self._stage.later(seconds, partial(self._hears, node, event))

    def _hears(self, node: int, event: PeerLost | PeerFound) -> None:
        if node in self or isinstance(event, PeerFound) == (event.peer in self):
            return  # nobody to tell, or it is no longer true
        if not self._pauses.delays(node, partial(self._hears, node, event)):
            self._simulation._give(node, event)

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
