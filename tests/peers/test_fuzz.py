"""Bytes from hell against a live node: it goes on training, and its memory does not grow."""

from __future__ import annotations

import collections
import json
import queue
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import zenoh
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.memory import resident
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import Message, MultiWalk
from walktalk.protocols.mechanisms.tokens.heartbeats import Claim, Score, View, encode
from walktalk.protocols.mechanisms.tokens.hops import Token
from walktalk.runtimes.peers import Delivery, Link, Listener, Node, NodeSetup
from walktalk.runtimes.peers.identity.handshake import Hello, encode_hello
from walktalk.runtimes.peers.node.tally import TALLY_KIND
from walktalk.runtimes.peers.wire.messages import Ack, Answer, Parcel, Stamp, chunks, encode_ack
from walktalk.runtimes.peers.wire.session import Endpoint, open_session
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.cluster import SlowTrainer, endpoints, running

SECONDS = 120


def garbage(rng: random.Random, count: int) -> Iterator[bytes]:
    """Random bytes; damaged chunks; whole chunks that say something wrong; acknowledgements of nothing."""
    model = np.zeros(5, dtype=np.float32)
    walk = next(chunks(Parcel(1, 0, Message("walk", walk=1), 20), model.data, Stamp(1, 1)))
    for _ in range(count):
        kind = rng.randrange(4)
        if kind == 0:
            yield rng.randbytes(rng.randrange(200))
        elif kind == 1:
            damaged = bytearray(walk[: rng.randrange(1, len(walk) + 1)])
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            yield bytes(damaged)
        elif kind == 2:
            width = rng.choice([-1, 4, 6])
            message = Message("walk", rng.randrange(9))
            parcel = Parcel(rng.randrange(4), rng.randrange(4), message, 4 * width if width > 0 else -1)
            model = np.zeros(width, np.float32).data if width > 0 else None
            yield next(chunks(parcel, model, Stamp(rng.randrange(3), rng.randrange(3))))
        else:
            yield encode_ack(Ack(Stamp(rng.randrange(3), rng.randrange(3)), rng.choice(list(Answer))))


NODES, KINDS = st.integers(0, 4), st.sampled_from(["walk", "ack", "beat", "tally", "offer", "x"])
SMALL, NOTES = st.integers(0, 2**32 - 1) | st.integers(0, 4), st.binary(max_size=120)
MESSAGES = st.builds(Message, kind=KINDS, walk=SMALL, round=SMALL, term=SMALL, note=NOTES)
CRAFTED_TIMES = 5  # each is sent so often, on any channel and under any name
WIDTHS = st.sampled_from([-1, 0, 4, 5, 6, 1000])


@st.composite
def crafted(draw: st.DrawFn) -> bytes:
    """A message that is well formed up to a point: any header, note and size of model, perhaps cut or damaged."""
    width = draw(WIDTHS)
    parcel = Parcel(draw(NODES), draw(NODES), draw(MESSAGES), 4 * width if width >= 0 else -1)
    model = np.full(width, np.nan, np.float32).data if width > 0 else b"" if width == 0 else None
    data = bytearray(next(chunks(parcel, model, Stamp(draw(SMALL), draw(SMALL)))))
    damage = draw(st.sampled_from(["none", "none", "cut", "bit", "longer"]))
    if damage == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif damage == "bit":
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif damage == "longer":
        data += draw(st.binary(min_size=1, max_size=50))
    return bytes(data)


