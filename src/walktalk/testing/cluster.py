"""A small cluster in this process: every node in a thread, on free ports of loopback.

`running` starts one whose nodes are all there from the beginning; `crowd` one that nodes join and leave for good.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import NetworkView, Protocol, Send
from walktalk.records import TraceRow
from walktalk.runtimes.peers import (
    Cluster,
    Endpoint,
    JoinRequest,
    Node,
    NodeSetup,
    Place,
    Roster,
    TrainingRequest,
    Tuning,
    ask_to_join,
    facts_of,
    free_ports,
    make_certificates,
    make_cluster,
    merge,
    network_view,
    read_event_log,
)
from walktalk.runtimes.semantics import Packed, Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.quadratic import Floats, QuadraticTrainer, SlowTrainer
from walktalk.testing.replay import Replay

# -- Faults of a real node that files in its folder switch on and off while it runs: for tests, trials and chaos ------
# blocked     numbers of neighbours from which it hears nothing, as with a cut cable
# spoils      how it spoils the models that it sends: flip, scale(C) or noise(S)
# swallows    it keeps every walk that comes to it, and says that it has them
#
# The node knows nothing of this: its link, its interpreter and its trainings are wrapped from outside.

BLOCKED, SPOILS, SWALLOWS = "blocked", "spoils", "swallows"
LOOK_EVERY = 0.1  # seconds, at the files


class SwitchedFaults:
    """Wraps a node that has not begun yet, and looks at its files as long as it lives."""

    def __init__(self, node: Node) -> None:
        self._node, self._folder, self._dice = node, node.setup.folder, random.Random(node.models.me)
        self._blocked: frozenset[int] = frozenset()
        self._spoils = ""
        self._swallowed: list[TrainingRequest] = []
        self._receive, node.link.receive = node.link.receive, self._hear  # type: ignore[method-assign]
        interpreter = node.models.interpreter
        self._pack, interpreter.pack = interpreter.pack, self._spoil  # type: ignore[method-assign]
        self._ask, node.training.ask = node.training.ask, self._swallow  # type: ignore[method-assign]
        self._look()
        threading.Thread(target=self._run, name="faults", daemon=True).start()

    def _run(self) -> None:
        while not self._node.link.connections.closed:
            time.sleep(LOOK_EVERY)
            self._look()

    def _look(self) -> None:
        self._blocked = frozenset(int(word) for word in self._text(BLOCKED).split() if word.isdecimal())
        self._spoils = self._text(SPOILS).strip()
        if self._swallowed and not self._swallows:
            self._node.events.put(self._let_go)

    def _text(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except OSError:
            return ""

    @property
    def _swallows(self) -> bool:
        return (self._folder / SWALLOWS).exists()

    def _hear(self, channel: str, sender: int, data: bytes) -> None:
        if sender not in self._blocked:
            self._receive(channel, sender, data)

    def _spoil(self, node: int, effect: Send) -> Packed:
        packed, interpreter = self._pack(node, effect), self._node.models.interpreter
        if not self._spoils:
            return packed
        return interpreter.corrupted(node, effect.slot, packed, self._spoils, self._dice.getrandbits(63))

    def _swallow(self, request: TrainingRequest) -> None:
        if request.walk > 0 and self._swallows:
            self._swallowed.append(request)
            self._node.reports.trace("swallowed", walk=request.walk)
        else:
            self._ask(request)

    def _let_go(self) -> None:
        swallowed, self._swallowed = self._swallowed, []
        for request in swallowed:
            self._ask(request)


# -- A small cluster in this process: every node in a thread, on free ports of loopback -------------------------------

SECONDS = 120.0  # a run that takes so long hangs, on a busy machine too


class Killed(BaseException):
    """What ends a node's loop without a farewell, when a test puts it there."""


def quietly(run: Callable[[], None]) -> None:
    """Run a node that may be killed: its death is no error."""
    with suppress(Killed):
        run()


@dataclass
class LocalCluster:
    """The nodes of a small cluster in this process, with their threads and folders."""

    nodes: list[Node]
    threads: list[threading.Thread]
    trainer: QuadraticTrainer
    folder: Path
    setups: list[NodeSetup]

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def trace(self) -> list[TraceRow]:
        return merge(read_event_log(self.folder / str(v)) for v in range(len(self.nodes)))

    def replay(self) -> Replay:
        trainer = self.trainer
        centres = trainer.centres[:-1]
        initial = trainer.initial().double().numpy()
        return Replay(initial, trainer.curvature, centres, trainer.steps, np.eye(len(centres))).play(self.trace())


