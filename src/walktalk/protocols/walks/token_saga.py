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
from random import Random
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from walktalk.errors import SpecError
from walktalk.protocols.effects import GRADIENT, INITIAL, UPDATE, Combine, Differentiate, Effect, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.multi_walk.plain import GuardKind, check_walks, walk_messages, walk_node
from walktalk.protocols.multi_walk.visits import MetropolisHastings, Visiting, walk_slot
from walktalk.protocols.self_description import InLabel
from walktalk.protocols.walks.lineage import Lineages, Name, name_in

MEAN = "mean"  # ḡ, the kind of its messages and its slots
Estimate = Literal["saga", "sag"]


@dataclass(frozen=True)
class TokenSaga(Protocol):
    """Walks that carry the mean of all nodes' gradients, and correct every step by it.

    Args:
        walks: how many, R.
        estimate: how a step is estimated: saga without bias, sag with less noise.
        local: whether all local steps of the study are taken, each corrected, in place of one step along the gradient
            of as many batches; saga with plain SGD only (momentum: 0).
        aggregator: the node that mixes them.
        resilient: whether it survives failures; if left out, where there may be any.
        heartbeat: seconds between two heartbeats of the aggregator.
        guard: who notices that a walk is lost.
    """

    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    estimate: Estimate = "saga"
    local: bool = False
    aggregator: Annotated[int, Ge(0), InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: GuardKind = "aggregator"
    name: ClassVar[str] = "token_saga"
    family: ClassVar[str] = "walks"
    paper: ClassVar[str] = "Hendrikx 2022; Even 2023 (MC-SAG)"
    keeps: ClassVar[str] = "the walk and the mean of all gradients with it; every node its own last gradient"
    sends: ClassVar[str] = "two models a hop"
    guarantees: ClassVar[str] = (
        "the carried mean is that of the nodes' gradients, always; exact with a constant rate on unlike nodes"
    )
    colour: ClassVar[str] = "#B8336A"

    def __post_init__(self) -> None:
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

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return walk_messages(bool(self.resilient), (MEAN,))

    def check(self, nodes: int) -> None:
        super().check(nodes)
        check_walks(self.walks, self.aggregator, nodes)

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, surroundings: Surroundings) -> Machine:
        kind = LocalSteps if self.local else OneStep
        visiting = kind(surroundings.nodes, self.estimate == "sag")
        return walk_node(self, surroundings, visiting, MetropolisHastings())


class Corrected(Visiting):
    """ĝ_v of every walk, and ḡ of those that are here."""

    __slots__ = ("lineages", "nodes", "sag")

    def __init__(self, nodes: int, sag: bool) -> None:
        self.nodes, self.sag = nodes, sag
        self.lineages = Lineages()

    @property
    def luggage(self) -> tuple[str, ...]:
        return (MEAN,)

    def rejoined(self) -> None:
        self.lineages.rejoined()

    def meet(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], Name]:
        """Where a walk has no past, ḡ is 0, and so is ĝ_v where nothing was noted."""
        name, begins = self.lineages.meets(walk, name_in(more), random)
        effects: list[Effect] = [Combine(walk_slot(walk, MEAN), {INITIAL: 0.0})] if begins else []
        if not self.lineages.has(walk, name):
            effects.append(Combine(noted_slot(walk), {INITIAL: 0.0}))
        return effects, name

    def note(self, walk: int, more: bytes, new: str) -> list[Effect]:
        """ḡ ← ḡ + (new − ĝ_v) / V, ĝ_v ← new."""
        name, mean, noted, share = name_in(more), walk_slot(walk, MEAN), noted_slot(walk), 1.0 / self.nodes
        assert name is not None
        self.lineages.notes(walk, name)
        return [Combine(mean, {mean: 1.0, new: share, noted: -share}), Combine(noted, {new: 1.0})]


class OneStep(Corrected):
    """The rule of the papers: a gradient, and a step."""

    __slots__ = ()

    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        effects, name = self.meet(walk, more, random)
        return [*effects, Differentiate(walk_slot(walk), walk)], name.encode()

    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        walk, lr = event.walk, event.lr
        if not event.steps:
            return [], more
        slot, mean, noted = walk_slot(walk), walk_slot(walk, MEAN), noted_slot(walk)
        saga = {slot: 1.0, GRADIENT: -lr, noted: lr, mean: -lr}
        step = Combine(slot, {slot: 1.0, mean: -lr} if self.sag else saga, {GRADIENT: 1.0})
        note = self.note(walk, more, GRADIENT)
        return [*note, step] if self.sag else [step, *note], more


class LocalSteps(Corrected):
    """Several steps, each corrected; the mean of their gradients is −(change) / (K η) − correction."""

    __slots__ = ()

    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        effects, name = self.meet(walk, more, random)
        slot, correction = walk_slot(walk), correction_slot(walk)
        correct = Combine(correction, {walk_slot(walk, MEAN): 1.0, noted_slot(walk): -1.0})
        return [*effects, correct, Train(slot, walk, correction=correction)], name.encode()

    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        walk, moved = event.walk, event.lr * event.steps
        if not moved:  # handed on, or at rest: nothing is learned of the gradient
            return [apply_update(walk_slot(walk))], more
        slot = correction_slot(walk)
        gradient = Combine(slot, {UPDATE: -1.0 / moved, slot: -1.0})
        return [gradient, *self.note(walk, more, slot), apply_update(walk_slot(walk))], more


def noted_slot(walk: int) -> str:
    """Where a node keeps ĝ_v of a walk."""
    return f"noted/{walk}"


def correction_slot(walk: int) -> str:
    """Where a node keeps ḡ − ĝ_v while a walk is trained, and its new gradient after that."""
    return f"correction/{walk}"
