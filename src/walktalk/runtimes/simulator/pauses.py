"""Nodes that hang in virtual time: everything waits, and nobody is told."""

from __future__ import annotations

from functools import partial
from typing import Any

from walktalk.runtimes.simulator.agenda import FAULT
from walktalk.runtimes.simulator.blows import Blow, Deed, Lasting, Stage


class Pauses:
    """Of one run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._blows: Lasting[int, bool] = Lasting()
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

    def delays(self, node: int, deed: Deed) -> bool:
        """The same of what is told to a node."""
        return self.holds(node, FAULT, deed)

    def pause(self, blow: Blow) -> None:
        """A node hangs."""
        node = blow.node
        self._stage.undo_later(blow.fault, partial(self._goes_on, node, blow.number))
        self._blows.begin(node, blow.number, True)
        if node not in self._held:
            self._stage.note(node, "pause")
            self._held[node] = []

    def _goes_on(self, node: int, number: int) -> None:
        if self._blows.end(node, number):  # not where it died meanwhile
            self._stage.note(node, "resume")
            for kind, content in self._held.pop(node):
                self._stage.simulation.agenda.put(0.0, kind, content)

    def dies(self, node: int) -> None:
        """A node that dies hangs no longer."""
        self._blows.clear(node)
        self._held.pop(node, None)
