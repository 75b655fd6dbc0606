"""What a node is made of, and what it keeps while it runs."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from walktalk.protocols import Protocol, Surroundings
from walktalk.runtimes.meaning import OptimizerState, Stop
from walktalk.runtimes.peers import tally as tallies
from walktalk.runtimes.peers.cluster import LARGEST
from walktalk.runtimes.peers.roster import Roster
from walktalk.runtimes.peers.session import Endpoint
from walktalk.seeds import Seed


@dataclass(frozen=True)
class NodeSetup:
    """Everything that one node needs, besides its trainer."""

    protocol: Protocol
    around: Surroundings
    seed: Seed  # of this run
    stop: Stop
    initial: Tensor  # x_0 as a row
    endpoint: Endpoint
    folder: Path  # for its diary, checkpoint and models
    lr: float = 0.05
    schedule: Callable[[float], float] = lambda progress: 1.0
    optimizer_state: OptimizerState = "visit"
    wait_for_neighbours: float = 30.0  # seconds until it starts without those that are not there yet
    part: int | None = None  # its data's number in the trainer; the node's own number if None
    rejoin: bool = False  # come back from the checkpoint in `folder`, if there is one
    pace: float = 0.0  # seconds that a training takes at least
    before: tuple[int, int, float] = (0, 0, 0.0)  # iterations, bytes and seconds of a run that goes on
    samples: int = 1  # of this node's data: the weight of its loss in that of all
    study: Mapping[str, Any] = field(default_factory=dict)  # what must be the same on all nodes, key by key
    largest: float = LARGEST  # times the usual norm that a model from a neighbour may have
    tested: int = 0  # test samples that it measures on, too
    frozen: Sequence[float] | None = None  # a few numbers of what no node sends, which all must have alike
    named: Callable[[Tensor], Mapping[str, Tensor]] | None = None  # a model's weights by name, for whoever collects
    roster: Roster | None = None  # who belongs to the cluster; None: nobody joins or leaves for good
    dials: Callable[[str], str | None] = lambda name: None  # where it connects to new neighbours (`Cluster.dialled`)
    joins: bool = False  # it comes in the middle of a run that it was no part of
    keep_traces: float = math.inf  # bytes of old parts of its trace
    secret: bool = False  # the numbers that its noise is made from are its own, and not in its diary
    stay: float = 0.0  # seconds that it stays after the end, unless somebody has collected what it has


@dataclass
class State:
    """What a node's loop keeps, beside its machine and its slots."""

    tally: tallies.Tally
    saved: int = 0  # checkpoints so far, over all lives
    loss: float | None = None  # of a model that was trained here lately, on this node's data
    alive: set[int] = field(default_factory=set)  # neighbours
    leaving: bool = False
    aside: bool = False  # another node has its name, and is listened to
    busy_at: float = -math.inf  # when the last training ended, by the node's own clock
    refused: collections.Counter[str] = field(default_factory=collections.Counter)  # messages, by neighbour
    diverged: int = 0  # trainings whose result was not finite
    failure: BaseException | None = None


BLOCKED = "blocked"
"""A file in a node's folder with numbers of neighbours: it hears nothing from them while it is there. For tests."""


SWALLOWS = "swallows"
"""A file in a node's folder: while it is there, the node takes walks, says so, and does not let them go. For tests."""


def blocked_by(folder: Path) -> frozenset[int]:
    """The neighbours that are cut off."""
    try:
        return frozenset(int(word) for word in (folder / BLOCKED).read_text().split())
    except (OSError, ValueError):
        return frozenset()


SPOILS = "spoils"
"""A file in a node's folder that says how it spoils what it sends (flip, scale(C), noise(S)). To try defences."""


def spoiling(folder: Path) -> str:
    """How this node is to spoil what it sends; "" for not at all."""
    try:
        return (folder / SPOILS).read_text().strip()
    except OSError:
        return ""
