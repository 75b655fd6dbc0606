"""Token SAGA: a walk that carries the mean of all nodes' gradients, so that unlike data do not pull it about.

Hendrikx, "A principled framework for the design and analysis of token algorithms" (2022), and MC-SAG of Even,
"Stochastic gradient descent under Markovian sampling schemes" (2023), which bring the variance reduction of SAGA and
SAG to a random walk. At node v:

    saga:   z ← z − η (∇f_v(z) − ĝ_v + ḡ),    then ḡ ← ḡ + (∇f_v(z) − ĝ_v) / V,    ĝ_v ← ∇f_v(z)
    sag:    ḡ first, then z ← z − η ḡ

ĝ_v stays at the node, ḡ travels with the walk: ḡ is the mean of all ĝ, always (0 where no walk was yet). At the optimum
ḡ = 0 and ∇f_v = ĝ_v everywhere, so it stays there; a plain walk never does. Each of several walks has its own ḡ and at
every node a ĝ; they are mixed as in Multi-Walk. (The abstracts were read; how walks move and start is from memory.)

`local`: all of the study's local steps, with ḡ − ĝ_v added to every gradient; ĝ_v becomes the mean of the gradients on
the way, told from how far the steps went, as in SCAFFOLD. One local step of plain SGD is `saga` above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import GRADIENT, UPDATE, Combine, Differentiate, Effect, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import Counted, NotingRule, WalkRule, walk_slot
from walktalk.protocols.self_description import InLabel
from walktalk.protocols.walks.multi_walk import AlgorithmOne

MEAN = "mean"  # ḡ, the kind of its messages and its slots


@dataclass(frozen=True)
class TokenSaga(Walks):
    """A walk that carries the mean of all nodes' gradients and corrects its steps by it, for unlike data.

    Args:
        walks: how many, R.
        estimate: how a step is estimated: saga without bias, sag with less noise.
        local: whether all local steps of the study are taken, each corrected, in place of one step along the gradient
            of as many batches; saga with plain SGD only (momentum: 0).
    """

    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    estimate: Literal["saga", "sag"] = "saga"
    local: bool = False
    name: ClassVar[str] = "token_saga"
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mc_sag": {"estimate": "sag"}}
    extras: ClassVar[tuple[str, ...]] = (MEAN,)
    paper: ClassVar[str] = "Hendrikx 2022; Even 2023 (MC-SAG)"
    keeps: ClassVar[str] = "the walk and the mean of all gradients with it; every node its own last gradient"
    sends: ClassVar[str] = "two models a hop"
    guarantees: ClassVar[str] = (
        "the carried mean is that of the nodes' gradients, always; exact with a constant rate on unlike nodes"
    )
    colour: ClassVar[str] = "#B8336A"
    needs_own_gradients: ClassVar[str] = "corrects every gradient of a training"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local and self.estimate == "sag":
            raise SpecError("local: true needs estimate: saga; sag has no local steps")

    @property
    def title(self) -> str:
        return f"token {self.estimate.upper()}" + (f", {self.walks} walks" if self.walks > 1 else "")

    @property
    def plain_sgd_only(self) -> str:
        return "tells gradients from how far a training went, which a momentum makes longer" if self.local else ""

    def rule(self, around: NetworkView) -> WalkRule:
        return Corrected(around, self)


class Corrected(NotingRule, AlgorithmOne):
    """Keeps ĝ_v of every walk at the node, and brings ḡ of the walks that are here up to date."""

    __slots__ = ("settings",)

    extras: ClassVar[tuple[str, ...]] = (MEAN,)

    def __init__(self, around: NetworkView, settings: TokenSaga) -> None:
        super().__init__(around)
        self.settings = settings

    def visit(self, walk: int, begins: bool, noted: bool) -> list[Effect]:
        z, mean, last, correction = slots_of(walk)
        zeros = [Combine(slot, {z: 0.0}) for slot in [mean] * begins + [last] * (not noted)]  # nothing is known yet
        if not self.settings.local:
            return [*zeros, Differentiate(z, walk)]
        return [*zeros, Combine(correction, {mean: 1.0, last: -1.0}), Train(z, walk, correction=correction)]

    def trained(self, event: Trained, counted: Counted) -> list[Effect]:
        (z, mean, last, correction), lr = slots_of(event.walk), event.lr
        if self.settings.local and not lr:  # what was moved by no learning rate says nothing of gradients
            return [apply_update(z)]
        new, share = correction if self.settings.local else GRADIENT, 1.0 / self.nodes
        note = [Combine(mean, {mean: 1.0, new: share, last: -share}), Combine(last, {new: 1.0})]
        if self.settings.local:  # the mean of the gradients on the way is −(change) / (K η) − correction
            return [Combine(new, {UPDATE: -1.0 / (lr * event.steps), new: -1.0}), *note, apply_update(z)]
        if self.settings.estimate == "sag":
            return [*note, Combine(z, {z: 1.0, mean: -lr}, {GRADIENT: 1.0})]
        return [Combine(z, {z: 1.0, GRADIENT: -lr, last: lr, mean: -lr}, {GRADIENT: 1.0}), *note]

    def given_up(self, walk: int) -> list[Effect]:
        return [apply_update(walk_slot(walk))] if self.settings.local else []


def slots_of(walk: int) -> tuple[str, str, str, str]:
    """The slots of z, ḡ and ĝ_v, and of ḡ − ĝ_v while the walk is trained, which is the new gradient after that."""
    return walk_slot(walk), walk_slot(walk, MEAN), f"noted/{walk}", f"correction/{walk}"
