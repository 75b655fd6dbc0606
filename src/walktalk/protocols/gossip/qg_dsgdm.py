"""QG-DSGDm, quasi-global momentum (Lin, Karimireddy, Stich, Jaggi 2021): momentum from what everybody does.

    v_i = g_i + β m_i            (Nesterov: g_i + β (g_i + β m_i))
    x_i' = Σ_j W_ij (x_j − η v_j)
    m_i ← (1 − μ) m_i + μ (x_i − x_i') / η

m never sees a gradient, only how the model moved in the averaging: so nodes whose data differ do not pull apart by
their momenta. Sends what D-PSGD sends, and is D-PSGD for β = 0. With K local steps the movement is divided by K, too.
The study's own optimizer should have no momentum beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand, InLabel, Law

Missing: TypeAlias = Literal["own", "divide"]
MOMENTUM, PUSH, MIXED = "momentum", "push", "mixed"  # m, what is added to gradients, x'


@dataclass(frozen=True)
class QGDSGDm(NeighbourRounds):
    """Gossip in rounds with a momentum that follows the averaged models and not a node's own gradients.

    Args:
        beta: how much of the momentum is added to a gradient, β; 0: plain gossip in rounds.
        mu: how fast the momentum follows the models, μ.
        nesterov: whether to look ahead along the momentum.
        missing: where messages are lost, whether their weight stays with the node's own model (own), or the weights of
            what is there are divided by their sum (divide).
    """

    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    mu: Annotated[float, Gt(0), Le(1)] = 0.1
    nesterov: bool = False
    missing: Annotated[Missing, InLabel("-{}")] = "own"
    name: ClassVar[str] = "qg_dsgdm"
    also_known_as: ClassVar[tuple[str, ...]] = ("quasi_global_momentum",)
    paper: ClassVar[str] = "Lin, Karimireddy, Stich, Jaggi, ICML 2021"
    keeps: ClassVar[str] = "a model and a momentum at every node"
    sends: ClassVar[str] = "a model to every neighbour in a round"
    guarantees: ClassVar[str] = "momenta of unlike nodes do not pull apart; D-PSGD without momentum"
    title: ClassVar[str] = "quasi-global momentum"
    description: ClassVar[str] = "Gossip in rounds with a momentum of how the averaged model moves: for unlike data."
    colour: ClassVar[str] = "#8C6D31"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def plain_sgd_only(self) -> str:
        return "has a momentum of its own, and two of them, one of the other, amplify each other" if self.beta else ""

    @property
    def needs_own_gradients(self) -> str:
        return "corrects every gradient of a training" if self.beta else ""

    def rule(self, around: NetworkView) -> Rule:
        return QuasiGlobal(self)

    def divisor(self, own: float, came: float) -> float:
        """Number by which a node's weights are divided where something is missing, with `missing: divide`.

        own, came: the weight of its own model, and the sum of those of all that came.
        """
        return own + came


class QuasiGlobal(Rule):
    """Nesterov's g + β (g + βm) is (1 + β) (g + β²/(1 + β) m): a longer step and a smaller push."""

    __slots__ = ("beta", "moved", "mu", "per_step", "rate", "settings")

    def __init__(self, settings: QGDSGDm) -> None:
        beta = settings.beta
        self.beta, self.rate = (beta * beta / (1.0 + beta), 1.0 + beta) if settings.nesterov else (beta, 1.0)
        self.settings, self.mu, self.moved = settings, settings.mu, False
        self.per_step = 0.0  # 1 / (η K) of this round

    def work(self) -> Train:
        return Train(MODEL, rate=self.rate, correction=PUSH if self.moved and self.beta else "")

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        moved = event.lr * event.steps
        self.per_step = 1.0 / moved if moved else 0.0
        return [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}), *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        mixed = Combine(MIXED, self.mean(meeting))
        if not self.per_step:  # a learning rate of zero says nothing of gradients
            return [mixed, Combine(MODEL, {MIXED: 1.0})]
        kept = {MOMENTUM: 1.0 - self.mu} if self.moved else {}
        share, self.moved = self.mu * self.per_step, True
        follow = Combine(MOMENTUM, {**kept, MODEL: share, MIXED: -share})
        return [mixed, follow, Combine(PUSH, {MOMENTUM: self.beta}), Combine(MODEL, {MIXED: 1.0})]

    def mean(self, meeting: Meeting) -> dict[str, float]:
        """The weights of what is there."""
        if self.settings.missing == "own":
            return meeting.mean(HALF, "round")
        own, came = meeting.weights("round")
        divisor = self.settings.divisor(own, sum(came.values()))
        return {HALF: own / divisor, **{slot: weight / divisor for slot, weight in came.items()}}
