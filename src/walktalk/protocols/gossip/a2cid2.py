"""A²CiD² (Nabli, Belilovsky, Oyallon 2023): gossip in pairs with a momentum of the communication, in continuous time.

Every node has x and x̃, which mix all the time, and a gradient is taken from both:

    between events:  dx = η (x̃ − x) dt,   dx̃ = η (x − x̃) dt            t in times that a training takes
    a gradient:      x ← x − γ g,   x̃ ← x̃ − γ g
    an exchange:     x_i ← x_i − ½ (x_i − x_j),   x̃_i ← x̃_i − α̃ (x_i − x_j)
    η = 1/(2 √(χ₁ χ₂)),   α̃ = ½ √(χ₁/χ₂)

χ₁ is one over the smallest positive eigenvalue of the Laplacian Λ of how often each link is used, χ₂ half the largest
(e_i − e_j)ᵀ Λ⁺ (e_i − e_j) of a link (as in the authors' code, AdelNabli/ACiD). Where χ₁ = χ₂, x̃ is x: AGRAF SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from walktalk.core.errors import SpecError
from walktalk.graphs import Graph, GraphLike, as_graph
from walktalk.protocols.effects import UPDATE, Combine, Effect, absorb, apply_update
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.free_loops import InFreeLoops
from walktalk.protocols.mechanisms.pair_rule import MODEL, PairRule
from walktalk.protocols.self_description import InLabel

TILDE, BEFORE = "tilde", "before"  # x̃, and x before it was mixed with it


@dataclass(frozen=True)
class A2CiD2(InFreeLoops):
    """Every node trains on and averages beside it, with a momentum of the averaging.

    `A2CiD2.fitted(graph)` has the constants of a graph; with those left out it is AGRAF SGD.

    Args:
        chi1: χ₁ of the graph and of how often its links are used.
        chi2: χ₂ of these; not above χ₁.
    """

    chi1: Annotated[float, Gt(0), InLabel("-chi1_{:.3g}")] = 1.0
    chi2: Annotated[float, Gt(0), InLabel("-chi2_{:.3g}")] = 1.0
    name: ClassVar[str] = "a2cid2"
    paper: ClassVar[str] = "Nabli, Belilovsky, Oyallon, NeurIPS 2023"
    keeps: ClassVar[str] = "a model and its momentum of communication at every node"
    sends: ClassVar[str] = "a model along a random link and one back, whenever the link is used"
    guarantees: ClassVar[str] = "agreement takes √(χ₁χ₂) exchanges instead of χ₁; exchanges keep the sums"
    title: ClassVar[str] = "A²CiD²"
    colour: ClassVar[str] = "#148F77"
    mixes_once: ClassVar[bool] = False  # what comes is mixed into x and into x̃

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chi2 > self.chi1 * (1.0 + 1e-9):
            raise SpecError(f"chi2: {self.chi2:g} is above chi1, {self.chi1:g}, which no graph has; see A2CiD2.fitted")

    @classmethod
    def fitted(cls, graph: GraphLike, steps: int = 0, talks: float = 1.0) -> A2CiD2:
        """Make one with the constants of a graph.

        Args:
            graph: the graph that it is to run on.
            steps: local steps of a training; 0: as many as the study says.
            talks: exchanges that a node begins for each training, on average.
        """
        chi1, chi2 = constants(as_graph(graph), talks)
        return cls(steps=steps, talks=talks, chi1=chi1, chi2=chi2)

    def machine(self, network_view: NetworkView) -> Machine:
        eta, alpha = 0.5 / math.sqrt(self.chi1 * self.chi2), 0.5 * math.sqrt(self.chi1 / self.chi2)
        return self.node(network_view, Momentum(eta, alpha, self.steps))


def constants(graph: Graph, talks: float) -> tuple[float, float]:
    """χ₁ and χ₂ where every node begins so many exchanges for each training, each with a random neighbour."""
    laplacian, degrees = np.zeros((graph.nodes, graph.nodes)), graph.degrees
    edges = graph.edge_list().tolist()
    for i, j in edges:
        rate = talks * (1.0 / degrees[i] + 1.0 / degrees[j])
        laplacian[[i, j], [i, j]] += rate
        laplacian[[i, j], [j, i]] -= rate
    inverse = np.linalg.pinv(laplacian)
    resistances = [inverse[i, i] + inverse[j, j] - 2 * inverse[i, j] for i, j in edges]
    return 1.0 / float(np.linalg.eigvalsh(laplacian)[1]), 0.5 * float(max(resistances))


class Momentum(PairRule):
    """Mixes x with x̃ all the time, and both with what comes; running statistics by halves, also where α̃ is above ½."""

    __slots__ = ("alpha", "eta")

    def __init__(self, eta: float, alpha: float, steps: int) -> None:
        super().__init__(steps)
        self.eta, self.alpha = eta, alpha

    def begin(self) -> list[Effect]:
        return [Combine(TILDE, {MODEL: 1.0})]

    def drift(self, elapsed: float) -> list[Effect]:
        """e^(tM) of M = η (−1 1; 1 −1)."""
        kept = 0.5 * (1.0 + math.exp(-2.0 * self.eta * elapsed))
        return [
            Combine(BEFORE, {MODEL: 1.0}),
            Combine(MODEL, {MODEL: kept, TILDE: 1.0 - kept}),
            Combine(TILDE, {TILDE: kept, BEFORE: 1.0 - kept}),
        ]

    def learn(self, moved: bool) -> list[Effect]:
        return [apply_update(MODEL, moved), Combine(TILDE, {TILDE: 1.0, UPDATE: 1.0}, {TILDE: 0.5, UPDATE: 0.5})]

    def meet(self, new: str, old: str, weight: float) -> list[Effect]:
        tilde = Combine(TILDE, {TILDE: 1.0, new: self.alpha, old: -self.alpha}, {TILDE: 0.5, new: 0.5})
        return [tilde, absorb(MODEL, MODEL, weight, new, old)]  # x̃ first: the old x may be this very slot
