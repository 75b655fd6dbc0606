"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020): FedAvg whose nodes do not stray far.

Every local step is one on f_i(y) + μ/2 ‖y − x‖², with x the server's model: μ (y − x) is added to every gradient. With
μ = 0 it is FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.graphs import Graph
from walktalk.protocols.effects import Train
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.fedavg import Averaging
from walktalk.protocols.rounds.server import CHANGE, MODEL, ServerNode, check_server, server_messages


@dataclass(frozen=True)
class FedProx(Protocol):
    """FedAvg in which every local step is pulled back to the server's model.

    Args:
        mu: how hard, μ; 0: FedAvg.
        steps: local steps K in a round; 0: as many as the study says.
        server: the node that is the server; it needs a link with every other.
        weighted: whether nodes count by how much data they have; if not, equally.
    """

    mu: Annotated[float, Ge(0)] = 0.1
    steps: Annotated[int, Ge(0)] = 0
    server: Annotated[int, Ge(0)] = 0
    weighted: bool = True
    name: ClassVar[str] = "fedprox"
    family: ClassVar[str] = "server"
    title: ClassVar[str] = "FedProx"
    description: ClassVar[str] = "FedAvg in which every local step is pulled back to the server's model."
    colour: ClassVar[str] = "#C97B63"
    made_for: ClassVar[str] = "star"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return server_messages((MODEL,), (CHANGE,))

    def check_graph(self, graph: Graph) -> None:
        super().check_graph(graph)
        check_server(self.label, self.server, graph)

    def machine(self, surroundings: Surroundings) -> Machine:
        train = Train(MODEL, steps=self.steps, anchor=MODEL if self.mu else "", pull=self.mu)
        return ServerNode(surroundings, Averaging(train, self.weighted), self.server)
