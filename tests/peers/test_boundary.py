"""One boundary for what neighbours say: whatever it is, it is refused, counted and named, and the node lives.

Every algorithm runs on real nodes without a network (`offline`), and one node's messages are forged in every field:
numbers, notes, models. No exception gets out, what is refused leaves nothing in the machine, no message takes long.
"""

from __future__ import annotations

import datetime
import gc
import json
import queue
import random
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.peers.offline import Offline, Said, offline
from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from walktalk.graphs import Graph, complete
from walktalk.protocols import (
    PROTOCOLS,
    AsyncGossip,
    Context,
    Effect,
    Event,
    Machine,
    Message,
    MultiWalk,
    Protocol,
    Received,
)
from walktalk.runtimes.peers import Parcel, Stamp, credentials, make_certificates
from walktalk.runtimes.peers.identity.handshake import HELLO_KIND
from walktalk.runtimes.peers.identity.signed_statements import SignedStatements
from walktalk.testing.chaos.byzantine import BAD, NUMBERS
from walktalk.testing.conformance import graph_for

LONG = 0.1  # seconds of the processor
ALL = [name for name in PROTOCOLS if "peers" in PROTOCOLS.find(name)().runtimes]
WORDS = (0, 1, 2**7, 2**16, 2**31 - 1, 2**31, 2**32 - 1)


def forge(rng: random.Random, said: Said) -> Said:
    """Another message made of a true one: each of its parts may be another."""
    parcel, payload = said.parcel, said.payload
    message = parcel.message
    for name in ("walk", "round", "term"):
        if rng.random() < 0.3:
            near = getattr(message, name) + rng.choice((-1, 1, 2, 1000))
            number = rng.choice([*(n for n in NUMBERS if n < 2**31), max(0, near)])
            message = message._replace(**{name: min(number, 2**31 - 1)})
    if rng.random() < 0.5:
        message = message._replace(note=another_note(rng, message.note))
    if payload is not None and rng.random() < 0.4:
        payload = another_model(rng, payload)
    if rng.random() < 0.05:
        payload = None if payload is not None else np.zeros(20, np.uint8)
    size = -1 if payload is None else len(payload)
    return Said(parcel._replace(message=message, payload=size), payload, said.stamp)


def another_note(rng: random.Random, note: bytes) -> bytes:
    raw, way = bytearray(note), rng.randrange(7)
    if way == 0:
        return b""
    if way == 1:
        return rng.randbytes(rng.choice((1, 4, 12, 64, 400)))
    if way == 2:
        return note[: rng.randrange(len(note) + 1)]
    if way == 3:
        return note + rng.randbytes(rng.choice((1, 4, 8)))
    if len(raw) < 8:
        return bytes(raw[::-1])
    if way == 4:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif way == 5:
        at = rng.randrange(len(raw) - 3)
        raw[at : at + 4] = struct.pack("<I", rng.choice(WORDS))
    else:
        at = rng.randrange(len(raw) - 7)
        raw[at : at + 8] = struct.pack("<d", rng.choice((np.nan, np.inf, -1.0, 1e300, 5e-324)))
    return bytes(raw)


