"""A network in virtual time that splits, loses messages or slows down; and nodes that become slow."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TypeAlias

from walktalk.runtimes.simulator.blows import Blow, Lasting, Stage

Slowed: TypeAlias = int | tuple[int, int]  # a node, or a link


class BadNetwork:
    """Of one run."""

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        """
        - `stage`: the run.
        - `dice`: say which messages get lost.
        """
        self._stage, self._dice = stage, dice
        self._sides: dict[int, frozenset[int]] = {}  # blow -> one side of a partition
        self._shares: dict[int, float] = {}  # blow -> of messages that get lost
        self._slowed: Lasting[Slowed, float] = Lasting()  # by which factors

    def is_split(self, one: int, other: int) -> bool:
        """Whether two nodes are in different parts."""
        return any((one in side) != (other in side) for side in self._sides.values())

    def loses(self) -> bool:
        """Whether a message gets lost on its way."""
        return any(self._dice.random() < share for share in self._shares.values())

    def partition(self, blow: Blow) -> None:
        """The network splits; nobody is told."""
        self._sides[blow.number] = side = frozenset(blow.fault.nodes)
        self._stage.note(-1, "partition", detail=" ".join(map(str, sorted(side))))
        self._stage.undo_later(blow.fault, partial(self._heals, blow.number))

    def _heals(self, number: int) -> None:
        side = self._sides.pop(number)
        self._stage.note(-1, "heal", detail=" ".join(map(str, sorted(side))))

    def lose(self, blow: Blow) -> None:
        """A share of the messages gets lost."""
        self._shares[blow.number] = chance = blow.fault.chance
        self._stage.note(-1, "lose", detail=f"{chance:g}")
        self._stage.undo_later(blow.fault, partial(self._lost_enough, blow.number))

    def _lost_enough(self, number: int) -> None:
        del self._shares[number]
        self._stage.note(-1, "lose", detail="0")

    def slow(self, blow: Blow) -> None:
        """A node or a link becomes slow."""
        fault = blow.fault
        what: Slowed = (min(fault.link), max(fault.link)) if fault.link is not None else blow.node
        self._slowed.begin(what, blow.number, fault.factor)
        self._stage.undo_later(fault, partial(self._fast_again, what, blow.number, fault.factor))
        self._set_pace(what, fault.factor)

    def _fast_again(self, what: Slowed, number: int, factor: float) -> None:
        self._slowed.end(what, number)
        self._set_pace(what, 1.0 / factor)

    def _set_pace(self, what: Slowed, change: float) -> None:
        """As all blows that last have it; `change`, by the last one, is for the trace."""
        simulation, factor = self._stage.simulation, math.prod(self._slowed.on(what))
        if isinstance(what, int):
            self._stage.note(what, "slow", detail=f"{change:g}")
            simulation.stopwatch.slow_down(what, factor)
            return
        self._stage.note(what[0], "slow", peer=what[1], detail=f"{change:g}")
        if simulation.links is not None:
            simulation._plan_ends(simulation.links.slow_down(*what, factor, simulation.agenda.now))
