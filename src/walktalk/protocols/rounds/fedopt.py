"""FedOpt (Reddi et al. 2021): a server's adaptive steps along the mean change. FedAdam, FedYogi, FedAdagrad; FedAvgM.

    Δ = mean(y_i − x), y_i = x after K local steps,    m ← β₁ m + (1 − β₁) Δ,    v = τ² at first
    FedAdagrad: v ← v + Δ²,    FedAdam: v ← β₂ v + (1 − β₂) Δ²,    FedYogi: v ← v − (1 − β₂) Δ² sign(v − Δ²)
    x ← x + η m / (√v + τ)
    FedAvgM (Hsu, Qi, Brown 2019): m ← β₁ m + Δ,    x ← x + η m

All number by number. Moments stay at the server, so a round costs what it costs in FedAvg. FedAvgM with β₁ = 0 and
η = 1 is FedAvg; `diloco` is FedAvgM with Nesterov's step. While changes are larger than τ, steps are about η long in
every number; in the end, as √v falls below τ, FedAdam goes η/τ times as far as FedAvg: a τ that is too small for η does
not let it rest. (Written from memory of the paper's Algorithm 2, which does not correct moments for their beginning.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import Apply, Combine, Effect, Train
from walktalk.protocols.rounds.server import ServerRounds
from walktalk.protocols.rounds.server_rule import ChangesUp
from walktalk.protocols.self_description import InLabel
from walktalk.protocols.server import CHANGE, MODEL

ServerOptimizer: TypeAlias = Literal["adam", "yogi", "adagrad", "momentum"]
TITLES: dict[ServerOptimizer, str] = {
    "adam": "FedAdam",
    "yogi": "FedYogi",
    "adagrad": "FedAdagrad",
    "momentum": "FedAvgM",
}
COLOURS: dict[ServerOptimizer, str] = {
    "adam": "#C0504D",
    "yogi": "#8E5572",
    "adagrad": "#B5651D",
    "momentum": "#7F4F24",
}
MEAN, MOMENTUM, SECOND = "mean", "momentum", "second"  # Δ, m and v


@dataclass(frozen=True)
class FedOpt(ServerRounds):
    """FedAvg whose server takes the mean change as a gradient, for an optimizer of its own.

    Args:
        optimizer: the server's: adam (FedAdam), yogi (FedYogi), adagrad (FedAdagrad) or momentum (FedAvgM).
        server_rate: the server's learning rate, η.
        beta1: how much is kept of the mean of changes, β₁.
        beta2: how much is kept of the mean of their squares, β₂; for adam and yogi.
        tau: what is added to the root of that mean, τ: the smaller, the more alike are steps in all numbers.
        weighted: whether nodes count by how much data they have; if not, equally.
    """

    optimizer: Annotated[ServerOptimizer, InLabel("-{}", always=True)] = "adam"
    server_rate: Annotated[float, Gt(0)] = 0.1
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 1e-3
    weighted: bool = True
    name: ClassVar[str] = "fedopt"
    paper: ClassVar[str] = "Reddi et al., ICLR 2021; Hsu, Qi, Brown 2019 (FedAvgM)"
    keeps: ClassVar[str] = "a model and one or two moments at the server"
    sends: ClassVar[str] = "one model to each node and one change back in a round"
    guarantees: ClassVar[str] = (
        "FedAvg for plain steps of the server; exact with one local step, on unlike data several of them drift"
    )
    description: ClassVar[str] = (
        "FedAvg whose server takes the mean change as a gradient for Adam, Yogi, Adagrad or SGD."
    )

    @classmethod
    def usual(cls) -> tuple[FedOpt, ...]:
        return tuple(cls(optimizer=optimizer) for optimizer in TITLES)

    @property
    def title(self) -> str:
        return TITLES[self.optimizer]

    @property
    def colour(self) -> str:
        return COLOURS[self.optimizer]

    def rule(self) -> ServerSteps:
        return ServerSteps(self)


class ServerSteps(ChangesUp):
    """Running statistics are the mean of those of the trained models."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: FedOpt) -> None:
        super().__init__(Train(MODEL, steps=settings.steps))
        self.settings, self.moving = settings, False

    @property
    def weighted(self) -> bool:
        return self.settings.weighted

    def gather(self, parts: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> list[Effect]:
        ours = self.settings
        plain = ours.optimizer == "momentum"
        kept = {MOMENTUM: ours.beta1} if self.moving else {}
        mean = Combine(MEAN, shares if ours.weighted else parts[CHANGE])
        momentum = Combine(MOMENTUM, {**kept, MEAN: 1.0 if plain else 1.0 - ours.beta1}, {MEAN: 1.0})
        if plain:
            step: list[Effect] = [Combine(MODEL, {MODEL: 1.0, MOMENTUM: ours.server_rate}, {MEAN: 1.0})]
        else:
            before = {SECOND: 1.0} if self.moving else {}
            second = Apply(SECOND, MEAN, before, self._second)
            step = [second, Apply(MODEL, MODEL, {MOMENTUM: ours.server_rate, SECOND: 0.0}, f"scaled_step({ours.tau})")]
        self.moving = True
        return [mean, momentum, *step]

    @property
    def _second(self) -> str:
        """The rule by which v goes on."""
        ours = self.settings
        forgets = "" if ours.optimizer == "adagrad" else f"{ours.beta2}, "
        return f"{ours.optimizer}_moment({forgets}{ours.tau})"
