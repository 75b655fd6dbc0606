"""FedAvg (McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017): a server averages what all have trained.

    y_i = x after K local steps on data of node i,    x ← Σ_i (n_i / n) y_i

n_i is how much data node i has. Everybody takes part in every round. The server is the middle of a star; it has data
and trains as all others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.graphs import Graph
from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.server import CHANGE, MODEL, ServerNode, ServerRule, check_server, server_messages


@dataclass(frozen=True)
class FedAvg(Protocol):
    """A server sends its model to all, all train on their data, and the server averages what comes back.

    Args:
        steps: local steps K in a round; 0: as many as the study says.
        server: the node that is the server; it needs a link with every other.
        weighted: whether nodes count by how much data they have; if not, equally.
    """

    steps: Annotated[int, Ge(0)] = 0
    server: Annotated[int, Ge(0)] = 0
    weighted: bool = True
    name: ClassVar[str] = "fedavg"
    family: ClassVar[str] = "server"
    title: ClassVar[str] = "FedAvg"
    description: ClassVar[str] = "A server averages what all nodes have trained from its model, round by round."
    colour: ClassVar[str] = "#B0413E"
    made_for: ClassVar[str] = "star"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return server_messages((MODEL,), (CHANGE,))

    def check_graph(self, graph: Graph) -> None:
        super().check_graph(graph)
        check_server(self.label, self.server, graph)

    def machine(self, surroundings: Surroundings) -> Machine:
        return ServerNode(surroundings, Averaging(Train(MODEL, steps=self.steps), self.weighted), self.server)


class Averaging(ServerRule):
    """x plus the mean of all changes."""

    __slots__ = ("train", "weighted")

    def __init__(self, train: Train, weighted: bool) -> None:
        """
        - `train`: what every node does in a round.
        - `weighted`: whether nodes count by how much data they have.
        """
        self.train, self.weighted = train, weighted

    @property
    def down(self) -> tuple[str, ...]:
        return (MODEL,)

    @property
    def up(self) -> tuple[str, ...]:
        return (CHANGE,)

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> tuple[list[Effect], Train]:
        return [], self.train

    def learn(self, event: Trained) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0})]

    def gather(self, parts: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> list[Effect]:
        changes = shares if self.weighted else parts[CHANGE]
        return [Combine(MODEL, {MODEL: 1.0, **changes}, changes)]
