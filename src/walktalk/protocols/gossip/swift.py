"""SWIFT (Bornstein, Rabbani, Wang, Bedi, Huang 2023): mailboxes, and nobody ever waits.

    every step:        g_i at x_i; then x_i ← Σ_j w_ij m_j − η g_i in every s-th step, else x_i ← x_i − η g_i
    after every step:  x_i is put into the mailboxes of all neighbours, over what was there

m_j is what lies in the mailbox of neighbour j, m_i = x_i. Only the node that has just trained changes, so mixing is not
doubly stochastic; but if node i is the one with probability p_i, E[W] is when p_i w_ij = p_j w_ji. How often each
trains is told along with its model, and the weights are those of Metropolis and Hastings for p:

    w_ij = min(1/(d_i + 1), (p_j/p_i)/(d_j + 1))

With equal speeds they are the usual ones. (Mailboxes, influence p and a doubly stochastic E[W] are the paper's; weights
by measured speeds, in the form of Metropolis, are ours; the order of the step is from memory of the paper.) The weight
of a neighbour that is lost stays with the node itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import INITIAL, UPDATE, Arrival, Combine, Effect, Forget, Message, Send
from walktalk.protocols.events import Received
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.pushes import MODEL, Pushes, PushRule

MESSAGES = {"mail": Arrival("mail/{sender}", latest=True)}


@dataclass(frozen=True)
class SWIFT(Pushes):
    """Every node trains at its own speed and averages with whatever its neighbours sent last.

    Args:
        every: average in every so many-th step, s.
    """

    every: Annotated[int, Ge(1)] = 1
    name: ClassVar[str] = "swift"
    paper: ClassVar[str] = "Bornstein, Rabbani, Wang, Bedi, Huang, ICLR 2023"
    keeps: ClassVar[str] = "a model and a mailbox for each neighbour at every node"
    sends: ClassVar[str] = "a model to every neighbour after every training"
    guarantees: ClassVar[str] = "nobody waits; mixing is doubly stochastic in expectation"
    title: ClassVar[str] = "SWIFT"
    description: ClassVar[str] = "Every node trains on and averages with whatever its neighbours sent last; none waits."
    colour: ClassVar[str] = "#5499C7"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def rule(self, around: NetworkView) -> PushRule:
        return Mailboxes(around, self.every)


class Mailboxes(PushRule):
    """Averages with what lies in the mailboxes; at the start, those hold the initial model, with which all begin."""

    __slots__ = ("every", "steps", "theirs")

    def __init__(self, around: NetworkView, every: int) -> None:
        super().__init__(around)
        self.every = every
        self.steps = 0  # trainings of this node, without the one that has just ended: others' is not known yet either
        self.theirs: dict[int, int] = {}  # neighbour in whose mailbox something lies -> its trainings, as far as known

    def start(self) -> list[Effect]:
        self.theirs = dict.fromkeys(self.around.neighbours, 1)
        return [Combine(_mail(peer), {INITIAL: 1.0}) for peer in self.theirs]

    def receive(self, event: Received) -> list[Effect]:
        if event.message.round < 1:
            raise ValueError(f"{event.sender} has not trained yet")
        self.theirs[event.sender] = event.message.round
        return []

    def first(self) -> list[Effect]:
        """The first mail, and how far its sender is."""
        peer, self.steps = next(iter(self.theirs.items()))
        return [Combine(MODEL, {_mail(peer): 1.0})]

    def learn(self) -> list[Effect]:
        row = self.row() if (self.steps + 1) % self.every == 0 else {}
        self.steps += 1
        others, own = {_mail(peer): weight for peer, weight in row.items()}, 1.0 - sum(row.values())
        return [Combine(MODEL, {MODEL: own, **others, UPDATE: 1.0}, {UPDATE: own, **others})]

    def push(self, peers: Sequence[int], context: Context) -> list[Effect]:
        return [Send(peer, Message("mail", round=self.steps), MODEL) for peer in peers]

    def forget(self, peer: int) -> list[Effect]:
        return [Forget(_mail(peer))] if self.theirs.pop(peer, None) else []

    def keepsake(self) -> bytes:
        return self.steps.to_bytes(8, "little")

    def remember(self, memory: bytes) -> None:
        self.steps = int.from_bytes(memory, "little")

    def row(self) -> dict[int, float]:
        """w_ij of this moment; the rest is the node's own."""
        around, own, mine = self.around, 1.0 / (len(self.around.neighbours) + 1), max(1, self.steps)
        degrees = dict(zip(around.neighbours, around.degrees, strict=True))
        there = {peer: count for peer, count in self.theirs.items() if peer not in self.cut}
        return {peer: min(own, count / mine / (degrees[peer] + 1)) for peer, count in there.items()}


def _mail(peer: int) -> str:
    return f"mail/{peer}"
