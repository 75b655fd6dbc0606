"""Any protocol with a screen against bad nodes: the protocol itself does not know.

A rule for one model at a time (`clip`, `refuse`) is applied to every model that arrives, against the last one that
this node put out itself: its own in gossip, that of the last walk that it trained among walks. A model that is refused
counts as that one. A rule for several (`median`, `trim`) takes the place of the average in which they meet, and so
needs a protocol in which several do.

Nobody is thrown out: a node that misbehaves goes on to be listened to, and each of its models is judged for itself.
What stays within the rule's limits gets through, whoever sends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from walktalk.errors import SpecError
from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Forget, Record, Screen
from walktalk.protocols.events import Event, Received, Rejoined
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.wrapped import Wrapped, WrappedNode
from walktalk.screens import screen_named

OWN = "screen/own"  # the last model that this node put out
MIXED = "screen/mixed"
FINITE = "refuse(inf)"  # where there is nothing to compare with yet, a model must at least be one
TOLERANCE = 1e-6  # of weights that sum to one


def screened(protocol: Protocol, rule: str) -> Protocol:
    """The same protocol, what it receives screened.

    Args:
        protocol: any that sends models.
        rule: "clip(0.5)", "refuse(1.0)", "median", "trim(1)" or another screen's name with its settings; "none" for the
            protocol as it is.
    """
    if rule == "none":
        return protocol
    chosen = screen_named(rule)
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

    def machine(self, surroundings: Surroundings) -> Machine:
        inner = self.inner.machine(surroundings)
        meets = screen_named(self.rule).meets
        return MeetingNode(inner, self.rule) if meets else ScreenedNode(inner, self.rule)

    def hardened(self) -> Screened:
        return Screened(self.inner.hardened(), self.rule)

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
    """One node that judges every model when it arrives."""

    __slots__ = ("knows", "rule")

    def __init__(self, inner: Machine, rule: str) -> None:
        super().__init__(inner)
        self.rule, self.knows = rule, False  # whether there is a model to compare with

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Rejoined) and event.memory:
            self.knows, event = bool(event.memory[0]), Rejoined(event.memory[1:])
        arrived: list[Effect] = []
        if isinstance(event, Received) and event.slot:
            own, rule = (OWN, self.rule) if self.knows else (INITIAL, FINITE)
            arrived.append(Screen(event.slot, own, {event.slot: 1.0}, rule))
        return [*arrived, *self.changed(self.inner.handle(event, outside))]

    def changed(self, effects: list[Effect]) -> list[Effect]:
        if not any(isinstance(effect, Record) for effect in effects):
            return effects
        return [each for effect in effects for each in self._noticed(effect)]

    def kept(self, memory: bytes) -> bytes:
        return bytes([self.knows]) + memory

    def _noticed(self, effect: Effect) -> tuple[Effect, ...]:
        if not isinstance(effect, Record) or effect.role != MEMBER:
            return (effect,)
        self.knows = True
        return effect, Combine(OWN, {effect.slot: 1.0})


class MeetingNode(WrappedNode):
    """One node that puts a rule in the place of an average over several models."""

    __slots__ = ("came", "rule")

    def __init__(self, inner: Machine, rule: str) -> None:
        super().__init__(inner)
        self.rule = rule
        self.came: set[str] = set()  # slots that hold what others sent

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received) and event.slot:
            self.came.add(event.slot)
        return self.changed(self.inner.handle(event, outside))

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
            Screen(MIXED, own, others, self.rule),
            Combine(effect.into, {MIXED: 1.0, **rest}, statistics),
            Forget(MIXED),
        )
