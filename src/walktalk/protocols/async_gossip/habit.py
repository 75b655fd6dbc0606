"""What nodes that exchange models in pairs do when: with how many, waiting or not, after how many local steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from walktalk.protocols.effects import Train
from walktalk.protocols.machine import Outside, Surroundings
from walktalk.protocols.weights import weight

MODEL = "model"


class Habit(NamedTuple):
    """The habits of all nodes of a protocol."""

    everyone: bool = False  # whether a node offers its model to all neighbours, or to a random one
    overlap: bool = False  # whether it trains on while it waits for an answer
    steps: int = 0  # local steps of a training; 0: as many as the study says
    random_steps: bool = False  # whether those are only the mean, of a geometric law

    def partners(self, free: Sequence[int], outside: Outside) -> Sequence[int]:
        """Whom to offer the model to, of those with whom no exchange is open."""
        return free if self.everyone or not free else [free[int(outside.random.random() * len(free))]]

    def train(self, outside: Outside) -> Train:
        """The next training."""
        return Train(MODEL, steps=_geometric(self.steps, outside) if self.random_steps else self.steps)

    def weight(self, around: Surroundings, peer: int) -> float:
        """How much of the difference to a partner is taken: one half of a pair; p_ij of a neighbourhood."""
        return weight(around, peer) if self.everyone else 0.5


def kept_offer(peer: int) -> str:
    """The slot of what was offered in an exchange that is open."""
    return f"open/{peer}"


def _geometric(mean: int, outside: Outside) -> int:
    """1, 2, 3 … with that mean: how often one tries until something of chance 1/mean happens."""
    return 1 if mean <= 1 else 1 + int(math.log(1.0 - outside.random.random()) / math.log(1.0 - 1.0 / mean))
