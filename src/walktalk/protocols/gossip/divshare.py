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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import Arrival, Combine, Decode, Effect, Encode, Forget, Message, Send, Train, cut_out
from walktalk.protocols.events import Received
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.pushes import MODEL, Pushes, PushRule

OWN = "own"  # a fragment of x_i with zeros around


@dataclass(frozen=True)
class DivShare(Pushes):
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
    paper: ClassVar[str] = "Biswas, Kermarrec, Pires, Sharma, de Vos, AAAI 2025"
    keeps: ClassVar[str] = "a model at every node, and the last fragments of others until the next training"
    sends: ClassVar[str] = "every fragment of the model to J random neighbours after every training"
    guarantees: ClassVar[str] = "nobody waits; every parameter of a model is a mean of others' of the same place"
    title: ClassVar[str] = "DivShare"
    description: ClassVar[str] = "Nodes train on and send fragments of their models to random neighbours; none waits."
    colour: ClassVar[str] = "#A569BD"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        kinds = {f"fragment_{p}": self.codec(p) for p in range(self.fragments)}
        return {kind: Arrival(f"{kind}/{{sender}}", codec=codec, latest=True) for kind, codec in kinds.items()}

    def codec(self, fragment: int) -> str:
        """What cuts a fragment out."""
        return f"part({fragment}, {self.fragments})"

    def rule(self, around: NetworkView) -> PushRule:
        return Fragments(around, self)


class Fragments(PushRule):
    """Sends each fragment to others, and before a training takes the mean of each with all that came of it."""

    __slots__ = ("came", "settings")

    def __init__(self, around: NetworkView, settings: DivShare) -> None:
        super().__init__(around)
        self.settings = settings
        self.came: dict[int, dict[int, None]] = {}  # fragment -> who sent it since the last training

    def receive(self, event: Received) -> list[Effect]:
        fragment = int(event.message.kind.removeprefix("fragment_"))
        self.came.setdefault(fragment, {})[event.sender] = None
        return [Decode(event.slot, event.slot)]  # codes have slots of their own, of the same names

    def first(self) -> list[Effect]:
        """All fragments together, one of each, as soon as there are all."""
        if len(self.came) < self.settings.fragments:
            return []
        return [Combine(MODEL, {_slot(fragment, next(iter(senders))): 1.0 for fragment, senders in self.came.items()})]

    def prepare(self) -> list[Effect]:
        """Mix each fragment that has come with the node's own, by the mean of all; what has not come stays as it is."""
        mixed: list[Effect] = []
        for p, senders in sorted(self.came.items()):
            slots, share = [_slot(p, sender) for sender in senders], 1.0 / (len(senders) + 1)
            mean = Combine(MODEL, {MODEL: 1.0, OWN: share - 1.0, **dict.fromkeys(slots, share)})
            mixed += [*cut_out(MODEL, OWN, self.settings.codec(p)), mean, *map(Forget, (OWN, *slots))]
        self.came.clear()
        return mixed

    def train(self) -> Train:
        return Train(MODEL, steps=self.settings.steps)

    def push(self, peers: Sequence[int], context: Context) -> list[Effect]:
        """All fragments, each to others, in any order: what is cut short is not always the same part."""
        fragments = range(self.settings.fragments)
        each = min(self.settings.peers or max(1, round(math.log2(self.around.nodes))), len(peers))
        pairs = [(p, to) for p in fragments for to in context.random.sample(peers, each)]
        context.random.shuffle(pairs)
        sends = [Send(to, Message(f"fragment_{p}"), _code(p)) for p, to in pairs]
        encoded = [Encode(MODEL, _code(p), self.settings.codec(p)) for p in fragments]
        return [*encoded, *sends, *(Forget(_code(p)) for p in fragments)]


def _slot(fragment: int, sender: int) -> str:
    return f"fragment_{fragment}/{sender}"


def _code(fragment: int) -> str:
    return f"code/{fragment}"
