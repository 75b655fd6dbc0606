"""A storm: how many nodes, what they train, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.protocols import PROTOCOLS
from walktalk.settings import settings_of
from walktalk.studies.chaos.blows import USUAL, Blow, blows_of
from walktalk.studies.spec import StudySpec, make_spec


@dataclass(frozen=True)
class Storm:
    """All of it, but for the seed."""

    nodes: int = 20
    algorithm: str = "multi_walk"  # any that survives failures
    walks: int = 4
    heartbeat: float = 0.5
    pace: float | None = None  # seconds that a training takes at least; None: 0.05 for walks, 0.25 for gossip
    warmup: float = 4.0  # seconds of peace at first
    between: float = 0.5  # seconds before and after each blow
    away: float = 2.5  # seconds until a killed one comes back; a hung one goes on after twice that
    cut: float = 10.0  # seconds until a split heals
    settle: float = 26.0  # seconds of peace in the end
    judged: float = 18.0  # the last seconds of these at least, in which the loss is measured and walks are counted
    blows: tuple[Blow, ...] = blows_of(USUAL)
    real_cuts: bool = False  # a split is a pulled cable (`cables`), not a file that mutes messages

    @property
    def least(self) -> float:
        """Seconds that a training takes at least: few enough trainings a second for two processors."""
        return self.pace if self.pace is not None else 0.05 if self.walking else 0.25

    @property
    def walking(self) -> bool:
        """Whether walks are what must not be lost."""
        return PROTOCOLS.find(self.algorithm)().family == "walks"

    def spec(self, seed: int) -> StudySpec:
        """The study: uneven data, so that it matters whose is missing, and a loss that has a floor (weight decay)."""
        wanted = {"walks": self.walks, "heartbeat": self.heartbeat, "patience": 4 * self.heartbeat}
        takes = settings_of(PROTOCOLS.find(self.algorithm))
        algorithm = {"name": self.algorithm, **{name: value for name, value in wanted.items() if name in takes}}
        return make_spec(
            {
                "name": "chaos",
                "seed": seed,
                "network": {"topology": "erdos_renyi", "nodes": self.nodes, "p": 0.3},
                "task": {"name": "digits", "alpha": 1.0},
                "algorithms": [algorithm],
                "stop": {"time": 3600.0},
                "optimizer": {"lr": 0.03, "weight_decay": 0.01},
            }
        )
