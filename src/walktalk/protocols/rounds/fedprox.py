"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020): FedAvg whose nodes do not stray far.

Every local step is one on f_i(y) + μ/2 ‖y − x‖², with x the server's model: μ (y − x) is added to every gradient. With
μ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import Train
from walktalk.protocols.rounds.fedavg import Averaging
from walktalk.protocols.rounds.server import ServerRounds
from walktalk.protocols.server import MODEL


@dataclass(frozen=True)
class FedProx(ServerRounds):
    """FedAvg in which every local step is pulled back to the server's model.

    Args:
        weighted: whether nodes count by how much data they have; if not, equally.
        mu: how hard a step is pulled back, μ; 0: FedAvg.
    """

    weighted: bool = True
    mu: Annotated[float, Ge(0)] = 0.1
    name: ClassVar[str] = "fedprox"
    title: ClassVar[str] = "FedProx"
    description: ClassVar[str] = "FedAvg in which every local step is pulled back to the server's model."
    colour: ClassVar[str] = "#C97B63"

    def rule(self) -> Averaging:
        train = Train(MODEL, steps=self.steps, anchor=MODEL if self.mu else "", pull=self.mu)
        return Averaging(train, self.weighted)
