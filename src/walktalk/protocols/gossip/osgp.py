"""OSGP, overlap stochastic gradient push (Assran, Loizou, Ballas, Rabbat 2019): SGP that does not wait for messages.

    x_i ← x_i − η g_i(z_i);   p_ji (x_i, w_i) is sent to all j that i reaches, p_ii (x_i, w_i) is kept
    (x_i, w_i) ← (x_i, w_i) + all that has come,    z_i = x_i / w_i           at any time, also during a training;
                                                                              of a round that i has not done: then

A node goes on training while its shares and those of others are on the way, but never further than τ rounds beyond the
last of which it has everything: messages are τ rounds late at most. Σx and Σw are conserved, what is on the way
included, so lateness does no harm to the mean. With τ = 0 it is SGP, and where rows of P sum to one, too, D-PSGD. As in
the authors' code (facebookresearch/stochastic_gradient_push), shares of a round are weighed when they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import MEMBER, UPDATE, Combine, Effect, Forget, Record, Train
from walktalk.protocols.events import Received, Trained
from walktalk.protocols.gossip.sgp import SHARE, SUM, Push
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds
from walktalk.protocols.self_description import Law


@dataclass(frozen=True)
class OSGP(NeighbourRounds):
    """Nodes push shares of their models along one-way links, and train on while those are on the way.

    Args:
        delay: how many rounds late a message may be before a node waits for it, τ; 0: stochastic gradient push.
    """

    delay: Annotated[int, Ge(0)] = 1
    name: ClassVar[str] = "osgp"
    also_known_as: ClassVar[tuple[str, ...]] = ("overlap_sgp",)
    paper: ClassVar[str] = "Assran, Loizou, Ballas, Rabbat, ICML 2019"
    keeps: ClassVar[str] = "a sum and a weight at every node"
    sends: ClassVar[str] = "a share of both to every node that it reaches"
    guarantees: ClassVar[str] = (
        "the sums of both are kept, what is on the way included; messages are at most τ rounds late"
    )
    title: ClassVar[str] = "overlap gradient push"
    description: ClassVar[str] = "Nodes push shares of their models along one-way links and train on meanwhile."
    kinds: ClassVar[tuple[str, ...]] = ("push",)
    colour: ClassVar[str] = "#B07AA1"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(network_view, PushAhead(), delay=self.delay)


class PushAhead(Push):
    """Adds each share when it comes, and makes up for those that are lost, as SGP does, when they would be too late."""

    __slots__ = ("moved",)

    def __init__(self) -> None:
        super().__init__()
        self.moved = False  # whether something was added since the training began

    def work(self) -> Train:
        self.moved = False
        return Train(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        statistics = {SUM: 0.5, UPDATE: 0.5 * self.weight} if self.moved else {UPDATE: self.weight}
        learned = [Combine(SUM, {SUM: 1.0, UPDATE: 1.0}, statistics), *self._push(meeting), Combine(SUM, {SHARE: 1.0})]
        for sender in meeting.there("push", as_they_came=True):
            learned += self._add(sender, meeting.slot("push", sender), meeting.said("push", sender))
        return [*learned, *self._show(meeting)]

    def add(self, event: Received, note: Any, meeting: Meeting) -> list[Effect]:
        return [*self._add(event.sender, event.slot, note), *self._show(meeting)]

    def mix(self, meeting: Meeting) -> list[Effect]:
        made_up = sum(self.given.get(sender, self.weight) for sender in meeting.lost("push"))
        grown, self.weight = 1.0 + made_up / self.weight, self.weight + made_up
        return [Combine(SUM, {SUM: grown})] if made_up else []

    def _add(self, sender: int, slot: str, weight: float) -> list[Effect]:
        self.moved, self.given[sender] = True, weight
        self.weight += weight
        return [Combine(SUM, {SUM: 1.0, slot: 1.0}), Forget(slot)]

    def _show(self, meeting: Meeting) -> list[Effect]:
        """The model of a node is z = x/w."""
        return [Combine(MODEL, {SUM: 1.0 / self.weight}), Record(MEMBER, meeting.around.node, MODEL)]
