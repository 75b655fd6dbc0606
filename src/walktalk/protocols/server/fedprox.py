"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020): FedAvg whose nodes do not stray far.

Every local step is one on f_i(y) + μ/2 ‖y − x‖², with x the server's model:

    y_i ← y_i − η (g_i(y_i) + μ (y_i − x)),    K times from y_i = x;    x ← Σ_i (n_i / n) y_i

With μ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import Train
from walktalk.protocols.mechanisms.server import MODEL, ServerRounds
from walktalk.protocols.server.fedavg import Averaging


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
    proved: ClassVar[str] = "Ghadimi & Lan 2013, with one local step"
    bound: ClassVar[str] = "fedavg_order"
    paper: ClassVar[str] = "Li et al., MLSys 2020"
    keeps: ClassVar[str] = "a model at the server"
    sends: ClassVar[str] = "one model to each node and one back in a round"
    guarantees: ClassVar[str] = "FedAvg for μ = 0; a larger μ keeps nodes nearer to the server's model"
    title: ClassVar[str] = "FedProx"
    description: ClassVar[str] = "FedAvg in which every local step is pulled back to the server's model."
    colour: ClassVar[str] = "#C97B63"

    @property
    def needs_own_gradients(self) -> str:
        return "pulls every step of a training back to a model" if self.mu else ""

    def rule(self) -> Averaging:
        train = Train(MODEL, steps=self.steps, anchor=MODEL if self.mu else "", pull=self.mu)
        return Averaging(train, self.weighted)
