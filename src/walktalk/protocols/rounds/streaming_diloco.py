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
from walktalk.protocols.effects import MEMBER, Decode, Effect, Forget, Record, Train, apply_update
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.fragments import Fragments, codec_of
from walktalk.protocols.rounds.resilient_server import ABSENCE
from walktalk.protocols.rounds.resilient_streaming import StreamingClient, StreamingServer
from walktalk.protocols.server import CHANGE, MODEL, ServerProtocol


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
        count = self.fragments
        kinds = [(f"{way}_{p}", codec_of(p, count)) for p in range(count) for way in ("up", "down")]
        models = {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec) for kind, codec in kinds}
        return {**models, **ABSENCE} if self.resilient else models

    def machine(self, surroundings: Surroundings) -> Machine:
        fragments = Fragments(self.fragments, self.alpha, self.outer_lr, self.outer_momentum)
        parts = surroundings, fragments, Train(MODEL, steps=self.steps), self.delay, self.server
        if not self.resilient:
            return StreamingNode(*parts)
        is_server = surroundings.node == self.server
        return StreamingServer(*parts, self.patience) if is_server else StreamingClient(*parts)


class StreamingNode(Machine):
    """One node in a world without failures; the server is one of them, and gathers beside its own trainings."""

    __slots__ = ("around", "came", "delay", "done", "fragments", "here", "server", "train", "training")

    def __init__(self, around: Surroundings, fragments: Fragments, train: Train, delay: int, server: int) -> None:
        self.around, self.fragments, self.train = around, fragments, train
        self.delay, self.server = delay, server
        self.done = 0  # trainings of this node
        self.here: set[int] = set()  # trainings whose fragment of the server is here, and not mixed in yet
        self.training = False
        self.came: dict[int, list[str]] = {}  # at the server: training -> slots with everybody's change after it

    @property
    def is_server(self) -> bool:
        """Whether this node is it."""
        return self.around.node == self.server

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return [*self._received(event), *self._train_on()]
        if isinstance(event, Trained):
            self.training = False
            self.done += 1
            learn: list[Effect] = [apply_update(MODEL), Record(MEMBER, self.around.node, MODEL)]
            return [*learn, *self._show(self.done - 1), *self._train_on()]
        if isinstance(event, Started):
            start = self.fragments.begin(self.around.node)
            return [*start, *(self.fragments.put_out() if self.is_server else []), *self._train_on()]
        return []

    def _train_on(self) -> list[Effect]:
        """Mix in the fragment whose time has come, if it is here, and train on."""
        due = self.done - 1 - self.delay
        if self.training or (due >= 0 and due not in self.here):
            return []
        mixed: list[Effect] = []
        if due >= 0:
            self.here.remove(due)
            mixed = self.fragments.mix(self.fragments.of(due), self.around.node, 1.0 - self.fragments.alpha)
        self.training = True
        return [*mixed, self.train]

    def _show(self, training: int) -> list[Effect]:
        """What this node has changed of a fragment."""
        if not self.is_server:
            return self.fragments.send_up(training, self.server)
        p, slot = self.fragments.of(training), f"mine/{training}"
        return [self.fragments.change(p), *self.fragments.cut(CHANGE, p, slot), *self._gather(training, slot)]

    def _received(self, event: Received) -> list[Effect]:
        peer, kind, training = event.sender, event.message.kind, event.message.round
        p = self.fragments.of(training)
        awaited = f"up_{p}" if self.is_server else f"down_{p}"
        if kind != awaited or not (self.is_server or peer == self.server):
            raise ValueError(f"{peer} sends {kind!r} of training {training}")
        if not self.is_server:
            self.here.add(training)
            return self.fragments.take_down(training, event.slot)
        slot = f"new/{training}/{peer}"
        return [Decode(event.slot, slot), Forget(event.slot), *self._gather(training, slot)]

    def _gather(self, training: int, slot: str) -> list[Effect]:
        """At the server: once everybody's is here, an outer step of that fragment."""
        came = self.came.setdefault(training, [])
        if slot in came:
            raise ValueError(f"a change after training {training} came twice")
        came.append(slot)
        if len(came) < self.around.nodes:
            return []
        self.here.add(training)
        others = [peer for peer in range(self.around.nodes) if peer != self.around.node]
        return self.fragments.step(training, self.came.pop(training), others)
