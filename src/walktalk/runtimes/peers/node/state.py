"""What a node is set up with, and what is true of it while it runs."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from walktalk.core.seeds import Seed
from walktalk.core.wall_clock import wall_seconds
from walktalk.learning import Schema
from walktalk.protocols import Differentiate, NetworkView, Protocol, Train
from walktalk.runtimes.peers.identity.editions import Edition
from walktalk.runtimes.peers.node.participation import AtLeast
from walktalk.runtimes.peers.node.roster import Roster
from walktalk.runtimes.peers.wire.session import LARGEST_NORM, Endpoint
from walktalk.runtimes.semantics import Objective, OptimizerState, Stop

TrainingRequest: TypeAlias = Train | Differentiate


@dataclass(frozen=True)
class NodeSetup:
    """Everything that one node needs, besides its trainer."""

    protocol: Protocol
    around: NetworkView
    seed: Seed  # of this run
    stop: Stop
    initial: Tensor  # x_0 as a row
    endpoint: Endpoint
    folder: Path  # for its event log, checkpoint and models
    lr: float = 0.05
    schedule: Callable[[float], float] = lambda progress: 1.0
    optimizer_state: OptimizerState = "visit"
    wait_for_neighbours: float = 30.0  # seconds until it starts without those that are not there yet
    part: int | None = None  # its data's number in the trainer; the node's own number if None
    rejoin: bool = False  # come back from the checkpoint in `folder`, if there is one
    pace: float = 0.0  # seconds that a training takes at least
    before: tuple[int, int, float] = (0, 0, 0.0)  # iterations, bytes and seconds of a run that goes on
    samples: int = 1  # how much this node counts, as by the samples of its data: the weight of its loss in that of all
    objective: Objective = field(default_factory=Objective)  # what the run minimizes
    study: Mapping[str, Any] = field(default_factory=dict)  # what must be the same on all nodes, key by key
    largest: float = LARGEST_NORM  # times the usual norm that a model from a neighbour may have
    owned: int | None = None  # samples of its data; 0: others need not know; None: as many as it counts
    tested: int = 0  # test samples that it measures on, too
    best_by: str | None = None  # the measure by which the best model is kept, too, for whoever collects
    frozen: Sequence[float] | None = None  # a few numbers of what no node sends, which all must have alike
    named: Callable[[Tensor], Mapping[str, Tensor]] | None = None  # a model's weights by name, for whoever collects
    roster: Roster | None = None  # who belongs to the cluster; None: nobody joins or leaves for good
    dials: Callable[[str], str | None] = lambda name: None  # where it connects to new neighbours (`Cluster.dialled`)
    joins: bool = False  # it comes in the middle of a run that it was no part of
    keep_traces: float = math.inf  # bytes of old parts of its trace
    secret: bool = False  # the numbers that its noise is made from are its own, and not in its event log
    stay: float = 0.0  # seconds that it stays after the end, unless somebody has collected what it has
    at_least: AtLeast = None  # how many nodes must take part
    schema: Schema | None = None  # of its data; None: nobody knows
    edition: Edition | None = None  # of the kit that it was started with


class Clock:
    """A node's time: how long it and the run have lasted, and its timers.

    Monotonic inside; the wall clock serves the trace only.
    """

    def __init__(self) -> None:
        self.behind = 0.0  # seconds that the run had lasted when this node began
        self._timers: dict[str, float] = {}
        self._asked = time.monotonic()  # when the loop looked at it last
        self._began, self._wall = self._asked, wall_seconds()

    def begin(self) -> None:
        """Let time count from now on. The time of day was asked for once: one life, one clock."""
        self._wall += self.elapsed
        self._began = self._asked = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since this node began."""
        return time.monotonic() - self._began

    @property
    def run_time(self) -> float:
        """Seconds since the run began, which may be longer ago than this node's start."""
        return self.elapsed + self.behind

    @property
    def wall(self) -> float:
        """The time of day, without the jumps that somebody may make it take."""
        return self._wall + self.elapsed

    @property
    def stands_still(self) -> float:
        """Seconds since the node's loop looked for its next timer, which it does several times a second."""
        return time.monotonic() - self._asked

    def hear(self, run_time: float) -> None:
        """A neighbour says how long the run has lasted."""
        self.behind = max(self.behind, run_time - self.elapsed)

    def set_timer(self, name: str, after: float) -> None:
        """Set a timer; one of the same name that still runs is replaced."""
        self._timers[name] = time.monotonic() + after

    def next_timer(self) -> tuple[str, float]:
        """The timer that runs out first, and the seconds until then. There must be one."""
        name, self._asked = min(self._timers, key=self._timers.__getitem__), time.monotonic()
        return name, max(0.0, self._timers[name] - self._asked)

    def drop_timer(self, name: str) -> None:
        """Remove a timer that has run out."""
        del self._timers[name]


@dataclass
class NodeState:
    """What is true of a node right now. Its loop writes it, the node's other parts and any thread may read it."""

    life: int  # the latest life of this node that is known, its own or one that neighbours have heard of
    clock: Clock = field(default_factory=Clock)
    alive: set[int] = field(default_factory=set)  # neighbours that are there, and whose study is the same
    speaks: dict[int, int] = field(default_factory=dict)  # by neighbour: the version of messages that both go by
    begun: bool = False  # it takes part
    leaving: bool = False
    aside: bool = False  # another node has its name, and is listened to
    loss: float | None = None  # of a model that was trained here lately, on this node's data
    score: float = math.nan  # of the same, by the measure by which the best model is kept
    metrics: dict[str, float] = field(default_factory=dict)  # that somebody else's loop has reported last
    busy_at: float = -math.inf  # when the last training ended, by the node's own clock
    refused: collections.Counter[str] = field(default_factory=collections.Counter)  # messages, by neighbour
    refusals: dict[str, str] = field(default_factory=dict)  # by neighbour: what was refused last, and why
    hangs: str = ""  # why nothing is trained here, though it should be; "": nothing hangs
    diverged: int = 0  # trainings whose result was not finite
    failure: BaseException | None = None  # what a training raised
