"""A cluster without a network, a thread or a clock: nodes as they are, whose messages a test passes on by hand."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Message, Protocol, TimerFired
from walktalk.runtimes.peers import Delivery, Node, NodeSetup, Parcel, Roster, Stamp
from walktalk.runtimes.peers.identity.handshake import HELLO_KIND, Hello, encode_hello
from walktalk.runtimes.peers.node import state as state_of_nodes
from walktalk.runtimes.peers.node.effect_runner import MACHINE
from walktalk.runtimes.peers.wire.versions import MESSAGES
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.cluster import endpoints
from walktalk.testing.quadratic import QuadraticTrainer
from walktalk.transforms.codecs import Bytes


class Time:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@dataclass
class Said:
    """Something that was sent and has not come yet."""

    parcel: Parcel
    payload: Bytes | None
    stamp: Stamp


@dataclass
class Offline:
    """Nodes whose messages wait until they are passed on."""

    nodes: list[Node]
    clock: Time
    rng: random.Random
    wire: deque[Said] = field(default_factory=deque)
    number: int = 0
    seen: list[Said] = field(default_factory=list)  # of each sender and kind some, to make others of

    def send(self, parcel: Parcel, payload: Bytes | None) -> Stamp:
        self.number += 1
        said = Said(parcel, None if payload is None else payload.copy(), Stamp(1, self.number))
        self.wire.append(said)
        self.seen.append(said)
        if len(self.seen) > 300:
            self.seen.pop(self.rng.randrange(len(self.seen)))
        return said.stamp

    def come(self, said: Said) -> float:
        """A message comes to its receiver; the seconds of processor time that this takes."""
        began = time.thread_time()
        self.nodes[said.parcel.receiver].inbox.arrived(Delivery(said.parcel, said.payload, said.stamp))
        return time.thread_time() - began

    def go_on(self, seconds: float = 0.05) -> None:
        """Pass on all that waits, end all trainings, and let time go on: timers that run out are heard."""
        for _ in range(len(self.wire)):
            self.come(self.wire.popleft())
        self.clock.now += seconds
        for node in self.nodes:
            for _ in range(node.events.qsize()):  # a training that ends may begin another
                node.events.get_nowait()()
            clock = node.state.clock
            for _ in range(20):
                name, left = clock.next_timer()
                if left > 0.0:
                    break
                clock.drop_timer(name)
                if name.startswith(MACHINE):
                    node.runner.give(TimerFired(name.removeprefix(MACHINE)))
                else:
                    clock.set_timer(name, 0.25)
                    node.progress.announce_to_all()


@contextmanager
def offline(
    protocol: Protocol,
    graph: Graph,
    folder: Path,
    patch: pytest.MonkeyPatch,
    seed: int,
    roster: bool = False,
    old: Collection[int] = (),
) -> Iterator[Offline]:
    """Nodes that have met and begun.

    `roster`: whether they know the whole cluster, so that others can join. `old`: those that speak version 8 alone.
    """
    clock, trainer, rng = Time(), QuadraticTrainer(graph.nodes), random.Random(seed)
    patch.setattr(state_of_nodes, "time", clock)
    places, made = endpoints(graph), Offline([], clock, rng)
    try:
        for v, around in enumerate(all_network_views(graph)):
            stop = Stop(iterations=10**9)
            known = Roster("test", graph, tuple(f"n{u}" for u in range(graph.nodes))) if roster else None
            setup = NodeSetup(
                protocol, around, Seed(seed), stop, trainer.initial(), places[v], folder / str(v), roster=known
            )
            made.nodes.append(node := Node(setup, trainer))
            without_network(node, made)
        for node in made.nodes:
            for peer in node.setup.endpoint.neighbours.values():
                speaks = None if peer in old or node.models.me in old else MESSAGES
                hello = Message(HELLO_KIND, note=encode_hello(Hello(node.neighbours.facts, met=True, speaks=speaks)))
                node.inbox.arrived(Delivery(Parcel(peer, node.models.me, hello), None, Stamp(1, 1)))
        for node in made.nodes:
            node._begin()
        yield made
    finally:
        for node in made.nodes:
            node.link.close()
            node.training.queue.close()
            node.reports.event_log.close()


def without_network(node: Node, made: Offline) -> None:
    """What the node sends waits, what it trains is trained at once."""
    queue: Any = node.training.queue
    node.link.send = made.send  # type: ignore[method-assign]
    node.link.connections.look_around = lambda: None  # type: ignore[method-assign]
    train = queue._thread._train
    queue._thread.begin = lambda work: node.events.put(partial(end_training, node, train, work))


def end_training(node: Node, train: Any, work: Any) -> None:
    node.training.trained(train(work))
