"""What a run minimizes: F(x) = Σ w_i f_i(x), for weights of the nodes that somebody has chosen; written once, here.

An algorithm whose nodes count alike minimizes the mean of what they minimize, whatever is exchanged with whom. So node
i minimizes n w_i f_i in place of f_i, and nothing else of any algorithm changes: its learning rate is n w_i times the
study's, gradients that are asked for are multiplied by that factor, and corrections and pulls, which are of all nodes,
are divided by it before. A training that begins with the rate of its site can be late, lost or delayed like any other.
Where a server weighs what comes to it (`Protocol.weighs_nodes`), it weighs by the same numbers, and no rate changes.

Other ways were measured (docs/objective.md): more visits of walks to heavier nodes have the same optimum, but leave
gossip as it is; factors on whole updates throw a model beyond the optimum of the heaviest node.

A node whose steps are much longer than the study's could diverge. So no factor exceeds `cap`: where one would, all are
made smaller alike, which is a smaller learning rate and the same objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit

Weights: TypeAlias = Literal["published", "samples", "sites"] | Mapping[str, float]
WHOSE = ("published", "samples", "sites")
FINENESS = 2**20  # what the largest declared weight counts: servers add up whole numbers
CAP = 2.0
ROUNDS = 20  # of trainings, over which nodes' paces are compared
SLOWEST = 0.01  # of the mean pace: who trains less often is as good as away, and makes nobody's steps shorter


@dataclass(frozen=True)
class Objective:
    """Whose loss a run minimizes, and how far steps may be lengthened for that.

    Args:
        weights: `samples`, every sample counts alike; `sites`, every node does; weights by the nodes' names; or
            `published`, each algorithm as its paper has it, and the training loss over all samples.
        cap: the most that a node's learning rate is multiplied by.
        equal_pace: whether nodes that train more often than others make smaller steps.
    """

    weights: Weights = "published"
    cap: float = CAP
    equal_pace: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.weights, Mapping) and self.weights:
            for name, weight in self.weights.items():
                if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < 1e18:
                    raise misfit(f"objective.weights.{name}", weight, "a number above 0", SpecError)
        elif isinstance(self.weights, Mapping) or self.weights not in WHOSE:
            allowed = f"{', '.join(WHOSE)}, or a number for each node by its name"
            raise misfit("objective.weights", self.weights, allowed, SpecError)
        if not 0 < self.cap <= 1e6:
            raise misfit("objective.cap", self.cap, "a number above 0, at most 1e6", SpecError)

    @property
    def words(self) -> str:
        """Whose loss it is, as it follows "the training loss is "."""
        if isinstance(self.weights, Mapping):
            return "the mean over nodes, by the weights that the study declares"
        return "the mean over nodes, each counted alike" if self.weights == "sites" else "the mean over all samples"

    def counts(self, samples: Sequence[int], names: Sequence[str] | None = None) -> tuple[int, ...]:
        """How much every node counts, as whole numbers, from how many samples each has."""
        if self.weights == "sites":
            return (1,) * len(samples)
        if not isinstance(self.weights, Mapping):
            return tuple(samples)
        nodes = [str(node) for node in (names or range(len(samples)))]
        largest = max(self.weights.values())
        return tuple(self._declared(name, nodes, largest) for name in nodes)

    def count(self, samples: int, names: Sequence[str]) -> int:
        """How much one node counts, which knows nothing of the others.

        Args:
            samples: How many it has.
            names: What it may be called where weights are declared: its own name, or that of its part of the data.
        """
        known = [name for name in names if isinstance(self.weights, Mapping) and name in self.weights]
        return self.counts([samples], [*known, *names][:1])[0]

    @property
    def is_declared(self) -> bool:
        """Whether somebody has said what each node counts, so that none need tell how many samples it has."""
        return isinstance(self.weights, Mapping)

    def _declared(self, name: str, nodes: Sequence[str], largest: float) -> int:
        assert isinstance(self.weights, Mapping)
        if name not in self.weights:
            raise SpecError(
                f"objective.weights: node {name} has none; it has {', '.join(list(self.weights)[:20])}; add one for it"
            )
        return max(1, round(FINENESS * self.weights[name] / largest))

    @property
    def changes_steps(self) -> bool:
        """Whether any node's steps may be others than the study's."""
        return self.weights != "published" or self.equal_pace


@dataclass
class StepFactors:
    """What every node's learning rate is multiplied by, so that a run minimizes its objective.

    With equal pace, that is divided by how often a node trained lately beside the mean of all.

    Args:
        objective: what the run minimizes.
        weighed: whether the algorithm itself weighs nodes by their weights.
    """

    objective: Objective
    weighed: bool = False
    factors: dict[int, float] = field(default_factory=dict)  # by node; without one the rate is the study's

    def __post_init__(self) -> None:
        self._known: dict[int, int] = {}  # how much nodes count
        self._trained: dict[int, int] = {}  # how often they had trained when that was looked at last
        self._lately: dict[int, float] = {}  # how often of late

    def look(self, counts: Mapping[int, int], trained: Mapping[int, int]) -> None:
        """Bring factors up to date: where nodes have others than before, or enough was trained to compare paces.

        Args:
            counts: how much every node counts, as far as that is known.
            trained: how often each has trained.
        """
        paces = self.objective.equal_pace and sum(trained.values()) - sum(self._trained.values()) >= len(counts)
        if not paces and counts == self._known:
            return
        if paces:
            self._compare(trained)
        self._known = dict(counts)
        published = self.weighed or self.objective.weights == "published"
        weights = dict.fromkeys(counts, 1) if published else self._known
        mean = sum(weights.values()) / len(weights)
        found = {node: weight / mean / self._pace(node) for node, weight in weights.items()}
        largest = max(factor for node, factor in found.items() if self._pace(node) > SLOWEST)
        shorter = min(1.0, self.objective.cap / largest)
        self.factors = {node: min(self.objective.cap, factor * shorter) for node, factor in found.items()}

    def _compare(self, trained: Mapping[int, int]) -> None:
        """Count what was trained since the last time, and forget slowly what was before."""
        for node, total in trained.items():
            new = max(0, total - self._trained.get(node, 0))
            self._lately[node] = self._lately.get(node, 0.0) * (1.0 - 1.0 / ROUNDS) + new
        self._trained = dict(trained)

    def _pace(self, node: int) -> float:
        """How often a node trains, beside the mean of all; of one that hardly does, as often as can be told."""
        if not self._lately:
            return 1.0
        mean = sum(self._lately.values()) / len(self._lately)
        return max(self._lately.get(node, 0.0) / mean, SLOWEST)
