"""Whom a fault hits in virtual time: a node by its number, any, or the one that aggregates."""

from __future__ import annotations

import random

from walktalk.graphs import Graph
from walktalk.runtimes.simulator.deaths import Deaths
from walktalk.runtimes.simulator.fault_plan import AGGREGATOR, RANDOM, Fault


class Targets:
    """Of one run."""

    def __init__(self, graph: Graph, deaths: Deaths, dice: random.Random, aggregator: int) -> None:
        """
        - `graph`: the study's.
        - `deaths`: who is dead.
        - `dice`: choose where any node will do.
        - `aggregator`: who aggregates at first.
        """
        self._graph, self._deaths, self._dice = graph, deaths, dice
        self._aggregator = aggregator
        self._elects = False  # whether the protocol says itself who aggregates

    def aggregates(self, node: int) -> None:
        """The protocol says that this node does."""
        self._aggregator, self._elects = node, True

    def dies(self, node: int) -> None:
        """Of a protocol that says nothing another node is taken for the aggregator from now on."""
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
        if fault.node == RANDOM:
            return self._dice.choice(living)
        node = self._who_aggregates(living) if fault.node == AGGREGATOR else int(fault.node)
        return node if node in living else None

    def _who_aggregates(self, living: list[int]) -> int:
        """Whoever does; for a protocol without one whoever would be elected, so that all lose the same nodes."""
        if self._elects or self._aggregator in living:
            return self._aggregator
        return max(living, key=lambda v: (sum(u not in self._deaths for u in self._graph.neighbours(v)), -v))
