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
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import Apply, Combine, Effect, Train
from walktalk.protocols.mechanisms.server import CHANGE, MODEL, ServerRounds, ServerRule
from walktalk.protocols.self_description import InLabel

ServerOptimizer: TypeAlias = Literal["adam", "yogi", "adagrad", "momentum"]
TITLES: Mapping[str, str] = {"adam": "FedAdam", "yogi": "FedYogi", "adagrad": "FedAdagrad", "momentum": "FedAvgM"}
COLOURS: Mapping[str, str] = {"adam": "#C0504D", "yogi": "#8E5572", "adagrad": "#B5651D", "momentum": "#7F4F24"}
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
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        title.lower(): {"optimizer": name} for name, title in TITLES.items()
    }
    proved: ClassVar[str] = "ours, for optimizer momentum (FedAvgM) with one local step"
    bound: ClassVar[str] = "fedopt_order"
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
        return tuple(cls(optimizer=optimizer) for optimizer in get_args(ServerOptimizer))

    @property
    def title(self) -> str:
        return TITLES[self.optimizer]

    @property
    def colour(self) -> str:
        return COLOURS[self.optimizer]

    def rule(self) -> ServerSteps:
        return ServerSteps(self)


class ServerSteps(ServerRule):
    """Takes the mean change for a gradient. Running statistics are the mean of those of the trained models."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: FedOpt) -> None:
        super().__init__(Train(MODEL, steps=settings.steps), settings.weighted)
        self.settings, self.moving = settings, False

    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        ours = self.settings
        rate, plain = ours.server_rate, ours.optimizer == "momentum"
        kept = {MOMENTUM: ours.beta1} if self.moving else {}
        before = {SECOND: 1.0} if self.moving else {}
        self.moving = True
        mean = Combine(MEAN, came[CHANGE])
        momentum = Combine(MOMENTUM, {**kept, MEAN: 1.0 if plain else 1.0 - ours.beta1}, {MEAN: 1.0})
        if plain:
            return [mean, momentum, Combine(MODEL, {MODEL: 1.0, MOMENTUM: rate}, {MEAN: 1.0})]
        forgets = "" if ours.optimizer == "adagrad" else f"{ours.beta2}, "
        second = Apply(SECOND, MEAN, before, f"{ours.optimizer}_moment({forgets}{ours.tau})")
        step = Apply(MODEL, MODEL, {MOMENTUM: rate, SECOND: 0.0}, f"scaled_step({ours.tau})")
        return [mean, momentum, second, step]
