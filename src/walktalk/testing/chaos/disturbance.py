"""What is done to the nodes in a round, one fault after the other; a few last while others come."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from walktalk.core.errors import StudyError
from walktalk.core.wall_clock import shift_wall_clock
from walktalk.graphs import Graph
from walktalk.records import TraceRow
from walktalk.runtimes.peers import STATUS, Cluster, EventLog, Fleet, JoinRequest, Node, Place, ask_everyone
from walktalk.studies.peers import NodeJob, run_node
from walktalk.testing import SwitchedFaults
from walktalk.testing.chaos.byzantine import FORGES, Forger
from walktalk.testing.chaos.cables import Cables, Disk, enter
from walktalk.testing.chaos.misbehaviour import Misbehaviour, mislead_operators
from walktalk.testing.chaos.plan import ChaosPlan
from walktalk.testing.chaos.power import DurableCopy
from walktalk.testing.chaos.scripts import CONFIG, ScriptJob, run_script
from walktalk.testing.chaos.verdict import JUDGED

# -- A node's process in a round: where it lives, what its clock says, whether it forges, and where its log goes -----

LOG = "node.log"
CLOCK = "clock"
"""A file in a node's folder: how many seconds its clock is ahead."""

LOOK_EVERY = 0.2  # seconds: how soon a jump is noticed


@dataclass(frozen=True)
class DisturbedJob:
    """A node, the network namespace that it lives in ("": that of everybody), and where its disk is watched."""

    job: NodeJob
    namespace: str = ""
    shadow: Path | None = None  # what is safe on its disk is kept there; None: its power never fails


def run_disturbed(disturbed: DisturbedJob) -> None:
    """`run_node`, with everything that is done to it in a round."""
    if disturbed.namespace:
        enter(disturbed.namespace)
    folder = disturbed.job.cluster.folder / disturbed.job.name
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / LOG)
    shift_clock(folder / CLOCK)
    mislead_operators(folder)

    def meet(node: Node) -> None:
        SwitchedFaults(node)
        Misbehaviour(node)
        Forger(node, folder / FORGES).start()

    with DurableCopy(folder, disturbed.shadow).watched() if disturbed.shadow else nullcontext():
        run_node(disturbed.job, meets=meet)


