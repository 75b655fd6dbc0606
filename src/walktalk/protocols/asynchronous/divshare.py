"""DivShare (Biswas, Kermarrec, Pires, Sharma, de Vos 2025): fragments of models to random nodes, and nobody waits.

    before a training:  x_i,p ← mean of x_i,p and of all x_j,p that came since the last one,    for every fragment p
    after it:           each of P fragments of x_i goes to J neighbours, drawn for each fragment anew

Different parts of a model go to different nodes, so each node hears more others for the bytes of J models, and a slow
link carries a fragment while it would not carry a model. What is still waiting when the next training is done is not
sent any more, and of two of a sender the later counts, so slow links get less. Fragment p has every P-th parameter,
from the p-th on. Where all fragments go to all, it is gossip that does not wait, whatever P is. The mean of all models
is kept in expectation at best. (From memory of the paper; its fragments, random receivers per fragment and the order of
a round are the abstract's and the authors' code's, sacs-epfl/divshare; J = log₂ V is what they recommend.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.demands import FIXED, Demand
from walktalk.protocols.effects import (
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
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message

MODEL, OWN = "model", "own"  # x_i, and a fragment of it with zeros around


@dataclass(frozen=True)
class DivShare(Protocol):
    """Every node trains on, and sends each fragment of its model to a few random neighbours.

    Args:
        fragments: how many there are, P.
        peers: how many nodes each of them goes to, J; 0: the logarithm of how many there are.
        steps: local steps of a training; 0: as many as the study says.
    """

    fragments: Annotated[int, Ge(1)] = 10
    peers: Annotated[int, Ge(0)] = 0
    steps: Annotated[int, Ge(0)] = 0
    name: ClassVar[str] = "divshare"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Biswas, Kermarrec, Pires, Sharma, de Vos, AAAI 2025"
    keeps: ClassVar[str] = "a model at every node, and the last fragments of others until the next training"
    sends: ClassVar[str] = "every fragment of the model to J random neighbours after every training"
    guarantees: ClassVar[str] = "nobody waits; every parameter of a model is a mean of others' of the same place"
    title: ClassVar[str] = "DivShare"
    description: ClassVar[str] = "Nodes train on and send fragments of their models to random neighbours; none waits."
    colour: ClassVar[str] = "#A569BD"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED,)
    survives_failures: ClassVar[bool] = True  # who waits for nobody does not miss anybody

    @property
    def messages(self) -> Mapping[str, Arrival]:
        kinds = {f"fragment_{p}": self.codec(p) for p in range(self.fragments)}
        return {kind: Arrival(f"{kind}/{{sender}}", codec=codec, latest=True) for kind, codec in kinds.items()}

    def codec(self, fragment: int) -> str:
        """What cuts a fragment out."""
        return f"part({fragment}, {self.fragments})"

    def machine(self, surroundings: Surroundings) -> Machine:
        return Fragments(surroundings, self)


class Fragments(Machine):
    """One node."""

    __slots__ = ("around", "came", "cut", "each", "settings")

    def __init__(self, around: Surroundings, settings: DivShare) -> None:
        self.around, self.settings = around, settings
        self.each = settings.peers or max(1, round(math.log2(around.nodes)))  # receivers of a fragment
        self.came: dict[int, dict[int, None]] = {}  # fragment -> who sent it since the last training
        self.cut: set[int] = set()  # neighbours that are lost

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received(sender, message, slot):
                if sender not in self.around.neighbours:
                    raise ValueError(f"{sender} is no neighbour")
                fragment = int(message.kind.removeprefix("fragment_"))
                self.came.setdefault(fragment, {})[sender] = None
                return [Decode(slot, slot)]  # codes have slots of their own, of the same names
            case Trained():
                show = [apply_update(MODEL), self._record()]
                return [*show, *self._share(outside), *self._train_on()]
            case Started():
                return [Combine(MODEL, {INITIAL: 1.0}), self._record(), *self._train_on()]
            case Rejoined():
                return self._train_on()
            case PeerLost(peer):
                self.cut.add(peer)
            case PeerFound(peer):
                self.cut.discard(peer)
        return []

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _train_on(self) -> list[Effect]:
        """Take in what came, and train."""
        mixed = [effect for fragment in sorted(self.came) for effect in self._mix(fragment, list(self.came[fragment]))]
        self.came.clear()
        return [*mixed, self._record(), Train(MODEL, steps=self.settings.steps)]

    def _mix(self, fragment: int, senders: list[int]) -> list[Effect]:
        """The mean of one fragment, mine among them; all else stays."""
        code, share = f"code/{fragment}", 1.0 / (len(senders) + 1)
        slots = [f"fragment_{fragment}/{sender}" for sender in senders]
        mean = {MODEL: 1.0, OWN: share - 1.0, **dict.fromkeys(slots, share)}
        cut: list[Effect] = [Encode(MODEL, code, self.settings.codec(fragment)), Decode(code, OWN), Forget(code)]
        return [*cut, Combine(MODEL, mean), Forget(OWN), *(Forget(slot) for slot in slots)]

    def _share(self, outside: Outside) -> list[Effect]:
        """All fragments, each to others, in any order: what is cut short is not always the same part."""
        there = [peer for peer in self.around.neighbours if peer not in self.cut]
        codes = [f"code/{fragment}" for fragment in range(self.settings.fragments)]
        pairs = [
            (fragment, to)
            for fragment in range(self.settings.fragments)
            for to in outside.random.sample(there, min(self.each, len(there)))
        ]
        outside.random.shuffle(pairs)
        cut: list[Effect] = [Encode(MODEL, code, self.settings.codec(fragment)) for fragment, code in enumerate(codes)]
        sends = [Send(to, Message(f"fragment_{fragment}"), codes[fragment]) for fragment, to in pairs]
        return [*cut, *sends, *(Forget(code) for code in codes)]
