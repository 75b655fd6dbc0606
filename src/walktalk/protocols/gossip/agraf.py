"""AGRAF SGD, asynchronous SGD on graphs (Even, Koloskova, Massoulié 2024): two free loops a node.

    whenever a gradient at i is ready:          x_i ← x_i − η g_i(x_i as it was when the gradient began)
    whenever the link between i and j is used:  x_i, x_j ← (x_i + x_j) / 2

Neither loop waits for the other, and the traffic is whatever it is. Where links are used much more often than gradients
are ready, all have the same model: asynchronous SGD with a step of η/n; where all are equally fast, too, D-SGD with
exact averages. Where links are used hardly ever, it is local SGD. (The paper lets any averaging matrix act at any time;
this is its case of single links. From memory of the paper; the special cases are named in its abstract.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.free_loops import InFreeLoops
from walktalk.protocols.mechanisms.pair_rule import PairRule


@dataclass(frozen=True)
class AGRAF(InFreeLoops):
    """Every node trains on and on, and averages with random neighbours beside it, at a pace of its own."""

    name: ClassVar[str] = "agraf"
    paper: ClassVar[str] = "Even, Koloskova, Massoulié, AISTATS 2024"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model along a random link and one back, whenever the link is used"
    guarantees: ClassVar[str] = (
        "an exchange never changes the sum of the two; asynchronous SGD or local SGD by how often links are used"
    )
    title: ClassVar[str] = "AGRAF SGD"
    description: ClassVar[str] = "Every node trains on and on and averages with random neighbours beside it."
    colour: ClassVar[str] = "#45B39D"

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(network_view, PairRule(self.steps))