def _log_to(path: Path) -> None:
    """Twenty nodes on one terminal are of no use: what is printed or logged goes to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    logging.getLogger("walktalk").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where the disk is full, a line is lost, and that is all


def shift_clock(path: Path) -> None:
    """Shift the clock: from now on the time of day in this process is ahead by what a file says, 0 where there is none.

    It is what nodes ask for wherever they need it (`core.wall_clock`), for certificates too. Zenoh's own threads see
    the true one.
    """
    known = [0.0, -1.0]  # seconds ahead, and when the file was read

    def ahead() -> float:
        if time.monotonic() > known[1] + LOOK_EVERY:
            try:
                known[0] = float(path.read_text())
            except (OSError, ValueError):
                known[0] = 0.0
            known[1] = time.monotonic()
        return known[0]

    shift_wall_clock(ahead)


# -- What is done to the nodes in a round, one fault after the other; a few last while others come ---------------------

STARTING = 90.0  # seconds that the nodes have to find each other and to train
SHADOWS = ".disks"  # the folder of what is safe on nodes' disks
FOLDER = "chaos"  # the folder of its own event log, beside those of the nodes
MEETING = 40.0  # seconds that the halves of a split network, or a deaf node and the others, have to find each other
ENOUGH = 200  # trainings before anything is judged, half of what an idle machine does
MEASURED = 600  # and while the loss is measured: its mean over fewer differs by up to 8 % between undisturbed runs
STARVING = 120.0  # seconds after which nodes that train less than that are judged as they are
LAST_WORDS = 4.0  # seconds in which all nodes have to answer in the end


class Kill(NamedTuple):
    """A kill that happened, with its time, node and role."""

    when: float  # by the wall clock, when the process was gone
    node: int
    aggregator: bool


class Disturbance:
    """The processes of all nodes, and what is done to them."""

    def __init__(
        self,
        plan: ChaosPlan,
        cluster: Cluster,
        graph: Graph,
        rng: random.Random,
        say: Callable[[str], None],
        cables: Cables | None = None,
        disks: dict[int, Disk] | None = None,
        study: dict[str, Any] | None = None,
    ) -> None:
        """
        - `plan`, `cluster`, `graph`: what there is.
        - `rng`: decide.
        - `say`: told what is done, in words.
        - `cables`: of real cuts; without them a partition is files that mute messages.
        - `disks`: by node, those that can be full.
        - `study`: of which scripts make their trainers, where nodes are trained by scripts.
        """
        self.plan, self.cluster, self.graph, self.rng, self.say = plan, cluster, graph, rng, say
        self.cables, self.disks = cables, disks or {}
        self.scripts: Fleet | None = None
        self._study = study or {}
        self.names = list(cluster.nodes)
        self.kills: list[Kill] = []
        self.gone: set[int] = set()  # who is killed, or has left, for good
        self.returned: set[int] = set()  # who was let go and has joined again: they may have other neighbours
        self.stands_for: dict[int, int] = {}  # those who joined: whose data they have
        self.places: dict[str, Place] = {}  # and where they are
        self.real_numbers: dict[int, int] = {}  # and their numbers among the nodes
        self.log: list[str] = []
        self.event_log = EventLog(cluster.folder / FOLDER, time.time_ns())
        self.stuck: list[str] = []
        self.failures: list[str] = []  # what went wrong in what is no failure: joins and leaves
        self.trained: dict[str, int] = {}  # how much each had trained when it last said so
        self.last_words: dict[str, dict[str, Any] | None] = {}  # what each said of itself in the end
        self.seconds = 0.0

    def run(self, inject: Callable[[Disturbance], None]) -> None:
        """All faults, then a quiet time, then the end; whatever happens, no process is left."""
        plan, began = self.plan, time.monotonic()
        self.fleet = Fleet(run_disturbed, [self.job(node) for node in range(len(self.names))], self.names)
        if plan.outside:
            self.scripts = Fleet(run_script, [self.script(node) for node in range(len(self.names))], self.names)
        try:
            self._wait_until_all_train()
            time.sleep(plan.warmup)
            inject(self)
            self._keep_quiet(plan.settle - plan.judged, ENOUGH)
            self.record(JUDGED)
            self._keep_quiet(plan.judged, MEASURED)
            self._hear_last_words()
        finally:
            self.record("chaos_over")
            left = [process for process in self.fleet.processes if process.is_alive()]
            self.fleet.stop()
            if self.scripts is not None:
                self.scripts.stop()
            self.event_log.close()
        self.stuck = [process.name for process in left if process.exitcode]
        self.seconds = time.monotonic() - began

    def job(self, node: int, rejoin: bool = False, join: JoinRequest | None = None) -> DisturbedJob:
        """What a node's process is to do."""
        name = self.names[node]
        job = NodeJob(self.cluster, name, rejoin=rejoin, join=join, place=self.places.get(name) if join else None)
        return DisturbedJob(job, "" if self.cables is None else self.cables.namespace(node), self.shadow(node))

    def script(self, node: int) -> ScriptJob:
        """What a node's script is to do."""
        return ScriptJob(self.cluster.folder / CONFIG, self.names[node], node, self._study)

    def shadow(self, node: int) -> Path | None:
        """Where it is kept what of a node's folder is safe on its disk; None where no power fails."""
        fails = any(fault.kind == "power" for fault in self.plan.faults) and node not in self.disks
        return self.cluster.folder / SHADOWS / self.names[node] if fails else None

    def number(self, node: int) -> int:
        """The number of a node's data, by which it is known in the trace: one that joined has another's."""
        return self.stands_for.get(node, node)

    def members(self) -> list[int]:
        """All that are not gone for good."""
        return [node for node in range(len(self.names)) if node not in self.gone]

    def ask(self, seconds: float) -> dict[str, dict[str, Any] | None]:
        """How everybody is, those who joined among them."""
        return ask_everyone(self.cluster, STATUS, seconds)

    def start_guest(self, name: str, place: Place, stands_for: int) -> int:
        """One joins; its place among the processes."""
        self.names.append(name)
        self.places[name] = place
        node = len(self.names) - 1
        self.stands_for[node] = stands_for
        contact = self.rng.choice([v for v in self.living() if v < self.graph.nodes])
        self.fleet.add(self.job(node, join=JoinRequest(self.names[contact])), name)
        return node

    def start_again(self, node: int) -> None:
        """A process in place of one that has ended, or is about to; it goes on from its checkpoint."""
        self.fleet.restart(node, self.job(node, rejoin=True))

    def record(self, what: str, node: int = -1, more: str = "") -> None:
        """Something was done: for the trace."""
        self.event_log.write(TraceRow(time.time(), self.number(node), what, detail=more))

    def log_line(self, line: str) -> None:
        """And for a person."""
        self.log.append(line)
        self.say(line)

    def _wait_until_all_train(self) -> None:
        began = time.monotonic()
        while time.monotonic() < began + STARTING:
            answers = self.ask(2.0).values()
            if all(a is not None for a in answers) and sum(a["iterations"] for a in answers if a) > 0:
                self.say(f"{len(self.names)} nodes train after {time.monotonic() - began:.1f} s")
                return
            if self.fleet.failed():
                ended = ", ".join(self.fleet.failed())
                raise StudyError(f"{ended} ended before anything was done to it; its log is in its folder")
        raise StudyError(f"the nodes did not find each other in {STARTING:g} s")

    def wait_until_all_met(self) -> None:
        """After a split, until connections are back and one aggregates: who dies before takes what its part learned
        along, and nobody can help it."""
        end = time.monotonic() + MEETING
        while time.monotonic() < end:
            self._ask_all()
            if not self.lonely() and (len(self.aggregating()) == 1 or not self.plan.walking):
                return

    def _keep_quiet(self, seconds: float, enough: int) -> None:
        """So long at least, and on a machine that is busy otherwise until nodes have trained enough to mend what they
        lost, or for a loss that can be compared (`loss`).

        - `seconds`: at least.
        - `enough`: trainings of all nodes.
        """
        trained, began = self._trained(), time.monotonic()
        time.sleep(seconds)
        while self._trained() < trained + enough and time.monotonic() < began + STARVING:
            time.sleep(1.0)

    def _trained(self) -> int:
        """Trainings of all nodes; of one that does not answer in time, those that it last told of."""
        answers = self.ask(1.0).items()
        self.trained |= {
            name: said["iterations"] for name, said in answers if said is not None and "iterations" in said
        }
        return sum(self.trained.values())

    def _hear_last_words(self) -> None:
        """All that are left say how they are; they are asked again while one is silent, or not just one aggregates."""
        end = time.monotonic() + LAST_WORDS
        self._ask_all()
        while (self.silent() or (len(self.aggregating()) != 1 and self.plan.walking)) and time.monotonic() < end:
            self._ask_all()

    def _ask_all(self) -> None:
        self.last_words = self.ask(1.0)

    def silent(self) -> tuple[str, ...]:
        """Who is left and did not answer."""
        left = (self.names[node] for node in self.members())
        return tuple(name for name in left if self.last_words.get(name) is None)

    def lonely(self) -> set[int]:
        """Who did not say that all its neighbours that are left are there."""
        left = set(self.members())
        heard = {node: self.last_words.get(self.names[node]) for node in left}

        def alone(node: int, said: dict[str, Any]) -> bool:
            if node >= self.graph.nodes or node in self.returned:
                return not said.get("alive")
            return bool(left & {*self.graph.neighbours(node)} - self.returned - {*said.get("alive", ())})

        return {v for v, said in heard.items() if said is None or alone(v, said)}

    def aggregating(self) -> list[str]:
        """Who said in the end that it aggregates."""
        return [name for name, said in self.last_words.items() if said is not None and said.get("aggregates")]

    def living(self) -> list[int]:
        """Nodes with a process."""
        return [node for node, process in enumerate(self.fleet.processes) if process.is_alive()]

    def writing(self) -> list[int]:
        """Those whose disk is not full: what others had not written down yet would be lost with them."""
        return [node for node in self.living() if node not in self.disks or not self.disks[node].full]

    def leader(self) -> int | None:
        """Who aggregates, of the highest term; None where nobody says so."""
        for _ in range(10):  # between two aggregators there is none for a while
            answers = self.ask(1.0)
            leads = [
                (a.get("term", 0), n)
                for n, name in enumerate(self.names)
                if (a := answers.get(name)) and a.get("aggregates")
            ]
            if leads:
                return max(leads)[1]
            time.sleep(0.5)
        return None

    def hold_together_without(self, node: int) -> bool:
        """Whether those that would be left are connected: else no algorithm could learn from all of them."""
        left = set(range(self.graph.nodes)) - self.gone - {node}
        if node >= self.graph.nodes or not left or node in self.plan.spared:
            return False
        seen = {min(left)}
        new = set(seen)
        while new:
            new = {u for v in new for u in self.graph.neighbours(v) if u in left} - seen
            seen |= new
        return seen == left

    def signal(self, node: int, number: signal.Signals) -> None:
        """To a node's process."""
        self.fleet.signal(node, number)
