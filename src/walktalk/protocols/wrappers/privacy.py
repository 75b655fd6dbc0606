"""Any protocol whose nodes let nothing of their data out but under noise: the protocol itself does not know.

A node's data enter its models in one place only: the result of a training. So that is cut and put under noise at once
(`transforms.rules`), before it is added to anything: whatever is made of it later, anywhere, tells no more. The
noise is part of the update: what mixing conserves, it conserves of updates with their noise.

A node whose budget is spent takes part as before, but what it would learn is withheld (`runtimes.semantics`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import GRADIENT, UPDATE, Apply, Differentiate, Effect, Train
from walktalk.protocols.events import Event, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.wrappers.wrapped import Wrapped, WrappedNode
from walktalk.transforms.rules import Privacy


def private(
    protocol: Protocol, clip: float = 1.0, noise: float = 1.0, delta: float = 1e-5, budget: float | None = None
) -> Protocol:
    """Protect the nodes' data: every update is cut and put under noise before anything is done with it.

    Args:
        protocol: any that sends models.
        clip: the longest update; a longer one is cut to that.
        noise: standard deviation of the noise on every number, as a multiple of `clip`.
        delta: the chance with which ε may not hold.
        budget: the largest ε that a node may spend; no limit if left out.
    """
    if protocol.pools_data or not any(arrival.slot for arrival in protocol.messages.values()):
        raise SpecError(f"privacy: {protocol.label} sends no models; leave privacy out")
    if protocol.privacy is not None:
        raise SpecError(f"privacy: {protocol.label} is private already")
    return Private(protocol, Privacy(clip, noise, delta, budget))


@dataclass(frozen=True)
class Private(Wrapped):
    """A protocol whose updates are under noise. `private` makes one, and checks that it can be.

    Args:
        inner: the protocol.
        spends: how much noise, and how much may be spent.
    """

    spends: Privacy = field(default_factory=Privacy)
    name: ClassVar[str] = "private"

    @property
    def privacy(self) -> Privacy | None:
        return self.spends

    def machine(self, network_view: NetworkView) -> Machine:
        return PrivateNode(self.inner.machine(network_view), self.spends.rule)

    def resilient_form(self) -> Private:
        return Private(self.inner.resilient_form(), self.spends)

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.inner.settings, "privacy": asdict(self.spends)}

    @property
    def label(self) -> str:
        given = self.spends
        budget = "" if given.budget is None else f"-to{given.budget:g}"
        return f"{self.inner.label}-private{given.clip:g}-{given.noise:g}{budget}"

    @property
    def title(self) -> str:
        return f"{self.inner.title}, noise {self.spends.noise:g}"

    @property
    def description(self) -> str:
        told = f"updates are cut to {self.spends.clip:g} and get noise {self.spends.noise:g} times that"
        return f"{self.inner.description.rstrip('.')}; {told}."


class PrivateNode(WrappedNode):
    """Cuts what is learned here and puts it under noise at once."""

    __slots__ = ("gradients", "rule")

    def __init__(self, inner: Machine, rule: str) -> None:
        super().__init__(inner)
        self.rule = rule
        self.gradients: dict[tuple[str, int], bool] = {}  # slot and walk of what is asked for: whether a gradient is

    def handle(self, event: Event, context: Context) -> list[Effect]:
        made: list[Effect] = []
        if isinstance(event, Trained):
            slot = GRADIENT if self.gradients.pop((event.slot, event.walk), False) else UPDATE
            if event.steps:  # else it was given up, and nothing was learned
                made.append(Apply(slot, slot, {}, self.rule))
        return [*made, *self.changed(self.inner.handle(event, context))]

    def changed(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Train | Differentiate):
                self.gradients[effect.slot, effect.walk] = isinstance(effect, Differentiate)
        return effects