def crafted_messages() -> list[bytes]:
    """Two thousand of them, drawn before anything is measured: drawing takes memory too."""
    found: list[bytes] = []

    @settings(max_examples=40, deadline=None, database=None, phases=[Phase.generate])
    @given(st.lists(crafted(), min_size=50, max_size=50))
    def gather(batch: list[bytes]) -> None:
        found.extend(batch)

    gather()
    return found


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_live_node_survives_fuzzed_messages(count: int, tmp_path: Path) -> None:
    """Some of them drawn by properties, field by field, the rest at random."""
    drawn = crafted_messages()[: count // 50]
    with running(MultiWalk(walks=2), graphs.complete(3), tmp_path, Stop(time=600.0)) as cluster:
        target = cluster.nodes[0]
        key = target.setup.endpoint.key
        stranger = open_session(Endpoint("test", "mallory", 9, "", {}, (target.setup.endpoint.listen,)))
        publishers = [
            stranger.declare_publisher(key("n0", sender, channel), congestion_control=zenoh.CongestionControl.BLOCK)
            for sender in ("n1", "n2", "mallory")
            for channel in ("models", "control", "acks")
        ]
        end = time.monotonic() + SECONDS
        while not publishers[0].matching_status.matching and time.monotonic() < end:
            time.sleep(0.01)
        rng = random.Random(count)
        for data in garbage(rng, count // 10):
            rng.choice(publishers).put(data)
        before, trained = resident(), target.progress.tally.iterations
        for data in garbage(rng, count - CRAFTED_TIMES * len(drawn)):
            rng.choice(publishers).put(data)
        for data in CRAFTED_TIMES * drawn:
            rng.choice(publishers).put(data)
        dropped, most = target.link.traffic.dropped, 17 * count // 20  # the rest are acknowledgements of nothing
        while (target.progress.tally.iterations < trained + 20 or dropped.total() < most) and time.monotonic() < end:
            time.sleep(0.01)
        assert target.progress.tally.iterations >= trained + 20
        assert cluster.threads[0].is_alive()
        assert dropped.total() >= most
        assert resident() - before < 50e6
        slots = target.models.interpreter.slots[0]
        assert torch.equal(slots["initial"], target.setup.initial)  # no message names a slot, so none is overwritten
        own = {
            "initial",
            "last",
            "update",  # while the end of a training is being handled
            "copy/3",
            *(f"{kind}/{walk}" for kind in ("walk", "copy", "hop", "in", "next", "missed") for walk in (1, 2)),
        }
        assert set(slots) <= own
        stranger.close()


# -- an authenticated neighbour that lies --------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 5, 1000, 2**16, 2**31 - 1)
MODELS = (0.0, 1.0, -3.0, 1e3, 1e30, np.nan, np.inf)


def lies(rng: random.Random, width: int) -> tuple[Message, np.ndarray | None]:
    """A message that is well formed in every field, and says anything."""
    pick = lambda: rng.choice(NUMBERS)  # noqa: E731
    kind = rng.choice(["beat", "walk", "walk", "walk", "ack", "tally", "hello"])
    if kind in ("walk", "ack"):
        what = Token(rng.choice((0, 1, 2, 3, 4, 5, 6)), (pick(), rng.choice((-1, 0, 1, 2, 9))), pick(), pick(), pick())
        model = np.full(width, rng.choice(MODELS), np.float32)
        model[rng.randrange(width)] = rng.choice(MODELS)
        return what.message(kind), model if kind == "walk" else None
    if kind == "beat":
        claims = [Claim(pick(), Score(pick(), pick()), -rng.choice((0, 1, 2, 9))) for _ in range(2)]
        seen = tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(4)))
        view = View(claims[0], max(pick(), *seen, 0), claims[1], rng.choice((0, 1, 2, 7)), pick(), sightings=seen)
        return Message("beat", term=pick(), note=encode(view)), None
    if kind == "hello":
        return Message("hello", note=rng.randbytes(30)), None
    entries = [
        (rng.randrange(4), pick(), pick(), rng.randrange(9), pick(), rng.choice(MODELS), 0.5, 1) for _ in range(3)
    ]
    note = struct.pack("<d", rng.choice((0.0, 5.0, 1e9, 1e300, np.nan)))
    return Message("tally", note=note + b"".join(struct.pack("<IQQBQffI", *entry) for entry in entries)), None


def test_a_cluster_survives_a_neighbour_that_says_anything(tmp_path: Path) -> None:
    """Its stamps are valid, so that all of it reaches the protocol; of random bytes two in 88,251 did."""
    graph, count = graphs.complete(4), 3000
    places, around = endpoints(graph), all_network_views(graph)
    trainer, reached = SlowTrainer(4), collections.Counter[int]()
    protocol = MultiWalk(walks=2, heartbeat=0.2)
    nodes = [
        Node(
            NodeSetup(protocol, around[v], Seed(0), Stop(time=600.0), trainer.initial(), places[v], tmp_path / str(v)),
            trainer,
        )
        for v in range(3)
    ]
    for node in nodes:
        spy(node, reached)
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    taken: queue.Queue[Parcel] = queue.Queue()
    listener = Listener(lambda delivery: liar.take(delivery), taken.put, lambda peer, there: None)
    limits = nodes[0].link.limits
    liar = Link(places[3], limits, listener)
    with liar:
        liar.start()
        for thread in threads:
            thread.start()
        hello = Message("hello", note=encode_hello(Hello(nodes[0].neighbours.facts, met=True)))
        end = time.monotonic() + SECONDS
        while not all(3 in node.state.alive and node.state.begun for node in nodes) and time.monotonic() < end:
            for node in range(3):
                liar.send(Parcel(3, node, hello), None)
            time.sleep(0.2)
        rng, before = random.Random(0), [node.progress.tally.own.iterations for node in nodes]
        for _ in range(count):
            message, model = lies(rng, trainer.width)
            to = rng.randrange(3)
            payload = None if model is None else model.view(np.uint8)
            liar.send(Parcel(3, to, message, -1 if payload is None else len(payload)), payload)
            time.sleep(0.002)  # no flood: that is another test's
        while time.monotonic() < end and min(node.progress.tally.own.iterations for node in nodes) < max(before) + 20:
            time.sleep(0.05)
        assert all(thread.is_alive() for thread in threads)
        assert sum(reached.values()) > count / 2
    for node in nodes:
        slots = dict(node.models.interpreter.slots[node.models.me])
        assert all(bool(model.isfinite().all()) for model in slots.values())
        assert len(slots) < 20
        json.dumps(node.status(), allow_nan=False)
        assert node.progress.tally.own.iterations > 20
        assert not node.progress.end.seen
        node.leave()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def spy(node: Node, reached: collections.Counter[int]) -> None:
    """Count what comes from the liar and is given to the protocol, or judged in its place."""
    handle, hear = node.inbox.handle, node.inbox.hear[TALLY_KIND]

    def handling(delivery: Delivery) -> None:
        reached[node.models.me] += delivery.parcel.sender == 3
        handle(delivery)

    def hearing(parcel: Parcel) -> None:
        reached[node.models.me] += parcel.sender == 3
        hear(parcel)

    node.inbox.handle, node.inbox.hear[TALLY_KIND] = handling, hearing  # type: ignore[method-assign]
