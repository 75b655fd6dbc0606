"""DiLoCo (Douillard et al. 2023): long local trainings, and a server's Nesterov steps along the mean change.

    Δ = mean(φ − θ_i), θ_i = φ after H local steps,    m ← β m + Δ,    φ ← φ − η (Δ + β m)

The server is the middle of a star, so a round costs a node one model up and one down. The inner optimizer's state stays
at the node with `optimizer_state: node`, as there; it is never averaged. With β = 0 and η = 1 it is FedAvg with equal
weights, and with H = 1 and plain SGD beside that, SGD on everybody's batches at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.graphs import Graph
from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.server import CHANGE, MODEL, ServerNode, ServerRule, check_server, server_messages

MOMENTUM, MEAN = "momentum", "mean"  # −m and −Δ


@dataclass(frozen=True)
class DiLoCo(Protocol):
    """All train long from a server's model, which then goes a Nesterov step along the mean change.

    Args:
        steps: local steps H in a round; 0: as many as the study says.
        outer_lr: the server's learning rate, η.
        outer_momentum: the server's momentum, β.
        server: the node that is the server; it needs a link with every other.
    """

    steps: Annotated[int, Ge(0)] = 0
    outer_lr: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    server: Annotated[int, Ge(0)] = 0
    name: ClassVar[str] = "diloco"
    family: ClassVar[str] = "server"
    title: ClassVar[str] = "DiLoCo"
    description: ClassVar[str] = (
        "All train long from one model, which then takes a momentum step along the mean change."
    )
    colour: ClassVar[str] = "#94650C"
    made_for: ClassVar[str] = "star"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return server_messages((MODEL,), (CHANGE,))

    def check_graph(self, graph: Graph) -> None:
        super().check_graph(graph)
        check_server(self.label, self.server, graph)

    def machine(self, surroundings: Surroundings) -> Machine:
        return ServerNode(surroundings, OuterNesterov(self), self.server)


class OuterNesterov(ServerRule):
    """Running statistics are the mean of those of the trained models."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: DiLoCo) -> None:
        self.settings, self.moving = settings, False

    @property
    def down(self) -> tuple[str, ...]:
        return (MODEL,)

    @property
    def up(self) -> tuple[str, ...]:
        return (CHANGE,)

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> tuple[list[Effect], Train]:
        return [], Train(MODEL, steps=self.settings.steps)

    def learn(self, event: Trained) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0})]

    def gather(self, parts: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> list[Effect]:
        eta, beta = self.settings.outer_lr, self.settings.outer_momentum
        kept = {MOMENTUM: beta} if self.moving else {}
        self.moving = True
        return [
            Combine(MEAN, parts[CHANGE]),
            Combine(MOMENTUM, {**kept, MEAN: 1.0}),
            Combine(MODEL, {MODEL: 1.0, MEAN: eta, MOMENTUM: eta * beta}, {MEAN: 1.0}),
        ]
