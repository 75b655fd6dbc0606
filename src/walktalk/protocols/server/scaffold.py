"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020): control variates against the drift of local steps.

    y_i: K local steps from x with gradients g_i − c_i + c
    c_i⁺ = c_i − c + (x − y_i) / (K η)                 (option II of the paper)
    x ← x + η_g mean(y_i − x),    c ← c + mean(c_i⁺ − c_i)

c is always the mean of all c_i. At rest every node's corrected gradient is the mean one, so it reaches the optimum
however unlike the data are and however many local steps there are; FedAvg does not. Sends two models each way. The
study's optimizer is to be plain SGD: K η is what a local training moves by. Nobody may join or leave, because nothing
would take the c_i of one that leaves out of c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from walktalk.protocols.effects import INITIAL, UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.mechanisms.server import CHANGE, MODEL, ServerRounds, ServerRule

CONTROL, OWN_CONTROL = "control", "own_control"  # c and c_i
SHIFT, CORRECTION = "shift", "correction"  # c_i⁺ − c_i and c − c_i


@dataclass(frozen=True)
class Scaffold(ServerRounds):
    """FedAvg with corrections to every local gradient, so that nodes with unlike data do not drift apart.

    Args:
        server_rate: how much of the mean change the server takes, η_g.
    """

    server_rate: Annotated[float, Gt(0)] = 1.0
    name: ClassVar[str] = "scaffold"
    proved: ClassVar[str] = "Karimireddy et al. 2020"
    bound: ClassVar[str] = "scaffold_order"
    paper: ClassVar[str] = "Karimireddy et al., ICML 2020"
    keeps: ClassVar[str] = "a model and a control variate at the server, a control variate at every node"
    sends: ClassVar[str] = "two models to each node and two back in a round"
    why_nodes_stay: ClassVar[str] = (
        "the server's control variate is the mean of all nodes', from which one that leaves cannot be taken"
    )
    guarantees: ClassVar[str] = (
        "the server's variate is the mean of the nodes'; exact with a constant rate on unlike nodes"
    )
    title: ClassVar[str] = "SCAFFOLD"
    description: ClassVar[str] = "FedAvg whose local gradients are corrected for how unlike each node's data are."
    colour: ClassVar[str] = "#7D2E46"
    needs_own_gradients: ClassVar[str] = "corrects every gradient of a training"
    plain_sgd_only: ClassVar[str] = "tells gradients from how far a training went, which a momentum makes longer"

    def rule(self) -> Controlled:
        return Controlled(self.steps, self.server_rate)


class Controlled(ServerRule):
    """c_i⁺ − c_i = −c − (y_i − x) / (K η): what was learned and c are all that it takes."""

    __slots__ = ("rate",)
    down: ClassVar[tuple[str, ...]] = (MODEL, CONTROL)
    up: ClassVar[tuple[str, ...]] = (CHANGE, SHIFT)

    def __init__(self, steps: int, rate: float) -> None:
        super().__init__(Train(MODEL, steps=steps, correction=CORRECTION))
        self.rate = rate

    def begin(self) -> list[Effect]:
        return [Combine(CONTROL, {INITIAL: 0.0}), Combine(OWN_CONTROL, {INITIAL: 0.0})]

    def prepare(self) -> list[Effect]:
        return [Combine(CORRECTION, {CONTROL: 1.0, OWN_CONTROL: -1.0})]

    def learn(self, event: Trained) -> list[Effect]:
        moved = event.lr * event.steps
        shift = {CONTROL: -1.0, UPDATE: -1.0 / moved} if moved else {CONTROL: 0.0}  # at rest nothing is learned of it
        own = Combine(OWN_CONTROL, {OWN_CONTROL: 1.0, SHIFT: 1.0})
        return [Combine(CHANGE, {UPDATE: 1.0}), Combine(SHIFT, shift), own]

    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        changes = came[CHANGE]
        scaled = {slot: self.rate * weight for slot, weight in changes.items()}
        return [Combine(MODEL, {MODEL: 1.0, **scaled}, changes), Combine(CONTROL, {CONTROL: 1.0, **came[SHIFT]})]
