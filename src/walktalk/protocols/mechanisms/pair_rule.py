"""What an algorithm in pairs says: its settings, its messages, and a rule for what happens to a node's models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, ClassVar

from annotated_types import Gt

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Arrival, Effect, Train, absorb, apply_update
from walktalk.protocols.machine import Context, NetworkView, Protocol
from walktalk.protocols.self_description import InLabel, Law

MODEL = "model"
OFFER, ANSWER, CLOSED = "offer", "answer", "closed"  # kinds of messages; closed: this exchange is long over


@cache
def pair_messages(once: bool, resilient: bool) -> Mapping[str, Arrival]:
    """How offers and answers arrive.

    - `once`: whether a model that comes is mixed into one slot only.
    - `resilient`: whether an exchange may be over for one side alone.
    """
    models = {kind: Arrival(f"{kind}/{{sender}}", once=once) for kind in (OFFER, ANSWER)}
    return {**models, CLOSED: Arrival()} if resilient else models


@dataclass(frozen=True)
class InPairs(Protocol):
    """An algorithm whose nodes exchange models in pairs.

    Args:
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for the first answers before asking again; then it is known how long they take.
    """

    resilient: bool | None = field(default=None, kw_only=True)
    patience: Annotated[float, Gt(0), InLabel("")] = field(default=10.0, kw_only=True)
    elastic: ClassVar[bool] = True
    family: ClassVar[str] = "gossip"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    mixes_once: ClassVar[bool] = True  # whether a model that comes is mixed into one slot only

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise SpecError(f"patience: {self.patience} is not possible; a number above 0 is needed")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return pair_messages(self.mixes_once, bool(self.resilient))

    @property
    def waits(self) -> float | None:
        """Seconds to wait for the first answers; None: nothing is ever lost."""
        return self.patience if self.resilient else None


class PairRule:
    """What an algorithm in pairs does with a node's models; as it stands: train, and average by halves.

    The model that is trained, sent and put out is in slot `MODEL`.
    """

    __slots__ = ("random_steps", "steps")

    def __init__(self, steps: int = 0, random_steps: bool = False) -> None:
        """
        - `steps`: local steps of a training; 0: as many as the study says.
        - `random_steps`: whether those are only the mean, of a geometric law.
        """
        self.steps, self.random_steps = steps, random_steps

    def begin(self) -> list[Effect]:
        """A model has come into `MODEL`: the initial one, a neighbour's, or the one that the node died with."""
        return []

    def drift(self, elapsed: float) -> list[Effect]:
        """What happens by itself in so many times that a training takes; asked for in free loops."""
        return []

    def train(self, context: Context) -> Train:
        """What a node trains next, and from which slot."""
        return Train(MODEL, steps=geometric(self.steps, context) if self.random_steps else self.steps)

    def learn(self, moved: bool) -> list[Effect]:
        """A training is done; `moved`: others were mixed in meanwhile, and the update is for the model of now."""
        return [apply_update(MODEL, moved)]

    def meet(self, new: str, old: str, weight: float) -> list[Effect]:
        """An exchange: the other's model is in one slot, this node's own, as the other saw it, in the other."""
        return [absorb(MODEL, MODEL, weight, new, old)]

    def weight(self, around: NetworkView, peer: int) -> float:
        """How much of the difference to a partner is taken, the same on both sides: the place where sites weigh."""
        return 0.5


def geometric(mean: int, context: Context) -> int:
    """1, 2, 3 … with that mean: how often one tries until something of chance 1/mean happens."""
    return 1 if mean <= 1 else 1 + int(math.log(1.0 - context.random.random()) / math.log(1.0 - 1.0 / mean))


def random_one(peers: Sequence[int], context: Context) -> int | None:
    """One of these nodes at random; None where there is none."""
    return peers[int(context.random.random() * len(peers))] if peers else None
