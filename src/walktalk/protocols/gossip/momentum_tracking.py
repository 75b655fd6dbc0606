"""Momentum Tracking (Takezawa, Bao, Niwa, Sato, Yamada 2023): gradient tracking of a momentum.

    u_i ← β u_i + g_i,    x_i ← Σ_j W_ij x_j − η (u_i − c_i),    c_i ← Σ_j W_ij (c_j − u_j) + u_i

y_i = u_i − c_i is what gradient tracking keeps, y_i ← Σ_j W_ij y_j + u_i(new) − u_i(old): the mean of all y is the mean
of all momenta, always, so every node comes to go as SGD with momentum on everybody's data would, to the optimum with a
constant η however unlike the data are. Models are averaged first, then the step is taken, as in the authors' code; with
`mix_first: false` it is the other way round, W(x − ηy), and for β = 0 that is `gradient_tracking`. All c are 0 at
first, where theirs begin with a collective mean of gradients; their sum is 0 in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Lt

from walktalk.protocols.gossip.gradient_tracking import Tracking
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand


@dataclass(frozen=True)
class MomentumTracking(NeighbourRounds):
    """Gossip in rounds in which every node tracks the mean of all momenta and follows it.

    Args:
        beta: the momentum, β; 0: gradient tracking.
        mix_first: whether models are averaged before the step and not after it.
    """

    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    mix_first: bool = True
    name: ClassVar[str] = "momentum_tracking"
    proved: ClassVar[str] = "Takezawa et al. 2023, the powers of 1 − β and p ours"
    bound: ClassVar[str] = "momentum_tracking_order"
    paper: ClassVar[str] = "Takezawa, Bao, Niwa, Sato, Yamada, TMLR 2023"
    keeps: ClassVar[str] = "a model, a tracker and a momentum at every node"
    sends: ClassVar[str] = "two models to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "the mean of all trackers is the mean momentum: exact with a constant rate on unlike nodes, whatever the "
        "momentum; messages that are lost leave a rest"
    )
    title: ClassVar[str] = "momentum tracking"
    description: ClassVar[str] = "Nodes gossip models and momenta, so that each follows the mean of all momenta."
    kinds: ClassVar[tuple[str, ...]] = ("model", "tracker")
    colour: ClassVar[str] = "#1F7A6B"
    needs_own_gradients: ClassVar[str] = "asks for gradients, not for trained models"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True

    def rule(self, around: NetworkView) -> Rule:
        return Tracking(self.beta, self.mix_first)
