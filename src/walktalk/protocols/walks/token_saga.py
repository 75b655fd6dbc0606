"""Token SAGA: a walk that carries the mean of all nodes' gradients, so that unlike data do not pull it about.

Hendrikx, "A principled framework for the design and analysis of token algorithms" (2022), and MC-SAG of Even,
"Stochastic gradient descent under Markovian sampling schemes" (2023), which both bring the variance reduction of SAGA
(Defazio, Bach, Lacoste-Julien 2014) and SAG (Le Roux, Schmidt, Bach 2012) to a random walk. At node v:

    saga:   z ← z − η (∇f_v(z) − ĝ_v + ḡ),    then ḡ ← ḡ + (∇f_v(z) − ĝ_v) / V,    ĝ_v ← ∇f_v(z)
    sag:    ḡ first, then z ← z − η ḡ

ĝ_v stays at the node, ḡ travels with the walk: ḡ is the mean of all ĝ, always (0 where no walk was yet). At the optimum
ḡ = 0 and ∇f_v = ĝ_v at every node, so it stays there; a plain walk never does. Two models a hop, R models at a node.

The rule of a step is SAGA's and SAG's own; that the abstracts of the two papers mean it is read, how their walks move
and start is from memory of the papers. With several walks every walk has its own ḡ and every node a ĝ for each, so the
law holds for each; models are mixed at the aggregator as in Multi-Walk, which moves z and none of these.

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
from walktalk.protocols.mechanisms.tokens.rule import NotingRule, WalkRule, walk_slot
from walktalk.protocols.self_description import InLabel
from walktalk.protocols.walks.multi_walk import AlgorithmOne

MEAN = "mean"  # ḡ, the kind of its messages and its slots
Estimate = Literal["saga", "sag"]


@dataclass(frozen=True)
class TokenSaga(Walks):
    """Walks that carry the mean of all nodes' gradients, and correct every step by it.

    Args:
        walks: how many, R.
        estimate: how a step is estimated: saga without bias, sag with less noise.
        local: whether all local steps of the study are taken, each corrected, in place of one step along the gradient
            of as many batches; saga with plain SGD only (momentum: 0).
    """

    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    estimate: Estimate = "saga"
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
        kind = "token SAGA" if self.estimate == "saga" else "token SAG"
        return kind if self.walks == 1 else f"{kind}, {self.walks} walks"

    @property
    def description(self) -> str:
        return "A walk that carries the mean of all nodes' gradients and corrects its steps by it, for unlike data."

    @property
    def plain_sgd_only(self) -> str:
        return "tells gradients from how far a training went, which a momentum makes longer" if self.local else ""

    def rule(self, around: NetworkView) -> WalkRule:
        return LocalSteps(around) if self.local else OneStep(around, self.estimate == "sag")


class Corrected(NotingRule, AlgorithmOne):
    """Keeps ĝ_v of every walk at the node, and brings ḡ of the walks that are here up to date."""

    __slots__ = ()

    @property
    def extras(self) -> tuple[str, ...]:
        return (MEAN,)

    def given_up(self, walk: int) -> list[Effect]:
        return []

    def meet(self, walk: int, begins: bool, noted: bool) -> list[Effect]:
        """ḡ is 0 where a walk counts from nothing, and ĝ_v where nothing was noted."""
        nothing = [walk_slot(walk, MEAN)] * begins + [noted_slot(walk)] * (not noted)
        return [Combine(slot, {walk_slot(walk): 0.0}) for slot in nothing]

    def note(self, walk: int, new: str) -> list[Effect]:
        """ḡ ← ḡ + (new − ĝ_v) / V, ĝ_v ← new."""
        mean, noted, share = walk_slot(walk, MEAN), noted_slot(walk), 1.0 / self.nodes
        return [Combine(mean, {mean: 1.0, new: share, noted: -share}), Combine(noted, {new: 1.0})]


class OneStep(Corrected):
    """One step along a corrected gradient, as in the papers."""

    __slots__ = ("sag",)

    def __init__(self, around: NetworkView, sag: bool) -> None:
        super().__init__(around)
        self.sag = sag

    def visit(self, walk: int, begins: bool, noted: bool, counts: bytes) -> tuple[list[Effect], bytes]:
        return [*self.meet(walk, begins, noted), Differentiate(walk_slot(walk), walk)], counts

    def trained(self, event: Trained, noted: bool, first: bool, counts: bytes) -> tuple[list[Effect], bytes]:
        walk, lr = event.walk, event.lr
        slot, mean = walk_slot(walk), walk_slot(walk, MEAN)
        saga = {slot: 1.0, GRADIENT: -lr, noted_slot(walk): lr, mean: -lr}
        step = Combine(slot, {slot: 1.0, mean: -lr} if self.sag else saga, {GRADIENT: 1.0})
        note = self.note(walk, GRADIENT)
        return [*note, step] if self.sag else [step, *note], counts


class LocalSteps(Corrected):
    """Several corrected steps; the mean of their gradients is −(change) / (K η) − correction."""

    __slots__ = ()

    def visit(self, walk: int, begins: bool, noted: bool, counts: bytes) -> tuple[list[Effect], bytes]:
        slot, correction = walk_slot(walk), correction_slot(walk)
        correct = Combine(correction, {walk_slot(walk, MEAN): 1.0, noted_slot(walk): -1.0})
        return [*self.meet(walk, begins, noted), correct, Train(slot, walk, correction=correction)], counts

    def trained(self, event: Trained, noted: bool, first: bool, counts: bytes) -> tuple[list[Effect], bytes]:
        walk, slot, way = event.walk, correction_slot(event.walk), event.lr * event.steps
        gradient = (
            [Combine(slot, {UPDATE: -1.0 / way, slot: -1.0}), *self.note(walk, slot)] if way else []
        )  # else: rest
        return [*gradient, apply_update(walk_slot(walk))], counts

    def given_up(self, walk: int) -> list[Effect]:
        return [apply_update(walk_slot(walk))]


def noted_slot(walk: int) -> str:
    """The slot of ĝ_v, which a node keeps for each walk."""
    return f"noted/{walk}"


def correction_slot(walk: int) -> str:
    """The slot of ḡ − ĝ_v while a walk is trained, and of the new gradient after that."""
    return f"correction/{walk}"
