"""The weighted walk: nodes whose functions bend more are visited more often, with smaller steps; and its jumps.

Ayache and El Rouayheb, "Private weighted random walk stochastic gradient descent" (2020); with jumps MHLJ of Liu, Dwyer
and El Rouayheb, "Decentralized learning via random walk with jumps" (2026). L_v is a node's smoothness, L̄ their mean:

    P_uv = min(1/(d_u + 1), (L_v / L_u) / (d_v + 1)),    so that visits go as L_v
    z ← z − η (L̄ / L_v) ∇f_v(z)
    with probability p_J: in place of that step over d uniform hops at once, P(d) ∝ p_d (1 − p_d)^(d−1), d ≤ r

π_v · L̄ / L_v = 1/V at every node: on average it goes where a uniform walk goes, and with all weights alike and no jumps
it is Multi-Walk. From a node much heavier than all around it a walk hardly gets away; jumps help, and put visits off
the weights by the order of p_J. (The abstracts were read; the step's scale and the law of d are from memory.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from walktalk.chains import hops_of_a_jump, metropolis_step
from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Effect, Train
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import Carried, WalkRule, walk_slot
from walktalk.protocols.self_description import InLabel, Law
from walktalk.protocols.walks.multi_walk import AlgorithmOne


@dataclass(frozen=True)
class WeightedWalk(Walks):
    """A walk that is at some nodes more often than at others, with smaller steps there; it may jump.

    Args:
        weights: one for each node, its smoothness L_v; left out: all alike.
        walks: how many, R.
        scaled: whether steps are scaled by the mean weight over the node's; if not, heavy nodes count for more.
        jump: how often a walk jumps, p_J.
        jump_end: how likely a jump ends after each of its hops, p_d.
        longest_jump: the most hops of a jump, r.
    """

    weights: Annotated[tuple[float, ...], InLabel("-weights")] = ()
    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    scaled: bool = True
    jump: Annotated[float, Ge(0), Le(1)] = 0.0
    jump_end: Annotated[float, Gt(0), Le(1), InLabel("-end{:g}")] = 0.5
    longest_jump: Annotated[int, Ge(1), Le(255), InLabel("-longest{}")] = 3
    name: ClassVar[str] = "weighted_walk"
    models_travel: ClassVar[bool] = True
    colour: ClassVar[str] = "#5B8C2A"
    paper: ClassVar[str] = "Ayache and El Rouayheb 2020; with jumps Liu, Dwyer and El Rouayheb 2026 (MHLJ)"
    keeps: ClassVar[str] = "R models walk; nodes know the weights of their neighbours"
    sends: ClassVar[str] = "one model a hop, also over those of a jump; nothing where a walk stays at its node"
    guarantees: ClassVar[str] = (
        "visits go as the weights, where it does not jump; a rest for unlike nodes, as of any plain walk"
    )
    conserves: ClassVar[tuple[Law, ...]] = ("once",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(weight > 0 for weight in self.weights):
            raise SpecError("weights: all have to be above 0")

    @property
    def title(self) -> str:
        kind = "weighted walk with jumps" if self.jump else "weighted walk"
        return kind if self.walks == 1 else f"{self.walks} {kind.replace('walk', 'walks', 1)}"

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.weights and len(self.weights) != nodes:
            raise SpecError(f"weights: there are {len(self.weights)} for {nodes} nodes; one for each is needed")

    def rule(self, around: NetworkView) -> WalkRule:
        return Weighted(self, around.node)

    @property
    def mean_weight(self) -> float:
        """The mean of all weights, L̄."""
        return sum(self.weights) / len(self.weights) if self.weights else 1.0

    def weight(self, node: int) -> float:
        """The weight of a node, L_v; the mean weight for one that has joined while the run goes on."""
        return self.weights[node] if node < len(self.weights) else self.mean_weight


class Weighted(AlgorithmOne):
    """Algorithm 1 with steps scaled by the node's weight, and walks that move by weights or jump."""

    __slots__ = ("rate", "settings")

    def __init__(self, settings: WeightedWalk, node: int) -> None:
        self.settings = settings
        self.rate = settings.mean_weight / settings.weight(node) if settings.scaled else 1.0

    def work(self, walk: int, state: bytes, random: Random) -> tuple[list[Effect], bytes]:
        return [Train(walk_slot(walk), walk, rate=self.rate)], state

    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], carried: Carried, random: Random
    ) -> tuple[int, Carried]:
        given, jumps = self.settings, carried.jumps
        if peers and not jumps and given.jump and random.random() < given.jump:
            jumps = hops_of_a_jump(random, given.jump_end, given.longest_jump)
        if peers and jumps:
            return random.choice(peers), carried._replace(jumps=jumps - 1)
        ratios = [given.weight(peer) / given.weight(node) for peer in peers]
        return metropolis_step(node, len(peers), peers, degrees, random, ratios), carried._replace(jumps=0)
