"""Two wrappers that protect nodes, of which the protocol inside does not know: from what comes, and by what goes out.

A screen judges what bad nodes send. A rule for one model at a time (`clip`, `refuse`) is applied to every model that
arrives, against this node's own: the last that it put out, or, where models travel and the rule refuses them whole, the
last that got through, as it came. A model that is refused counts as that one. (As it came, not as it left: it will be
trained here, and a model that is trained twice on the data of one node is farther from all others.) `refuse` also asks
witnesses, what came last from two other neighbours, as it came: where both are near to a model, it is this node's own
that is astray, because its first model was a bad one or it was away for long. A rule for several (`median`, `trim`)
takes the place of the average in which they meet, and so needs a protocol in which several do.

Nobody is thrown out: a node that misbehaves goes on to be listened to, and each of its models is judged for itself.
What stays within the rule's limits gets through, whoever sends it.

Privacy lets nothing of a node's data out but under noise. A node's data enter its models in one place only: the result
of a training. So that is cut and put under noise at once (`transforms.rules`), before it is added to anything: whatever
is made of it later, anywhere, tells no more. The noise is part of the update: what mixing conserves, it conserves of
updates with their noise.

A node whose budget is spent takes part as before, but what it would learn is withheld (`runtimes.semantics`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import (
    GRADIENT,
    INITIAL,
    MEMBER,
    UPDATE,
    Apply,
    Combine,
    Differentiate,
    Effect,
    Forget,
    Record,
    Train,
)
from walktalk.protocols.events import Event, Received, Rejoined, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.wrappers.wrapped import Wrapped, WrappedNode
from walktalk.transforms.rules import NUMBER_RULES, Privacy, screen_named

# -- Screens -----------------------------------------------------------------------------------------------------------

OWN = "screen/own"  # what this node compares with
MIXED = "screen/mixed"
FIRST = "facing"  # where there is only the initial model to compare with, one must at least not be its opposite
TOLERANCE = 1e-6  # of weights that sum to one


def screened(protocol: Protocol, rule: str) -> Protocol:
    """Put a screen against bad nodes before a protocol: what it receives is judged.

    Args:
        protocol: any that sends models.
        rule: "clip(0.5)", "refuse(1.0)", "median", "trim(1)" or another screen's name with its settings; "none" for the
            protocol as it is.
    """
    if rule == "none":
        return protocol
    if rule.partition("(")[0].strip() in NUMBER_RULES:
        raise SpecError(f"screen: {rule} is no screen, and protects from nobody; use clip or refuse")
    chosen = screen_named(rule)
    if chosen.releases:
        raise SpecError(f"screen: {rule} protects what a node sends, not what comes to it; use the key privacy")
    if any(arrival.codec for arrival in protocol.messages.values()):
        raise SpecError(f"screen: {protocol.label} sends codes, not models; screen it first, then compress it")
    if not any(arrival.slot for arrival in protocol.messages.values()):
        raise SpecError(f"screen: {protocol.label} sends no models; leave screen out")
    if chosen.meets and not protocol.averages_at_once:
        raise SpecError(
            f"screen: {rule} compares several models, and in {protocol.label} no several meet; use clip or refuse"
        )
    return Screened(protocol, rule)


@dataclass(frozen=True)
class Screened(Wrapped):
    """A protocol behind a screen. `screened` makes one, and checks that it can be.

    Args:
        inner: the protocol.
        rule: the screen's name with its settings.
    """

    rule: str = "clip"
    name: ClassVar[str] = "screened"

    def machine(self, network_view: NetworkView) -> Machine:
        inner = self.inner.machine(network_view)
        rule = screen_named(self.rule)
        if rule.meets:
            return MeetingNode(inner, self.rule)
        # What was only cut is compared with after it was trained: training leads back to where honest models are.
        as_it_came = self.inner.models_travel and rule.refuses
        return ScreenedNode(inner, self.rule, len(network_view.sources), as_it_came)

    def resilient_form(self) -> Screened:
        return Screened(self.inner.resilient_form(), self.rule)

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.inner.settings, "screen": self.rule}

    @property
    def label(self) -> str:
        return f"{self.inner.label}-{self.rule.replace('(', '').replace(')', '')}"

    @property
    def title(self) -> str:
        return f"{self.inner.title}, {self.rule}"

    @property
    def description(self) -> str:
        return f"{self.inner.description.rstrip('.')}; what comes from others is screened by {self.rule}."


class ScreenedNode(WrappedNode):
    """Judges every model when it arrives, against this node's own."""

    __slots__ = ("as_it_came", "came", "knows", "rule", "witnesses")

    def __init__(self, inner: Machine, rule: str, neighbours: int, as_it_came: bool = False) -> None:
        super().__init__(inner)
        self.as_it_came = as_it_came  # whether what got through is compared with before it was trained here
        self.rule, self.knows = rule, False  # whether there is a model to compare with
        self.witnesses = min(screen_named(rule).witnesses, neighbours - 1)  # that are asked about a model
        self.came: dict[str, dict[int, str]] = {}  # by kind of message: neighbour -> slot of its last model, in order

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Rejoined) and event.memory:
            self.knows, event = bool(event.memory[0]), Rejoined(event.memory[1:])
        effects = self.inner.handle(event, context)  # first: a message that it does not take leaves no model here
        arrived = self._judged(event) if isinstance(event, Received) and event.slot else []
        return [*arrived, *self.changed(effects)]

    def _judged(self, event: Received) -> list[Effect]:
        slot = event.slot
        own, rule = (OWN, self.rule) if self.knows else (INITIAL, FIRST)
        effects: list[Effect] = []
        witnesses: list[str] = []
        if self.witnesses > 0:
            witnesses, kept = self._witnesses(event.message.kind, event.sender)
            effects.append(Combine(kept, {slot: 1.0}))
        effects.append(Apply(slot, own, {slot: 1.0, **dict.fromkeys(witnesses, 0.0)}, rule))
        if self.as_it_came:
            self.knows = True
            effects.append(Combine(OWN, {slot: 1.0}))
        return effects

    def _witnesses(self, kind: str, sender: int) -> tuple[list[str], str]:
        """What came last from others, if from enough of them, and where to keep what comes from this one."""
        came = self.came.setdefault(kind, {})
        mine = came.pop(sender, None)
        others = list(came.values())[-self.witnesses :]
        if mine is None:
            full = len(came) > self.witnesses
            mine = came.pop(next(iter(came))) if full else f"screen/{kind}/{len(came)}"
        came[sender] = mine
        return others if len(others) == self.witnesses else [], mine

    def changed(self, effects: list[Effect]) -> list[Effect]:
        if not any(isinstance(effect, Record) for effect in effects):
            return effects
        return [each for effect in effects for each in self._noticed(effect)]

    def kept(self, memory: bytes) -> bytes:
        return bytes([self.knows]) + memory

    def _noticed(self, effect: Effect) -> tuple[Effect, ...]:
        if not isinstance(effect, Record) or effect.role != MEMBER or (self.as_it_came and self.knows):
            return (effect,)
        self.knows = True  # a walk that begins here is the first to compare with
        return effect, Combine(OWN, {effect.slot: 1.0})


