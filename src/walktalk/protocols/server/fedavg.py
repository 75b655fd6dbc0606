"""FedAvg (McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017): a server averages what all have trained.

    y_i = x after K local steps on data of node i,    x ← Σ_i (n_i / n) y_i

n_i is how much data node i has. Everybody takes part in every round. The server is the middle of a star, or the root of
a tree; it has data and trains as all others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import Combine, Effect, Train
from walktalk.protocols.mechanisms.server import CHANGE, MODEL, ServerRounds, ServerRule


@dataclass(frozen=True)
class FedAvg(ServerRounds):
    """A server sends its model to all, all train on their data, and the server averages what comes back.

    Args:
        weighted: whether nodes count by how much data they have; if not, equally.
    """

    weighted: bool = True
    name: ClassVar[str] = "fedavg"
    also_known_as: ClassVar[tuple[str, ...]] = ("local_sgd",)
    proved: ClassVar[str] = "Ghadimi & Lan 2013, with one local step"
    bound: ClassVar[str] = "fedavg_order"
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
    keeps: ClassVar[str] = "a model at the server"
    sends: ClassVar[str] = "one model to each node and one back in a round"
    guarantees: ClassVar[str] = (
        "a round's model is the mean by how much data nodes have; on unlike data local steps drift"
    )
    title: ClassVar[str] = "FedAvg"
    description: ClassVar[str] = "A server averages what all nodes have trained from its model, round by round."
    colour: ClassVar[str] = "#B0413E"

    def rule(self) -> Averaging:
        return Averaging(Train(MODEL, steps=self.steps), self.weighted)


class Averaging(ServerRule):
    """Adds the mean of all changes to the server's model."""

    __slots__ = ()

    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        return [Combine(MODEL, {MODEL: 1.0, **came[CHANGE]}, came[CHANGE])]
