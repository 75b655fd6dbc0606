"""The weighted walk: nodes whose functions bend more are visited more often, with smaller steps; and its jumps.

Ayache and El Rouayheb, "Private weighted random walk stochastic gradient descent" (2020); with jumps MHLJ of Liu, Dwyer
and El Rouayheb, "Decentralized learning via random walk with jumps" (2026). L_v is a node's smoothness, L̄ their mean:

    P_uv = min(1/(d_u + 1), (L_v / L_u) / (d_v + 1)),    so that visits go as L_v
    z ← z − η (L̄ / L_v) ∇f_v(z)
    with probability p_J: in place of that step over d uniform hops at once, P(d) ∝ p_d (1 − p_d)^(d−1), d ≤ r

π_v · L̄ / L_v = 1/V at every node: on average it goes where a uniform walk goes, and steps are large where that is safe.
Like any plain walk it stays beside the optimum of unlike nodes. Where one node is much heavier than all around it
a walk hardly gets away from it ("entrapment"); jumps help, and put visits off the weights by the order of p_J. With all
weights alike and no jumps it is Multi-Walk, random number by random number.

Of both papers the abstracts were read; the chain is Metropolis and Hastings' own, with one more chance to stay (as this
study's P), the scale of the step and the distribution of d are from memory of the papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from walktalk.chains import hops_of_a_jump, metropolis_step
from walktalk.errors import SpecError
from walktalk.protocols.effects import Effect, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.multi_walk.plain import GuardKind, check_walks, walk_messages, walk_node
from walktalk.protocols.multi_walk.visits import Stepping, Visiting, walk_slot
from walktalk.protocols.self_description import InLabel, Law


@dataclass(frozen=True)
class WeightedWalk(Protocol):
    """Walks that visit nodes in proportion to a weight, and take the smaller steps the heavier a node is.

    Args:
        weights: one for each node, its smoothness L_v; left out: all alike.
        walks: how many, R.
        scaled: whether steps are scaled by the mean weight over the node's; if not, heavy nodes count for more.
        jump: how often a walk jumps, p_J.
        jump_end: how likely a jump ends after each of its hops, p_d.
        longest_jump: the most hops of a jump, r.
        aggregator: the node that mixes them.
        resilient: whether it survives failures; if left out, where there may be any.
        heartbeat: seconds between two heartbeats of the aggregator.
        guard: who notices that a walk is lost.
    """

    weights: Annotated[tuple[float, ...], InLabel("-weights")] = ()
    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    scaled: bool = True
    jump: Annotated[float, Ge(0), Le(1)] = 0.0
    jump_end: Annotated[float, Gt(0), Le(1), InLabel("-end{:g}")] = 0.5
    longest_jump: Annotated[int, Ge(1), Le(255), InLabel("-longest{}")] = 3
    aggregator: Annotated[int, Ge(0), InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: GuardKind = "aggregator"
    name: ClassVar[str] = "weighted_walk"
    models_travel: ClassVar[bool] = True
    family: ClassVar[str] = "walks"
    colour: ClassVar[str] = "#5B8C2A"
    paper: ClassVar[str] = "Ayache and El Rouayheb 2020; with jumps Liu, Dwyer and El Rouayheb 2026 (MHLJ)"
    keeps: ClassVar[str] = "R models walk; nodes know the weights of their neighbours"
    sends: ClassVar[str] = "one model a hop, also over those of a jump; nothing where a walk stays at its node"
    guarantees: ClassVar[str] = (
        "visits go as the weights, where it does not jump; a rest for unlike nodes, as of any plain walk"
    )
    conserves: ClassVar[tuple[Law, ...]] = ("once",)

    def __post_init__(self) -> None:
        if not all(weight > 0 for weight in self.weights):
            raise SpecError("weights: all have to be above 0")

    @property
    def title(self) -> str:
        kind = "weighted walk with jumps" if self.jump else "weighted walk"
        return kind if self.walks == 1 else f"{self.walks} {kind.replace('walk', 'walks', 1)}"

    @property
    def description(self) -> str:
        return "A walk that is at some nodes more often than at others, with smaller steps there; it may jump."

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return walk_messages(bool(self.resilient))

    def check(self, nodes: int) -> None:
        super().check(nodes)
        check_walks(self.walks, self.aggregator, nodes)
        if self.weights and len(self.weights) != nodes:
            raise SpecError(f"weights: there are {len(self.weights)} for {nodes} nodes; one for each is needed")

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, surroundings: Surroundings) -> Machine:
        weights = self.weights or (1.0,) * surroundings.nodes
        own = weights[surroundings.node]
        rate = sum(weights) / len(weights) / own if self.scaled else 1.0
        ratios = {peer: weights[peer] / own for peer in surroundings.neighbours}
        stepping = Weighted(ratios, self.jump, self.jump_end, self.longest_jump)
        return walk_node(self, surroundings, ScaledTraining(rate), stepping)


class ScaledTraining(Visiting):
    """Line 6 of Algorithm 1, with a learning rate of the node's own."""

    __slots__ = ("rate",)

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        return [Train(walk_slot(walk), walk, rate=self.rate)], more

    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        return [apply_update(walk_slot(event.walk))], more


class Weighted(Stepping):
    """By weights, and now and then over several hops."""

    __slots__ = ("end", "jump", "longest", "ratios")

    def __init__(self, ratios: Mapping[int, float], jump: float, end: float, longest: int) -> None:
        """ratios: the weight of each neighbour over the node's own. jump, end, longest: p_J, p_d and r."""
        self.ratios, self.jump, self.end, self.longest = ratios, jump, end, longest

    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], jumps: int, random: Random
    ) -> tuple[int, int]:
        if peers and jumps:
            return random.choice(peers), jumps - 1
        if peers and self.jump and random.random() < self.jump:
            hops = hops_of_a_jump(random, self.end, self.longest)
            return random.choice(peers), hops - 1
        ratios = [self.ratios[peer] for peer in peers]
        return metropolis_step(node, len(peers), peers, degrees, random, ratios), 0
