"""A network in virtual time that splits, loses messages or slows down; and nodes that become slow."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TypeAlias

from walktalk.protocols import Differentiate, Train
from walktalk.runtimes.simulator.node_faults import FaultEvent, FaultScheduler, Lasting

Slowed: TypeAlias = int | tuple[int, int]  # a node, or a link


class BadNetwork:
    """Partitions, lost messages and slow links of one run."""

    def __init__(self, scheduler: FaultScheduler, rng: random.Random) -> None:
        """
        - `scheduler`: the run.
        - `rng`: say which messages get lost.
        """
        self._scheduler, self._rng = scheduler, rng
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
        what: Slowed = (min(fault.link), max(fault.link)) if fault.link is not None else fault_event.node
        self._slowed.begin(what, fault_event.number, fault.factor)
        self._scheduler.undo_later(fault, partial(self._fast_again, what, fault_event.number, fault.factor))
        self._set_pace(what, fault.factor)

    def _fast_again(self, what: Slowed, number: int, factor: float) -> None:
        self._slowed.end(what, number)
        self._set_pace(what, 1.0 / factor)

    def _set_pace(self, what: Slowed, change: float) -> None:
        """As all faults that last have it; `change`, by the last one, is for the trace."""
        simulation, factor = self._scheduler.simulation, math.prod(self._slowed.on(what))
        if isinstance(what, int):
            self._scheduler.note(what, "slow", detail=f"{change:g}")
            simulation.stopwatch.slow_down(what, factor)
            return
        self._scheduler.note(what[0], "slow", peer=what[1], detail=f"{change:g}")
        if simulation.links is not None:
            simulation.plan_ends(simulation.links.slow_down(*what, factor, simulation.agenda.now))


# Nodes in virtual time that do what they should not: send what is no model of theirs, or swallow walks.


class BadNodes:
    """Nodes of one run that corrupt what they send, or swallow walks."""

    def __init__(self, scheduler: FaultScheduler, rng: random.Random) -> None:
        """
        - `scheduler`: the run.
        - `rng`: say which walks are swallowed.
        """
        self._scheduler, self._rng = scheduler, rng
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
        corrupt = self._scheduler.simulation.interpreter.corrupt
        corrupt.pop(node, None)
        for how in self._spoiling.on(node):
            corrupt[node] = how

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
                self._scheduler.simulation.ask_to_train(node, effect)

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