class MeetingNode(WrappedNode):
    """Puts a rule in the place of an average over several models."""

    __slots__ = ("came", "rule")

    def __init__(self, inner: Machine, rule: str) -> None:
        super().__init__(inner)
        self.rule = rule
        self.came: set[str] = set()  # slots that hold what others sent

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received) and event.slot:
            self.came.add(event.slot)
        return self.changed(self.inner.handle(event, context))

    def changed(self, effects: list[Effect]) -> list[Effect]:
        return [each for effect in effects for each in self._screened(effect)]

    def _screened(self, effect: Effect) -> tuple[Effect, ...]:
        if isinstance(effect, Forget):
            self.came.discard(effect.slot)
        if not isinstance(effect, Combine):
            return (effect,)
        others = {slot: weight for slot, weight in effect.terms.items() if slot in self.came}
        rest = {slot: weight for slot, weight in effect.terms.items() if slot not in self.came}
        left = 1.0 - sum(others.values())
        own = next((slot for slot, weight in rest.items() if others and abs(weight - left) < TOLERANCE), None)
        if own is None:
            return (effect,)
        del rest[own]
        statistics = effect.statistics
        if statistics is not None:
            kept = {slot: weight for slot, weight in statistics.items() if slot not in others and slot != own}
            statistics = {MIXED: sum(statistics.values()) - sum(kept.values()), **kept}
        return (
            Apply(MIXED, own, others, self.rule),
            Combine(effect.into, {MIXED: 1.0, **rest}, statistics),
            Forget(MIXED),
        )


# -- Privacy -----------------------------------------------------------------------------------------------------------


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