def endpoints(graph: Graph, tuning: Tuning | None = None) -> list[Endpoint]:
    ports = free_ports(graph.nodes)
    made = []
    for v in range(graph.nodes):
        neighbours = graph.contacts(v)
        made.append(
            Endpoint(
                "test",
                f"n{v}",
                v,
                f"127.0.0.1:{ports[v]}",
                {f"n{u}": u for u in neighbours},
                tuple(f"127.0.0.1:{ports[u]}" for u in neighbours if u > v),
                None,
                tuning or Tuning(lease=3.0),
            )
        )
    return made


def faulty_node(setup: NodeSetup, trainer: QuadraticTrainer) -> Node:
    """A node with faults that files in its folder switch on."""
    node = Node(setup, trainer)
    SwitchedFaults(node)
    return node


def _thread(node: Node, number: int) -> threading.Thread:
    return threading.Thread(target=quietly, args=(node.run,), name=f"node {number}", daemon=True)


@contextmanager
def running(
    protocol: Protocol,
    graph: Graph,
    folder: Path,
    stop: Stop,
    momentum: float = 0.0,
    trainer: QuadraticTrainer | None = None,
    samples: Sequence[int] = (),
    **changes: Any,
) -> Iterator[LocalCluster]:
    """Starts all nodes of a graph, with so many samples each, and stops them in the end."""
    trainer = trainer or SlowTrainer(graph.nodes, momentum=momentum)
    network_view = all_network_views(graph)
    setups = []
    for v, endpoint in enumerate(endpoints(graph)):
        setups.append(NodeSetup(protocol, network_view[v], Seed(0), stop, trainer.initial(), endpoint, folder / str(v)))
    setups = [replace(setup, **changes) for setup in setups]
    setups = (
        [replace(setup, samples=count) for setup, count in zip(setups, samples, strict=True)] if samples else setups
    )
    nodes = [faulty_node(setup, trainer) for setup in setups]
    threads = [_thread(node, v) for v, node in enumerate(nodes)]
    cluster = LocalCluster(nodes, threads, trainer, folder, setups)
    for thread in threads:
        thread.start()
    try:
        yield cluster
    finally:
        for node in nodes:
            node.leave()
        cluster.wait()


def kill_and_restart(
    cluster: LocalCluster, killed: list[int], at: float, seconds: float, with_walks: int | None
) -> None:
    """Let nodes die in the middle of whatever they do, and start them again from their checkpoints after a while."""
    end = time.monotonic() + SECONDS
    while any(cluster.nodes[v].status()["seconds"] < at or not cluster.nodes[v].state.begun for v in killed):
        assert time.monotonic() < end, "it does not begin"
        time.sleep(0.01)

    def die(node: Node) -> None:
        if with_walks not in (None, len(node.training.queue.walks)):
            threading.Timer(0.001, node.events.put, (partial(die, node),)).start()
            return
        raise Killed

    for node in [cluster.nodes[v] for v in killed]:
        node.events.put(partial(die, node))
    for v in killed:
        cluster.threads[v].join(SECONDS)
    time.sleep(seconds)
    for v in killed:
        back = faulty_node(replace(cluster.setups[v], rejoin=True), cluster.trainer)
        thread = threading.Thread(target=quietly, args=(back.run,), name=f"node {v}", daemon=True)
        cluster.nodes[v], cluster.threads[v] = back, thread
        thread.start()


def last_output(cluster: LocalCluster) -> Floats:
    """The aggregate of the highest term, or the mean of what nodes recorded last."""
    held = {v: node.models.interpreter.output for v, node in enumerate(cluster.nodes)}
    terms = {v: output.aggregate_term for v, output in held.items() if output.aggregate is not None}
    if terms:
        aggregate = held[max(terms, key=lambda v: (terms[v], v))].aggregate
        assert aggregate is not None
        return aggregate.double().numpy()
    last = {row.walk: row.node for row in cluster.trace() if row.event == "record"}
    members = [held[v].members.get(key) for key, v in last.items()]
    models = [model.double().numpy() for model in members if model is not None]
    return np.asarray(np.mean(models, axis=0) if models else [np.nan])


