"""A plan of chaos: how many nodes, what they train, and what happens to them in a round."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias

from walktalk.core.errors import SpecError, UserError
from walktalk.core.settings import misfit, settings_of
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.studies.planning import build_graph
from walktalk.studies.spec import StudySpec, make_spec

# What can go wrong in a round: the kinds that a person chooses from, and the faults that each stands for.

Name: TypeAlias = Literal[
    "aggregator",
    "random",
    "hang",
    "stall",
    "deaf",
    "cut",
    "swallow",
    "restart",
    "power",
    "script",
    "leave",
    "join",
    "return",
    "disk",
    "clock",
    "hostile",
    "counts",
    "mislead",
]
BESIDE = ("disk", "clock", "hostile", "counts", "mislead")
"""Faults that last while others come: a full disk, a wrong clock, a node that sends forged messages, or nonsense."""
COMING_AND_GOING = ("leave", "join", "return")
"""Faults for algorithms whose nodes may come and go."""


@dataclass(frozen=True)
class ChaosFault:
    """One thing that goes wrong."""

    kind: Name
    # kill -9 of whom; SIGSTOP; a partition; walks that are kept; a restart of all; who goes and comes; and `BESIDE`
    for_good: bool = False  # a killed node stays away, unless the rest would fall apart without it

    @property
    def lasts(self) -> bool:
        """Whether others come meanwhile."""
        return self.kind in BESIDE


class Kind(NamedTuple):
    """What a person chooses."""

    faults: tuple[ChaosFault, ...]  # of one round
    words: str


KINDS: Mapping[str, Kind] = {
    "kill": Kind(
        (ChaosFault("aggregator"), ChaosFault("random", for_good=True)),
        "kill -9 of the aggregator, which comes back, and of a random node for good",
    ),
    "hang": Kind((ChaosFault("hang"),), "SIGSTOP of a node, SIGCONT after some seconds"),
    "stall": Kind(
        (ChaosFault("stall"),),
        "the training of a node hangs for longer than trainings ever take there, and then goes on",
    ),
    "deaf": Kind(
        (ChaosFault("deaf"),), "a node acknowledges nothing for a while, or its algorithm hears of nothing that comes"
    ),
    "cut": Kind(
        (ChaosFault("cut"),),
        "the network is split into random halves: by files that mute messages, or with --real-cuts by pulled cables",
    ),
    "disk": Kind(
        (ChaosFault("disk"),),
        "a node's disk is full for a while: as root a small file system of its own, else a limit on its files' sizes",
    ),
    "clock": Kind(
        (ChaosFault("clock"),), "a node's clock jumps by an hour to a month, either way; half of them start anew"
    ),
    "hostile": Kind(
        (ChaosFault("hostile"),),
        "a node sends forged messages: models that are none, forged tickets, terms and counts, notes that are empty or "
        "nested deep, replays",
    ),
    "counts": Kind(
        (ChaosFault("counts"),), "a node says that it has trained and sent beyond measure, and that the run is over"
    ),
    "mislead": Kind(
        (ChaosFault("mislead"),), "a node answers operators with nonsense, while they ask, and let others come and go"
    ),
    "restart": Kind((ChaosFault("restart"),), "all nodes are stopped and started, or killed with -9 and started"),
    "power": Kind(
        (ChaosFault("power"),),
        "a node's machine loses its power: kill -9, and its disk has what was forced to it and nothing else",
    ),
    "script": Kind(
        (ChaosFault("script"), ChaosFault("script")),
        "with --outside: kill -9 of two nodes' scripts, of which one comes back at once and one after some seconds",
    ),
    "leave": Kind((ChaosFault("leave"),), "a node leaves for good, as `walktalk leave` asks it to"),
    "join": Kind(
        (ChaosFault("join"),),
        "a node that was not there joins, with the data of one that is gone for good; if none is, one leaves before",
    ),
    "return": Kind(
        (ChaosFault("return"),),
        "a node is killed, let go for good as dead, started again, told so, and joins as it was told",
    ),
    "swallow": Kind((ChaosFault("swallow"),), "a node keeps the walks that come to it for a while"),
}
TOPOLOGIES: tuple[dict[str, Any], ...] = (
    {"topology": "erdos_renyi", "p": 0.3},
    {"topology": "complete"},
    {"topology": "star"},
    {"topology": "spanning_tree"},
    {"topology": "equi_dyn"},
    {"topology": "cycle"},
)
"""Graphs that are tried in turn."""
MOMENTA: tuple[dict[str, Any], ...] = ({}, {"momentum": 0.0, "nesterov": False})
"""The usual one of the optimizer, and none for algorithms that cannot have it."""
PLAIN_MEANS = (
    "multi_walk",
    "weighted_walk",
    "async_gossip",
    "local_dsgd",
    "swarm_sgd",
    "swift",
    "agraf",
    "sync_gossip",
    "slowmo",
    "epidemic_learning",
)
"""Algorithms whose models are plain means; where gradients are replaced by later ones, old updates are in no model."""

USUAL = tuple(kind for kind in KINDS if kind != "swallow")


def faults_of(kinds: Sequence[str]) -> tuple[ChaosFault, ...]:
    """All faults of a round with these kinds."""
    for kind in kinds:
        if kind not in KINDS:
            raise misfit("--faults", kind, ", ".join(KINDS))
    return tuple(fault for kind in KINDS if kind in kinds for fault in KINDS[kind].faults)


def is_root() -> bool:
    """Whether namespaces and file systems can be made."""
    return os.geteuid() == 0


@dataclass(frozen=True)
class ChaosPlan:
    """All settings of a round of chaos, but for its seed."""

    nodes: int = 20
    algorithm: str = "multi_walk"  # any that survives failures
    walks: int = 4
    heartbeat: float = 0.5
    pace: float | None = None  # seconds that a training takes at least; None: 0.05 for walks, 0.25 for gossip
    warmup: float = 4.0  # quiet seconds at first
    between: float = 0.5  # seconds before and after each fault
    away: float = 2.5  # seconds until a killed one comes back; a hung one goes on after twice that
    cut: float = 10.0  # seconds until a split heals
    settle: float = 26.0  # quiet seconds in the end
    judged: float = 18.0  # the last seconds of these at least, in which the loss is measured and walks are counted
    faults: tuple[ChaosFault, ...] = faults_of(USUAL)
    outside: bool = False  # nodes are trained by scripts of their own (`scripts`)
    real_cuts: bool = False  # a split is a pulled cable (`cables`), not a file that mutes messages

    @property
    def least(self) -> float:
        """Seconds that a training takes at least: few enough trainings a second for two processors."""
        return self.pace if self.pace is not None else 0.05 if self.walking else 0.25

    @property
    def protocol(self) -> Protocol:
        """The algorithm; a `SpecError` where it survives no failures."""
        found: Protocol = PROTOCOLS.find(self.algorithm)()
        if not (found.resilient_form().survives_failures and "peers" in found.runtimes):
            raise SpecError(f"--algorithm: {self.algorithm!r} survives no failures on real nodes; choose another")
        return found

    @property
    def walking(self) -> bool:
        """Whether walks are what must not be lost."""
        return "walks" in settings_of(PROTOCOLS.find(self.algorithm))

    @property
    def mixes_plainly(self) -> bool:
        """Whether models are weighted means of updates, so that the ledger can say how much of each is in them."""
        return self.algorithm in PLAIN_MEANS

    @property
    def spared(self) -> frozenset[int]:
        """Nodes without which nothing goes on, such as a server: they come back when they are killed."""
        return frozenset(self.protocol.meets_newcomers)

    @property
    def happens(self) -> tuple[ChaosFault, ...]:
        """The faults that can happen to this algorithm."""
        cannot: tuple[str, ...] = () if self.protocol.nodes_come_and_go else COMING_AND_GOING
        cannot += ("join",) if self.outside else ("script",)  # whoever joins would need a script with another's data
        return tuple(fault for fault in self.faults if fault.kind not in cannot)

    def spec(self, seed: int) -> StudySpec:
        """The study: uneven data, so that it matters whose is missing, and a loss that has a floor (weight decay)."""
        wanted = {"walks": self.walks, "heartbeat": self.heartbeat, "patience": 4 * self.heartbeat}
        takes = settings_of(PROTOCOLS.find(self.algorithm))
        algorithm = {"name": self.algorithm, **{name: value for name, value in wanted.items() if name in takes}}
        protocol = self.protocol
        for topology, momentum in product(TOPOLOGIES, MOMENTA):
            with suppress(UserError):  # this algorithm does not run on such a graph, or has a momentum of its own
                spec = make_spec(
                    {
                        "name": "chaos",
                        "seed": seed,
                        "network": {**topology, "nodes": self.nodes},
                        "task": {"name": "digits", "alpha": 1.0},
                        "algorithms": [algorithm],
                        "stop": {"time": 3600.0, "iterations": 200_000, "bits": 1.0e13},
                        "optimizer": {"lr": 0.03, "weight_decay": 0.01, **momentum},
                    }
                )
                protocol.check_graph(build_graph(spec))
                return spec
        raise SpecError(f"--algorithm: {self.algorithm!r} runs on no graph that is tried here with {self.nodes} nodes")
