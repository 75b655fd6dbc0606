"""Streaming DiLoCo (Douillard et al. 2025): DiLoCo in fragments, whose exchange overlaps with the training.

The model is cut into P fragments. After every local training one of them is exchanged, each in its turn, so each once
in P trainings; δ trainings later what came of it is mixed in, which all have gone on training meanwhile:

    after training k, with p = k mod P:   Δ_i = θ_i,p − φ_p,    Δ̄ = mean of all Δ_i
    at the server:                        m_p ← β m_p + Δ̄,    φ_p ← φ_p + η (Δ̄ + β m_p)          (Nesterov)
    after training k + δ:                 θ_i,p ← α θ_i,p + (1 − α) φ_p

So a P-th of a model is on the way at a time, and nobody waits unless it takes longer than δ trainings. Fragment p has
every P-th parameter, from the p-th on; the paper takes every P-th layer. P = 1, δ = 0 and α = 0 is DiLoCo. (Fragments
in turn, the delay and α are the paper's; the order of the steps is from memory of it.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, Lt

from walktalk.errors import SpecError
from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Combine,
    Decode,
    Effect,
    Encode,
    Forget,
    Record,
    Send,
    Train,
    apply_update,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.server import CHANGE, MODEL, ServerProtocol

PACKED, OWN, MEAN, WHOLE = "packed", "own", "mean", "whole"  # a code, θ_p, Δ̄, φ


@dataclass(frozen=True)
class StreamingDiLoCo(ServerProtocol):
    """DiLoCo that exchanges a fragment of the model after each training, and trains on meanwhile.

    Args:
        fragments: how many there are, P; each is exchanged after every P-th training.
        delay: how many trainings later what came of it is mixed in, δ; fewer than there are fragments.
        alpha: how much of its own a node keeps then, α.
        outer_lr: the server's learning rate, η.
        outer_momentum: the server's momentum, β.
    """

    fragments: Annotated[int, Ge(1)] = 4
    delay: Annotated[int, Ge(0)] = 1
    alpha: Annotated[float, Ge(0), Le(1)] = 0.5
    outer_lr: Annotated[float, Gt(0)] = 0.4
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    name: ClassVar[str] = "streaming_diloco"
    paper: ClassVar[str] = "Douillard et al. 2025"
    keeps: ClassVar[str] = "a model and all fragments of the server's at every node, momenta at the server"
    sends: ClassVar[str] = "a fragment of the model to each node and one back after every training"
    guarantees: ClassVar[str] = "DiLoCo for one fragment without delay, of which nothing is kept"
    title: ClassVar[str] = "Streaming DiLoCo"
    description: ClassVar[str] = "DiLoCo that exchanges a fragment of the model at a time, while all train on."
    colour: ClassVar[str] = "#B9770E"

    def __post_init__(self) -> None:
        if self.delay >= self.fragments and (self.delay, self.fragments) != (0, 1):
            raise SpecError(
                f"delay: {self.delay} is not possible with {self.fragments} fragments; take fewer than those"
            )

    @property
    def messages(self) -> Mapping[str, Arrival]:
        kinds = [(f"{way}_{p}", self.codec(p)) for p in range(self.fragments) for way in ("up", "down")]
        return {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec) for kind, codec in kinds}

    def codec(self, fragment: int) -> str:
        """What cuts a fragment out."""
        return f"part({fragment}, {self.fragments})"

    def machine(self, surroundings: Surroundings) -> Machine:
        return StreamingNode(surroundings, self)


class StreamingNode(Machine):
    """One node; the server is one of them, and gathers beside its own trainings."""

    __slots__ = ("around", "came", "done", "here", "moving", "settings", "training")

    def __init__(self, around: Surroundings, settings: StreamingDiLoCo) -> None:
        self.around, self.settings = around, settings
        self.done = 0  # trainings of this node
        self.here: set[int] = set()  # trainings whose fragment of the server is here, and not mixed in yet
        self.training = False
        self.came: dict[int, list[str]] = {}  # at the server: training -> slots with everybody's change after it
        self.moving: set[int] = set()  # at the server: fragments that have a momentum

    @property
    def is_server(self) -> bool:
        """Whether this node is it."""
        return self.around.node == self.settings.server

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return [*self._received(event), *self._train_on()]
        if isinstance(event, Trained):
            self.training = False
            self.done += 1
            learn: list[Effect] = [apply_update(MODEL), Record(MEMBER, self.around.node, MODEL)]
            return [*learn, *self._show(self.done - 1), *self._train_on()]
        if isinstance(event, Started):
            start: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.around.node, MODEL)]
            cut = [effect for p in range(self.settings.fragments) for effect in self._cut(INITIAL, p, _outer(p))]
            return [*start, *cut, *(self._put_out() if self.is_server else []), *self._train_on()]
        return []

    def _fragment(self, training: int) -> int:
        return training % self.settings.fragments

    def _cut(self, slot: str, fragment: int, into: str) -> list[Effect]:
        """A fragment alone, zeros around it."""
        return [Encode(slot, PACKED, self.settings.codec(fragment)), Decode(PACKED, into), Forget(PACKED)]

    def _train_on(self) -> list[Effect]:
        """Mix in the fragment whose time has come, if it is here, and train on."""
        due = self.done - 1 - self.settings.delay
        if self.training or (due >= 0 and due not in self.here):
            return []
        mixed: list[Effect] = []
        if due >= 0:
            self.here.remove(due)
            p, new = self._fragment(due), 1.0 - self.settings.alpha
            mix = Combine(MODEL, {MODEL: 1.0, _outer(p): new, OWN: -new})
            mixed = [*self._cut(MODEL, p, OWN), mix, Record(MEMBER, self.around.node, MODEL)]
        self.training = True
        return [*mixed, Train(MODEL, steps=self.settings.steps)]

    def _show(self, training: int) -> list[Effect]:
        """What this node has changed of a fragment; its statistics are the trained model's."""
        p, settings = self._fragment(training), self.settings
        change = Combine(CHANGE, {MODEL: 1.0, _outer(p): -1.0}, {MODEL: 1.0})
        if self.is_server:
            slot = f"mine/{training}"
            return [change, *self._cut(CHANGE, p, slot), *self._gather(training, slot)]
        send = Send(settings.server, Message(f"up_{p}", round=training), PACKED)
        return [change, Encode(CHANGE, PACKED, settings.codec(p)), send, Forget(PACKED)]

    def _received(self, event: Received) -> list[Effect]:
        peer, kind, training = event.sender, event.message.kind, event.message.round
        p, new = self._fragment(training), f"new/{training}/{peer}"
        awaited = f"up_{p}" if self.is_server else f"down_{p}"
        if kind != awaited or not (self.is_server or peer == self.settings.server):
            raise ValueError(f"{peer} sends {kind!r} of training {training}")
        take: list[Effect] = [Decode(event.slot, new), Forget(event.slot)]
        if self.is_server:
            return [*take, *self._gather(training, new)]
        self.here.add(training)
        return [*take, Combine(_outer(p), {new: 1.0}), Forget(new)]

    # -- the server -----------------------------------------------------------------------------------------------

    def _gather(self, training: int, slot: str) -> list[Effect]:
        """Once everybody's is here, an outer step of that fragment."""
        came = self.came.setdefault(training, [])
        if slot in came:
            raise ValueError(f"a change after training {training} came twice")
        came.append(slot)
        if len(came) < self.around.nodes:
            return []
        self.here.add(training)
        p, eta, beta = self._fragment(training), self.settings.outer_lr, self.settings.outer_momentum
        kept = {_momentum(p): beta} if p in self.moving else {}
        self.moving.add(p)
        step: list[Effect] = [
            Combine(MEAN, dict.fromkeys(self.came.pop(training), 1.0 / self.around.nodes)),
            Combine(_momentum(p), {**kept, MEAN: 1.0}),
            Combine(_outer(p), {_outer(p): 1.0, MEAN: eta, _momentum(p): eta * beta}, {MEAN: 1.0}),
            Encode(_outer(p), PACKED, self.settings.codec(p)),
        ]
        others = [peer for peer in range(self.around.nodes) if peer != self.around.node]
        sends = [Send(peer, Message(f"down_{p}", round=training), PACKED) for peer in others]
        return [*step, *sends, Forget(PACKED), *(Forget(one) for one in came), *self._put_out()]

    def _put_out(self) -> list[Effect]:
        """All fragments together are the model that the algorithm puts out."""
        whole = {_outer(p): 1.0 for p in range(self.settings.fragments)}
        return [Combine(WHOLE, whole), Record(AGGREGATE, 0, WHOLE)]


def _outer(fragment: int) -> str:
    """The slot of φ_p."""
    return f"outer/{fragment}"


def _momentum(fragment: int) -> str:
    """The slot of m_p."""
    return f"momentum/{fragment}"
