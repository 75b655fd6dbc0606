"""Nodes in virtual time that do what they should not: send what is no model of theirs, or swallow walks."""

from __future__ import annotations

import random
from functools import partial

from walktalk.protocols import Differentiate, Train
from walktalk.runtimes.simulator.blows import Blow, Lasting, Stage


class BadNodes:
    """Of one run."""

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        """
        - `stage`: the run.
        - `dice`: say which walks are swallowed.
        """
        self._stage, self._dice = stage, dice
        self._spoiling: Lasting[int, str] = Lasting()  # corrupt nodes, and how
        self.eaters: Lasting[int, float] = Lasting()  # nodes that swallow, and which share of the walks
        self._eaten: dict[int, list[Train | Differentiate]] = {}  # node -> what it would have trained

    def corrupt(self, blow: Blow) -> None:
        """Some nodes spoil what they send."""
        fault = blow.fault
        for bad in fault.nodes or (blow.node,):
            self._spoiling.begin(bad, blow.number, fault.spoils)
            self._stage.note(bad, "corrupt", detail=fault.spoils)
            self._stage.undo_later(fault, partial(self._honest_again, bad, blow.number))
            self._spoil(bad)

    def _honest_again(self, node: int, number: int) -> None:
        self._spoiling.end(node, number)
        self._stage.note(node, "corrupt", detail="")
        self._spoil(node)

    def _spoil(self, node: int) -> None:
        """Of several blows the last that lasts counts."""
        corrupt = self._stage.simulation.interpreter.corrupt
        corrupt.pop(node, None)
        for how in self._spoiling.on(node):
            corrupt[node] = how

    def swallow(self, blow: Blow) -> None:
        """A node takes walks and does not train them."""
        node, chance = blow.node, blow.fault.chance
        self.eaters.begin(node, blow.number, chance)
        self._stage.note(node, "swallow", detail=f"{chance:g}")
        self._stage.undo_later(blow.fault, partial(self._sated, node, blow.number))

    def _sated(self, node: int, number: int) -> None:
        if self.eaters.end(node, number):
            self._stage.note(node, "swallow", detail="0")
            for effect in self._eaten.pop(node, []):
                self._stage.simulation._ask_to_train(node, effect)

    def eats(self, node: int, effect: Train | Differentiate) -> bool:
        """Whether a walk is swallowed in place of being trained."""
        eaten = effect.walk > 0 and any(self._dice.random() < share for share in self.eaters.on(node))
        if eaten:
            self._eaten.setdefault(node, []).append(effect)
            self._stage.note(node, "swallowed", walk=effect.walk)
        return eaten

    def dies(self, node: int) -> None:
        """What a node has swallowed dies with it."""
        self._eaten.pop(node, None)
