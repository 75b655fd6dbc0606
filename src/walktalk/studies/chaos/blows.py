"""What is done to the nodes of a storm: signals to their processes, and files that cut them off."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from walktalk.errors import StudyError
from walktalk.graphs import Graph
from walktalk.records import TraceRow
from walktalk.runtimes.peers import BLOCKED, STATUS, SWALLOWS, Cluster, Fleet, ask_everyone
from walktalk.studies.chaos.cables import Cables, PluggedJob, run_plugged
from walktalk.studies.peers import NodeJob, run_node

if TYPE_CHECKING:
    from walktalk.studies.chaos.round import Storm

STARTING = 90.0  # seconds that the nodes have to find each other and to train


@dataclass(frozen=True)
class Blow:
    """One thing that goes wrong."""

    kind: Literal["aggregator", "random", "hang", "split", "swallow", "restart"]
    # kill -9 of whom; SIGSTOP; a partition; walks that are lost; a stop and start of all
    for_good: bool = False  # a killed node stays away, unless the rest would fall apart without it


class Kill(NamedTuple):
    """A kill that happened."""

    when: float  # by the wall clock, when the process was gone
    node: int
    aggregator: bool


class Disturbance:
    """A fleet of nodes, and what is done to it."""

    def __init__(
        self,
        storm: Storm,
        cluster: Cluster,
        graph: Graph,
        dice: random.Random,
        say: Callable[[str], None],
        cables: Cables | None = None,
    ) -> None:
        self.cables = cables  # None: a partition is files that mute messages
        self.storm, self.cluster, self.graph, self.dice, self.say = storm, cluster, graph, dice, say
        self.names = list(cluster.nodes)
        self.kills: list[Kill] = []
        self.gone: set[int] = set()
        self.log: list[str] = []
        self.events: list[tuple[float, int, str, str]] = []  # when, who, what, more
        self.stuck: list[str] = []
        self.end = self.seconds = 0.0

    def run(self) -> None:
        """All blows, then peace, then the end; whatever happens, no process is left."""
        storm, began = self.storm, time.monotonic()
        target = run_node if self.cables is None else run_plugged
        self.fleet = Fleet(target, [self._job(node) for node in range(len(self.names))], self.names)  # type: ignore[arg-type]
        try:
            self._wait_until_all_train()
            time.sleep(storm.warmup)
            for blow in self.dice.sample(storm.blows, len(storm.blows)):
                getattr(self, f"_{blow.kind}")(blow)
                time.sleep(storm.between)
            time.sleep(storm.settle)
        finally:
            self.end = time.time()
            left = [process for process in self.fleet.processes if process.is_alive()]
            self.fleet.stop()
        self.stuck = [process.name for process in left if process.exitcode == -signal.SIGKILL]
        self.seconds = time.monotonic() - began

    def _job(self, node: int, rejoin: bool = False) -> NodeJob | PluggedJob:
        job = NodeJob(self.cluster, self.names[node], rejoin=rejoin)
        return job if self.cables is None else PluggedJob(job, self.cables.namespace(node))

    def rows(self) -> list[TraceRow]:
        """What was done, as rows of a trace."""
        return [TraceRow(when, node, what, detail=more) for when, node, what, more in self.events]

    def _note(self, what: str, node: int = -1, more: str = "") -> None:
        self.events.append((time.time(), node, what, more))

    def _tell(self, line: str) -> None:
        self.log.append(line)
        self.say(line)

    def _wait_until_all_train(self) -> None:
        began = time.monotonic()
        while time.monotonic() < began + STARTING:
            answers = ask_everyone(self.cluster, STATUS, 2.0).values()
            if all(a is not None for a in answers) and sum(a["iterations"] for a in answers if a) > 0:
                self.say(f"{len(self.names)} nodes train after {time.monotonic() - began:.1f} s")
                return
            if self.fleet.failed():
                ended = ", ".join(self.fleet.failed())
                raise StudyError(f"{ended} ended before anything was done to it; what it was is printed above")

    def _living(self) -> list[int]:
        return [node for node, process in enumerate(self.fleet.processes) if process.is_alive()]

    def _leader(self) -> int | None:
        """Who aggregates, of the highest term; None where nobody says so."""
        for _ in range(10):  # between two aggregators there is none for a while
            answers = ask_everyone(self.cluster, STATUS, 1.0)
            leads = [(a["term"], n) for n, name in enumerate(self.names) if (a := answers[name]) and a["aggregates"]]
            if leads:
                return max(leads)[1]
            time.sleep(0.5)
        return None

    def _aggregator(self, blow: Blow) -> None:
        """Gossip has none: it loses the node that would be elected."""
        leader = self._leader() if self.storm.walking else None
        if leader is not None:
            self._kill(leader, blow, True)
            return
        living = self._living()
        self._kill(max(living, key=lambda v: (sum(u in living for u in self.graph.neighbours(v)), -v)), blow, False)

    def _random(self, blow: Blow) -> None:
        self._kill(self.dice.choice(self._living()), blow, False)

    def _kill(self, node: int, blow: Blow, aggregator: bool) -> None:
        for_good = blow.for_good and self._hold_together_without(node)
        self.fleet.signal(node, signal.SIGKILL)
        self.fleet.processes[node].join()
        self._note("kill", node)
        self.kills.append(Kill(time.time(), node, aggregator))
        self._tell(f"kill -9 {self.names[node]}{' (the aggregator)' * aggregator}{' for good' * for_good}")
        if for_good:
            self.gone.add(node)
            return
        time.sleep(self.storm.away)
        self._note("revive", node)
        self.fleet.restart(node, self._job(node, rejoin=True))

    def _hold_together_without(self, node: int) -> bool:
        """Whether those that would be left are connected: else no algorithm could learn from all of them."""
        left = set(range(len(self.names))) - self.gone - {node}
        seen = {min(left)}
        new = set(seen)
        while new:
            new = {u for v in new for u in self.graph.neighbours(v) if u in left} - seen
            seen |= new
        return seen == left

    def _hang(self, blow: Blow) -> None:
        node = self.dice.choice(self._living())
        self._tell(f"SIGSTOP {self.names[node]}")
        self.fleet.signal(node, signal.SIGSTOP)
        self._note("pause", node)
        time.sleep(2 * self.storm.away)
        self.fleet.signal(node, signal.SIGCONT)
        self._note("resume", node)

    def _restart(self, blow: Blow) -> None:
        """As a person does it: everybody is asked to leave, and started again."""
        living = self._living()
        self._tell("stop and start of all")
        for node in living:
            self.fleet.signal(node, signal.SIGTERM)
        for node in living:
            self.fleet.restart(node, self._job(node, rejoin=True))

    def _split(self, blow: Blow) -> None:
        everyone = range(len(self.names))
        side = set(self.dice.sample(everyone, len(self.names) // 2))
        words = " ".join(map(str, sorted(side)))
        self._tell(f"partition: {words} against the rest")
        self._note("partition", more=words)
        if self.cables is not None:
            self.cables.cut(side)
            time.sleep(2 * self.storm.away)
            self.cables.heal()
        else:
            self._mute(side)
        self._note("heal", more=words)

    def _mute(self, side: set[int]) -> None:
        everyone = range(len(self.names))
        files = {node: self.cluster.folder / self.names[node] / BLOCKED for node in everyone}
        for node, file in files.items():
            file.write_text(" ".join(str(peer) for peer in everyone if (peer in side) != (node in side)))
        time.sleep(2 * self.storm.away)
        for file in files.values():
            file.unlink()

    def _swallow(self, blow: Blow) -> None:
        """A node keeps the walks that come to it, for a while; one that aggregates does not, nobody would mix then."""
        node = self.dice.choice([node for node in self._living() if node != self._leader()])
        file = self.cluster.folder / self.names[node] / SWALLOWS
        self._tell(f"{self.names[node]} swallows walks")
        self._note("swallow", node, "1")
        file.touch()
        time.sleep(2 * self.storm.away)
        file.unlink()
        self._note("swallow", node, "0")
