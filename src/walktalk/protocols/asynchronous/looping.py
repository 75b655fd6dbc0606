"""What all protocols with two free loops a node share: their settings, and whether they survive failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt

from walktalk.protocols.asynchronous.free_loops import FreeLoops, Mixer, Training
from walktalk.protocols.asynchronous.resilient_loops import CLOSING, ResilientLoops
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.self_description import InLabel


@dataclass(frozen=True)
class Looping(Protocol):
    """A protocol whose nodes train on and on and talk beside it.

    Args:
        steps: local steps of a training; 0: as many as the study says.
        talks: exchanges that a node begins for each training, on average.
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for the first answers before talking to others; then it is known how long they take.
    """

    steps: Annotated[int, Ge(0)] = 0
    talks: Annotated[float, Gt(0)] = 1.0
    resilient: bool | None = field(default=None, kw_only=True)
    patience: Annotated[float, Gt(0), InLabel("")] = field(default=10.0, kw_only=True)

    def node(self, around: Surroundings, mixer: Mixer) -> Machine:
        """One node whose models do what a mixer says."""
        loop = Training(around, mixer, self.steps, self.talks)
        return ResilientLoops(loop, self.patience) if self.resilient else FreeLoops(loop)

    def kinds(self, plain: Mapping[str, Arrival]) -> Mapping[str, Arrival]:
        """The messages of the plain form, and those that are needed where something is lost."""
        return {**plain, **CLOSING} if self.resilient else plain