# -- A cluster that nodes join and leave for good ----

LONG = Stop(time=600.0)


@dataclass
class Crowd:
    """Nodes in this process that others join and leave, and the file that they are of."""

    cluster: Cluster
    graph: Graph
    protocol: Protocol
    trainer: SlowTrainer
    nodes: dict[str, Node]
    threads: dict[str, threading.Thread]

    def setup(self, name: str, roster: Roster, around: NetworkView, cluster: Cluster) -> NodeSetup:
        """What a node of that name is set up with."""
        around = network_view(around, roster, name)
        endpoint = cluster.endpoint(name, self.graph, roster)
        return NodeSetup(
            self.protocol, around, Seed(0), LONG, self.trainer.initial(), endpoint, cluster.folder / name,
            roster=roster, dials=lambda other: cluster.dialled(name, other, roster), part=0, wait_for_neighbours=10.0,
        )  # fmt: skip

    def start(self, name: str, setup: NodeSetup) -> Node:
        """Start a node in a thread of its own."""
        node = Node(setup, self.trainer)
        self.nodes[name] = node
        self.threads[name] = threading.Thread(target=node.run, name=name, daemon=True)
        self.threads[name].start()
        return node

    def knocks(self, name: str, contact: str = "n0", certificates: Path | None = None, **study: object) -> Node:
        """One that was not in the file asks a node to let it join, and does."""
        cluster = self.cluster.model_copy(update={"certificates": certificates or self.cluster.certificates})
        roster, where = cluster.roster(self.graph), {"address": f"127.0.0.1:{free_ports(1)[0]}"}
        place = Place.model_validate({**where, "reachable": not cluster.relay})
        facts = facts_of({"algorithm": self.protocol.resilient_form(), **study}, self.trainer.initial())
        needed = tuple(f"n{v}" for v in self.protocol.meets_newcomers)
        ask_to_join(cluster, name, place, JoinRequest(contact, needed), facts, roster)
        joined = cluster.with_joined(roster.entries.values())
        joined = joined.model_copy(update={"nodes": {**joined.nodes, name: place}})
        around = NetworkView(roster.number(name), self.graph.nodes, (), ())
        return self.start(name, replace(self.setup(name, roster, around, joined), joins=True))

    def trace(self) -> list[TraceRow]:
        """What all of them have written down, in order."""
        return merge(read_event_log(self.cluster.folder / name) for name in self.nodes)


@contextmanager
def crowd(folder: Path, protocol: Protocol, graph: Graph, certified: bool = False, relay: str = "") -> Iterator[Crowd]:
    """Starts all nodes of a graph, waits until they train, and stops them in the end.

    Args:
        folder: where they keep their records.
        protocol: what they run.
        graph: of the nodes that are there at first.
        certified: whether each has a certificate.
        relay: where they meet, if they cannot be reached otherwise.
    """
    names, where = [f"n{v}" for v in range(graph.nodes)], {"reachable": not relay}
    nodes = {
        n: {"address": f"127.0.0.1:{port}", **where} for n, port in zip(names, free_ports(len(names)), strict=True)
    }
    content = {"name": "test", "folder": str(folder / "records"), "lease": 3.0, "relay": relay, "nodes": nodes}
    cluster = make_cluster(content)
    if certified:
        make_certificates(folder / "certs", {name: [] for name in (*names, "newcomer")})
        cluster = cluster.model_copy(update={"certificates": folder / "certs"})
    made = Crowd(cluster, graph, protocol, SlowTrainer(1), {}, {})
    for name, around in zip(names, all_network_views(graph), strict=True):
        made.start(name, made.setup(name, cluster.roster(graph), around, cluster))
    try:
        wait_for(lambda: all(done(node) > 3 for node in made.nodes.values()))
        yield made
    finally:
        for node in made.nodes.values():
            node.leave()
        for thread in made.threads.values():
            thread.join(SECONDS)


def done(node: Node) -> int:
    """How many trainings a node has ended."""
    return node.progress.tally.own.iterations


def wait_for(happens: Callable[[], bool], what: str = "it") -> None:
    """Wait until something happens; `AssertionError` where it does not."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, f"{what} does not happen"
        time.sleep(0.02)
