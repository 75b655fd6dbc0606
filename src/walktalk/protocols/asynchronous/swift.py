"""SWIFT (Bornstein, Rabbani, Wang, Bedi, Huang 2023): mailboxes, and nobody ever waits.

    every step:        g_i at x_i; then x_i ← Σ_j w_ij m_j − η g_i in every s-th step, else x_i ← x_i − η g_i
    after every step:  x_i is put into the mailboxes of all neighbours, over what was there

m_j is what lies in the mailbox of neighbour j, m_i = x_i. Only the node that has just trained changes, so mixing is not
doubly stochastic; but if node i is the one with probability p_i, E[W] is when p_i w_ij = p_j w_ji. How often each
trains is told along with its model, and the weights are those of Metropolis and Hastings for p:

    w_ij = min(1/(d_i + 1), (p_j/p_i)/(d_j + 1))

With equal speeds they are the usual ones. (Mailboxes, influence p and a doubly stochastic E[W] are the paper's; weights
by measured speeds, in the form of Metropolis, are ours; the order of the step is from memory of the paper.) A neighbour
that is lost is left out until it is back; its weight stays with the node itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.demands import FIXED, Demand
from walktalk.protocols.effects import INITIAL, MEMBER, UPDATE, Combine, Effect, Record, Send, Train
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message

MODEL = "model"
MESSAGES = {"mail": Arrival("mail/{sender}", latest=True)}


@dataclass(frozen=True)
class SWIFT(Protocol):
    """Every node trains at its own speed and averages with whatever its neighbours sent last.

    Args:
        every: average in every so many-th step, s.
    """

    every: Annotated[int, Ge(1)] = 1
    name: ClassVar[str] = "swift"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Bornstein, Rabbani, Wang, Bedi, Huang, ICLR 2023"
    keeps: ClassVar[str] = "a model and a mailbox for each neighbour at every node"
    sends: ClassVar[str] = "a model to every neighbour after every training"
    guarantees: ClassVar[str] = "nobody waits; mixing is doubly stochastic in expectation"
    title: ClassVar[str] = "SWIFT"
    description: ClassVar[str] = "Every node trains on and averages with whatever its neighbours sent last; none waits."
    colour: ClassVar[str] = "#5499C7"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED,)
    survives_failures: ClassVar[bool] = True  # who waits for nobody does not miss anybody

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        return Mailboxes(surroundings, self.every)


class Mailboxes(Machine):
    """One node. Before anything has come, a mailbox holds the initial model, with which all begin."""

    __slots__ = ("around", "cut", "every", "steps", "theirs")

    def __init__(self, around: Surroundings, every: int) -> None:
        self.around, self.every = around, every
        self.steps = 0  # trainings of this node, without the one that has just ended: others' is not known yet either
        self.theirs = dict.fromkeys(around.neighbours, 1)  # trainings of each neighbour, as far as is known
        self.cut: set[int] = set()  # neighbours that are lost

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            if event.sender not in self.theirs or event.message.round < 1:
                raise ValueError(f"{event.sender} is no neighbour, or has not trained yet")
            self.theirs[event.sender] = event.message.round
            return []
        if isinstance(event, Trained):
            step = self._step()
            self.steps += 1
            return [step, Record(MEMBER, self.around.node, MODEL), *self._send(), Train(MODEL)]
        if isinstance(event, Started):
            boxes = [Combine(_mail(peer), {INITIAL: 1.0}) for peer in self.around.neighbours]
            return [Combine(MODEL, {INITIAL: 1.0}), *boxes, Record(MEMBER, self.around.node, MODEL), Train(MODEL)]
        if isinstance(event, Rejoined):
            self.steps = int.from_bytes(event.memory, "little")
            return [Record(MEMBER, self.around.node, MODEL), Train(MODEL)]
        if isinstance(event, PeerLost):
            self.cut.add(event.peer)
        elif isinstance(event, PeerFound):
            self.cut.discard(event.peer)
        return []

    def keepsake(self) -> bytes:
        return self.steps.to_bytes(8, "little")

    def _step(self) -> Combine:
        row = self.row() if (self.steps + 1) % self.every == 0 else {}
        others, own = {_mail(peer): weight for peer, weight in row.items()}, 1.0 - sum(row.values())
        return Combine(MODEL, {MODEL: own, **others, UPDATE: 1.0}, {UPDATE: own, **others})

    def _send(self) -> list[Effect]:
        there = [peer for peer in self.around.neighbours if peer not in self.cut]
        return [Send(peer, Message("mail", round=self.steps), MODEL) for peer in there]

    def row(self) -> dict[int, float]:
        """w_ij of this moment; the rest is the node's own."""
        around, own, mine = self.around, 1.0 / (len(self.around.neighbours) + 1), max(1, self.steps)
        degrees = dict(zip(around.neighbours, around.degrees, strict=True))
        there = {peer: count for peer, count in self.theirs.items() if peer not in self.cut}
        return {peer: min(own, count / mine / (degrees[peer] + 1)) for peer, count in there.items()}


def _mail(peer: int) -> str:
    return f"mail/{peer}"
