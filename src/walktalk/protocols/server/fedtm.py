"""FedTM: the large sites begin with FedAvg, then one model travels to all sites, the small ones too.

Souza et al., "Combining federated learning and travelling model boosts performance and opens opportunities for digital
health equity" (2026). The server sends the model and gets it back, in both phases:

    round t ≤ T:  x ← mean over the large sites i of (x after K local steps of site i)
    round t > T:  x ← x after K local steps of site π_t;    π: all sites once in a lap, drawn anew for each

(Summaries were read: the phases, and who takes part in each. That the model goes by the server in the second, too, the
order of a lap and the number of rounds T are ours. How much a site counts is the objective's, in both phases.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Combine, Effect, Train
from walktalk.protocols.mechanisms.server import CHANGE, MODEL, ServerRounds, ServerRule
from walktalk.protocols.mechanisms.tokens.stops import shuffled_lap
from walktalk.protocols.self_description import InLabel


@dataclass(frozen=True)
class FedTM(ServerRounds):
    """Federated averaging of the large sites first; then the model travels to all sites, one after the other.

    Args:
        large: the sites of the first phase; left out: all.
        warmup: rounds of the first phase, T.
    """

    large: Annotated[tuple[int, ...], InLabel("-large")] = ()
    warmup: Annotated[int, Ge(0), InLabel("-{}")] = 10
    name: ClassVar[str] = "fedtm"
    title: ClassVar[str] = "FedTM"
    paper: ClassVar[str] = "Souza et al., npj Digital Medicine 2026"
    keeps: ClassVar[str] = "a model at the server"
    sends: ClassVar[str] = "one model to each site that takes part in a round and one back; one site a round after T"
    guarantees: ClassVar[str] = "after T rounds every lap trains every living site once; a constant rate leaves a rest"
    colour: ClassVar[str] = "#4E6E58"

    def __post_init__(self) -> None:
        if self.tree:
            raise SpecError("tree: true is not possible, for in a round not all sites take part; take false")

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if not all(0 <= site < nodes for site in self.large):
            raise SpecError(f"large: the sites are 0 to {nodes - 1} (you gave {[*self.large]})")

    def rule(self) -> ServerRule:
        return TwoPhases(Train(MODEL, steps=self.steps), self.large, self.warmup)


class TwoPhases(ServerRule):
    """Says who takes part in a round, and adds the mean of their changes to the server's model."""

    __slots__ = ("lap", "laps", "large", "warmup")

    def __init__(self, train: Train, large: Sequence[int], warmup: int) -> None:
        super().__init__(train)
        self.large, self.warmup = large, warmup
        self.lap: list[int] = []  # who is still to be visited in this one
        self.laps = 0

    def chosen(self, round_: int, there: Sequence[int]) -> Sequence[int]:
        if round_ < self.warmup:
            return [site for site in there if site in self.large] or there
        self.lap = [site for site in self.lap if site in there]
        if not self.lap:
            self.laps += 1
            self.lap = [*shuffled_lap(self.laps, tuple(there)).order]
        return [self.lap.pop(0)]

    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        return [Combine(MODEL, {MODEL: 1.0, **came[CHANGE]}, came[CHANGE])] if came[CHANGE] else []