def another_model(rng: random.Random, payload: Any) -> Any:
    bad = payload.copy()
    if rng.random() < 0.3:
        bad[:] = np.frombuffer(rng.randbytes(len(bad)), np.uint8)
        return bad
    numbers = bad[: len(bad) // 4 * 4].view("<f4")
    if len(numbers):
        numbers[rng.randrange(len(numbers)) if rng.random() < 0.5 else slice(None)] = rng.choice((*BAD, 0.0, 1.0))
    return bad


@contextmanager
def what_is_loaded_left_alone() -> Iterator[None]:
    """Garbage is looked for among what is new: among all that a test process has loaded it takes over 0.1 s."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def attack(made: Offline, liar: int, steps: int, times: int) -> int:
    """Let a liar's forged messages come among true ones; how many came."""
    rng, came = made.rng, 0
    for _ in range(steps):
        made.go_on(rng.choice((0.01, 0.05, 0.3)))
        true = [said for said in made.seen if liar in (said.parcel.sender, said.parcel.receiver)]
        for _ in range(times):
            said = rng.choice(true or made.seen)
            to = rng.choice(sorted(made.nodes[liar].setup.endpoint.neighbours.values()))
            lie = forge(rng, Said(said.parcel._replace(sender=liar, receiver=to), said.payload, Stamp(1, made.number)))
            made.number += 1
            took = made.come(lie)
            assert took < LONG, f"{took:.3f} s for {lie}"
            came += 1
    return came


def trained(made: Offline) -> list[int]:
    return [node.progress.tally.own.iterations for node in made.nodes]


def check(protocol: Protocol, graph: Graph, folder: Path, patch: pytest.MonkeyPatch, seed: int, steps: int) -> None:
    with offline(protocol, graph, folder, patch, seed) as made, what_is_loaded_left_alone():
        for _ in range(30):
            made.go_on()
        assert sum(trained(made)) > 0
        liar = made.rng.randrange(graph.nodes)
        attack(made, liar, steps, 10)
        for node in made.nodes:
            assert node.state.failure is None
            assert len(node.models.slots) < 200


@pytest.mark.parametrize("name", [pytest.param(one, marks=slow_unless(one in ONE_OF_EACH)) for one in ALL])
def test_no_message_of_a_neighbour_ends_a_node(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = PROTOCOLS.find(name)()
    check(protocol, graph_for(protocol), tmp_path, monkeypatch, 0, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", ALL)
def test_no_message_of_many_ends_a_node(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 10,000 lies an algorithm and seed."""
    protocol = PROTOCOLS.find(name)()
    check(protocol, graph_for(protocol), tmp_path, monkeypatch, seed, 1000)


# -- what ended nodes, one by one ---------------------------------------------------------------------------------


def test_a_walk_that_is_no_model_and_says_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took three nodes of three down: the handler of what was refused raised, too."""
    with offline(MultiWalk(walks=2), complete(3), tmp_path, monkeypatch, 0) as made:
        for _ in range(20):
            made.go_on()
        node = made.nodes[0]
        model = np.full(node.models.tensors.width, np.nan, np.float32).view(np.uint8)
        made.come(Said(Parcel(1, 0, Message("walk", walk=1), len(model)), model, Stamp(1, 9)))
        assert sum(node.state.refused.values()) == 1
        (why,) = node.health.warnings()
        assert why.startswith("refused 1 messages of ")
        assert "its numbers are not finite" in why


class Fickle(Machine):
    """Changes its mind in the middle of a message: what nobody thought of."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            self.heard.append(event.sender)
            struct.pack("<I", -1)
        return []


def test_what_raises_anything_leaves_nothing_in_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with offline(MultiWalk(walks=2), complete(3), tmp_path, monkeypatch, 0) as made:
        node = made.nodes[0]
        node.runner.machine = machine = Fickle()
        heard = machine.heard
        made.come(Said(Parcel(1, 0, Message("beat")), None, Stamp(1, 9)))
        assert machine.heard is heard
        assert heard == []
        assert sum(node.state.refused.values()) == 1
        assert sum(node.inbox.boundary.by_source().values()) == 1


@pytest.mark.parametrize(
    "text", [b"[" * 700, b'{"facts":' * 700, b'{"facts": {"a": ' + b"[" * 700, b"[]", b"7", b'{"facts": [], "met": 1}']
)
def test_a_hello_that_is_none_is_dropped(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with offline(MultiWalk(walks=2), complete(3), tmp_path, monkeypatch, 0) as made:
        hello = Message(HELLO_KIND, note=zlib.compress(text))
        took = made.come(Said(Parcel(1, 0, hello), None, Stamp(2, 9)))
        assert took < LONG
        assert 1 in made.nodes[0].state.alive  # the life of it that said hello before
        assert sum(made.nodes[0].link.traffic.dropped.values()) == 1


@pytest.mark.parametrize("said", ["[]", "7", "null", '{"name": []}', "[" * 700, '{"entry": 3}', "{", "NaN"])
def test_whoever_knocks_with_nonsense_is_refused(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`[]` from anybody with a certificate ended a node."""
    graph = complete(3)
    with offline(AsyncGossip(), graph, tmp_path, monkeypatch, 0, roster=True) as made:
        node = made.nodes[0]
        answers: list[bytes] = []
        asked = threading.Thread(
            target=lambda: answers.append(node.members._by_the_loop(node.members._answer_knock, {"said": said}))
        )
        asked.start()
        while asked.is_alive():
            with suppress(queue.Empty):
                node.events.get(timeout=0.05)()
        assert "refused" in json.loads(answers[0])


def test_a_chain_of_certificates_that_lead_nowhere_is_refused_at_once(tmp_path: Path) -> None:
    """Twenty that were signed with one key, each by itself, were a search without end."""
    make_certificates(tmp_path, {"a": []})
    files = credentials(tmp_path, "a")
    key = ec.generate_private_key(ec.SECP256R1())
    lies = [self_signed(key, number) for number in range(20)]
    statements = SignedStatements("test", lambda: files, lambda number: "a")
    for count in (2, 4, 20):
        began = time.thread_time()
        with pytest.raises(ValueError, match=r"another authority|more than 4 certificates"):
            statements.learn(chained(lies[:count]))
        assert time.thread_time() - began < LONG


def self_signed(key: ec.EllipticCurvePrivateKey, number: int) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    now = datetime.datetime(2026, 1, 1)
    made = x509.CertificateBuilder(name, name, key.public_key(), number + 1, now, now + datetime.timedelta(days=9000))
    constrained = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return constrained.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def chained(forms: list[bytes]) -> bytes:
    return b"".join(struct.pack("<H", len(form)) + form for form in forms)


@pytest.mark.parametrize("version", [1, 3, 4, 7, 255])
def test_a_certificate_of_an_odd_version_is_refused(version: int, tmp_path: Path) -> None:
    make_certificates(tmp_path, {"a": []})
    files = credentials(tmp_path, "a")
    statements = SignedStatements("test", lambda: files, lambda number: "a")
    form = bytearray(self_signed(ec.generate_private_key(ec.SECP256R1()), 1))
    at = form.index(b"\xa0\x03\x02\x01\x02") + 4
    form[at] = version
    with pytest.raises(ValueError, match="certificate"):
        statements.learn(chained([bytes(form)]))
