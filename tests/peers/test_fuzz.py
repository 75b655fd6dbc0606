"""Bytes from hell against a live node: it goes on training, and its memory does not grow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import zenoh
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.memory import resident
from walktalk import graphs
from walktalk.protocols import Message, MultiWalk
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.peers.session import Endpoint, open_session
from walktalk.runtimes.peers.wire import Ack, Answer, Parcel, Stamp, chunks, encode_ack
from walktalk.testing.cluster import running

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


def test_a_live_node_survives_100_000_fuzzed_messages(tmp_path: Path) -> None:
    """Some of them drawn by properties, field by field, the rest at random."""
    count, drawn = 100_000, crafted_messages()
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
        before, trained = resident(), target.state.tally.iterations
        for data in garbage(rng, count - CRAFTED_TIMES * len(drawn)):
            rng.choice(publishers).put(data)
        for data in CRAFTED_TIMES * drawn:
            rng.choice(publishers).put(data)
        dropped, most = target.link.traffic.dropped, 17 * count // 20  # the rest are acknowledgements of nothing
        while (target.state.tally.iterations < trained + 20 or dropped.total() < most) and time.monotonic() < end:
            time.sleep(0.01)
        assert target.state.tally.iterations >= trained + 20
        assert cluster.threads[0].is_alive()
        assert dropped.total() >= most
        assert resident() - before < 50e6
        slots = target.interpreter.slots[0]
        assert torch.equal(slots["initial"], target.setup.initial)  # no message names a slot, so none is overwritten
        own = {
            "initial",
            "last",
            *(f"{kind}/{walk}" for kind in ("walk", "copy", "hop", "in", "next") for walk in (1, 2)),
        }
        assert set(slots) <= own
        stranger.close()
