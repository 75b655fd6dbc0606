"""Chaos on this machine: real nodes, killed, hung and cut off while they train; then the books are checked.

One round: start all nodes and let them train; strike with the blows of the storm, in an order that the seed decides;
then peace, and the verdict. What must hold in every round:

- no hang: every node that is left trains on, and leaves when it is asked to;
- no update is counted twice (`runtimes.peers.Ledger`);
- every walk is there exactly once: R of them (gossip: every node that is left exchanges models again);
- the loss on the data of the nodes that are left is at most a tenth above that of an undisturbed run which never had
  the data of those that are not (`loss`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from walktalk.protocols import PROTOCOLS
from walktalk.runtimes.peers import Ledger, merge, read_diary
from walktalk.settings import settings_of
from walktalk.studies.building import prepare
from walktalk.studies.chaos.blows import Blow, Disturbance
from walktalk.studies.chaos.cables import Cables, plugged_in
from walktalk.studies.chaos.checks import copies_of_walks, recoveries, replacements, taking_part
from walktalk.studies.chaos.loss import Comparison, compare
from walktalk.studies.peers import local_cluster
from walktalk.studies.spec import StudySpec, make_spec

TOLERANCE = 1.1  # of the undisturbed run's loss

FULL_STORM = (
    Blow("aggregator", for_good=True),
    Blow("aggregator"),
    Blow("random", for_good=True),
    Blow("random"),
    Blow("hang"),
    Blow("hang"),
    Blow("split"),
)


@dataclass(frozen=True)
class Storm:
    """How many nodes, what they train, and what happens to them."""

    nodes: int = 20
    algorithm: str = "multi_walk"  # any that survives failures
    walks: int = 4
    heartbeat: float = 0.5
    pace: float | None = None  # seconds that a training takes at least; None: 0.05 for walks, 0.25 for gossip
    warmup: float = 8.0  # seconds of peace at first
    between: float = 2.0  # seconds between two blows
    away: float = 2.5  # seconds until a killed one comes back; a hung one goes on, a split heals, after twice that
    settle: float = 26.0  # seconds of peace in the end
    judged: float = 14.0  # the last seconds of these, in which the loss is measured and walks are counted
    blows: tuple[Blow, ...] = FULL_STORM
    real_cuts: bool = False  # a split is a pulled cable (`cables`), not a file that mutes messages

    @property
    def least(self) -> float:
        """Seconds that a training takes at least: few enough trainings a second for two processors."""
        return self.pace if self.pace is not None else 0.05 if self.walking else 0.25

    @property
    def walking(self) -> bool:
        """Whether walks are what must not be lost."""
        return PROTOCOLS.find(self.algorithm)().family == "walks"

    def with_real_cuts(self) -> Storm:
        """The same with cables that are pulled, more than once, and a stop and start of all nodes."""
        return replace(self, real_cuts=True, blows=(*self.blows, Blow("split"), Blow("restart")))

    def without_blows(self) -> Storm:
        """The same with nothing going wrong: how far the measure is from 1 by itself."""
        return replace(self, blows=())

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


@dataclass(frozen=True)
class Verdict:
    """What came out of one round."""

    seed: int
    algorithm: str
    walks_wanted: int  # R; 0 for gossip
    blows: tuple[str, ...] = ()  # in words, as they happened
    gone: tuple[int, ...] = ()  # nodes that were killed for good
    aggregators_killed: int = 0
    stuck: tuple[str, ...] = ()  # nodes that had to be ended by force
    idle: tuple[int, ...] = ()  # nodes that are left and did nothing in the end
    iterations: int = 0
    mixings: int = 0
    counted: float = 0.0  # the largest weight of an update in an aggregate, or its part of a reign's visits
    twice: int = 0  # halves of exchanges that were applied twice
    walks: int = 0  # that are there in the end
    copies: int = 0  # beyond one of each
    loss: Comparison = field(default_factory=Comparison)
    detection: tuple[float, ...] = ()  # from the kill of an aggregator to the first suspicion, in heartbeats
    recovery: tuple[float, ...] = ()  # from the kill of an aggregator to the next one's first mixing, in heartbeats
    replacement: tuple[float, ...] = ()  # from a lost walk's last sign to its restart, in mean return times
    seconds: float = 0.0

    def failures(self) -> list[str]:
        """What did not hold, in words; empty where everything did."""
        failed = []
        if self.stuck:
            failed.append(f"did not leave: {' '.join(self.stuck)}")
        if self.idle:
            failed.append(f"did nothing in the end: {' '.join(map(str, self.idle))}")
        if self.counted > 1.001 or self.twice:
            failed.append(f"counted twice: {self.counted:.2f} of an update, {self.twice} exchanges")
        if self.walks != self.walks_wanted or self.copies:
            failed.append(f"{self.walks} walks and {self.copies} copies, not {self.walks_wanted}")
        if not self.loss.ratio <= TOLERANCE:
            failed.append(f"the loss is {self.loss.ratio:.2f} times that of an undisturbed run")
        return failed

    @property
    def passed(self) -> bool:
        """Whether everything held."""
        return not self.failures()


def chaos_round(storm: Storm, seed: int, folder: Path, say: Callable[[str], None] = lambda line: None) -> Verdict:
    """One round, from the start of the nodes to the verdict; what the nodes write goes to the folder."""
    ready = prepare(storm.spec(seed), "cpu")
    run = ready.runs[0]
    cluster = local_cluster(ready.spec, run, folder, storm.least)
    with Cables(storm.nodes) if storm.real_cuts else nullcontext() as cables:
        if cables is not None:
            cluster = plugged_in(cluster, cables)
        disturbance = Disturbance(storm, cluster, run.setup.graph, random.Random(seed), say, cables)
        disturbance.run()
    say("checking the books")
    diaries = [read_diary(folder / name) for name in cluster.nodes]
    trace = merge([*diaries, disturbance.rows()])
    end = disturbance.end - min(row.time for diary in diaries for row in diary)  # a trace's times count from there
    judged = end - storm.judged
    ledger = Ledger(run.setup.protocol, storm.nodes, sum(row.event == "train" for row in trace)).play(trace)
    alive = [node for node in range(storm.nodes) if node not in disturbance.gone]
    walking = storm.walking
    walks, copies = copies_of_walks(trace, judged, end) if walking else (0, 0)
    busy = taking_part(trace, judged, end)
    verdict = Verdict(
        seed,
        storm.algorithm,
        storm.walks if walking else 0,
        tuple(disturbance.log),
        tuple(sorted(disturbance.gone)),
        sum(kill.aggregator for kill in disturbance.kills),
        tuple(disturbance.stuck),
        tuple(node for node in alive if node not in busy),
        sum(row.event == "trained" for row in trace),
        ledger.mixings,
        max(ledger.counted, ledger.worst),
        ledger.twice,
        walks,
        copies,
        compare(ready, trace, alive, (judged, end)),
        seconds=disturbance.seconds,
    )
    if not walking:
        return verdict
    found = recoveries(trace)
    return replace(
        verdict,
        detection=tuple(round(seconds / storm.heartbeat, 2) for seconds, _ in found),
        recovery=tuple(round(seconds / storm.heartbeat, 2) for _, seconds in found),
        replacement=tuple(round(times, 2) for times in replacements(trace)),
    )
