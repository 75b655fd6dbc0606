"""Structured fuzz of everything that comes from outside: what is forged in every field is refused, and nothing else.

    python benchmarks/fuzz.py [--offline 2000000] [--live 100000] [--jobs 2] [--out DIR] [--only multi_walk,yaml]

Offline: nodes of every algorithm without a network, whose messages are passed on by hand; one of them lies. Its
messages are true ones in which numbers, notes and models are others, words between nodes (hello, tally, roster,
certificates, lives), and chunks of the wire, damaged or with other stamps. Besides: questions of who wants to join,
certificates, event logs, checkpoints, YAML and answers to operators. Live: four nodes on loopback, one of which sends
the same forged messages beside its own, with valid stamps, as fast as they are taken.

Needs the checkout with its tests. What is done is kept by portions: the same command goes on after an interruption.
Exit code 1 where any exception got out, or a node ended.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import logging
import multiprocessing
import random
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.peers.offline import Offline, Said, offline
from tests.peers.test_boundary import ALL, another_note, chained, forge
from tests.support.memory import resident

from walktalk import graphs
from walktalk.core.errors import UserError
from walktalk.protocols import PROTOCOLS, AsyncGossip, Message
from walktalk.records import load_checkpoint, save_checkpoint, yaml_text
from walktalk.runtimes.peers import Delivery, Node, Parcel, Stamp, credentials, make_certificates
from walktalk.runtimes.peers.identity.handshake import HELLO_KIND, Hello, encode_hello
from walktalk.runtimes.peers.identity.signed_statements import SignedStatements
from walktalk.runtimes.peers.node.event_log import read_lines
from walktalk.runtimes.peers.operations.answers import read_answer
from walktalk.runtimes.peers.wire.messages import Ack, Answer, chunks, encode_ack
from walktalk.runtimes.peers.wire.session import ACKS, CONTROL, MODELS
from walktalk.runtimes.semantics import Stop
from walktalk.testing.chaos.misbehaviour import ANSWERS
from walktalk.testing.cluster import running, wait_for
from walktalk.testing.conformance import graph_for

PORTION = 5000  # inputs, offline
TIMES = 50  # forged messages between two moments of the cluster
LONG = 0.1  # seconds of processor time
LIVE_SECONDS = 120.0  # that one algorithm may take live
WAITING = 40  # forged models that may wait at the liar


@dataclass
class Seen:
    """What came of inputs of one kind."""

    inputs: int = 0
    refused: int = 0
    errors: int = 0  # exceptions that got out, and nodes that ended
    late: int = 0  # over `LONG`
    slowest: float = 0.0
    grown: int = 0  # bytes of memory of the process, over the portion
    example: str = ""  # of an error, or what took longest

    def add(self, seconds: float, refused: bool, what: Callable[[], str]) -> None:
        self.inputs += 1
        self.refused += refused
        self.late += seconds > LONG
        if seconds > self.slowest:
            self.slowest = seconds
            self.example = self.example if self.errors else what()[:120] if seconds > LONG else ""

    def fail(self, error: BaseException | str, what: str) -> None:
        self.errors += 1
        self.example = f"{type(error).__name__ if isinstance(error, BaseException) else ''}: {error}: {what}"[:300]


Kinds = dict[str, Seen]


class Portion(NamedTuple):
    mode: str  # offline, or live
    what: str  # an algorithm, or a kind of file
    number: int
    inputs: int


# -- messages -------------------------------------------------------------------------------------------------------


def between_nodes(rng: random.Random, made: Offline, node: Node) -> Message:
    """A word of those that are no business of the algorithm."""
    kind = rng.choice([HELLO_KIND, *node.inbox.hear])
    said = [one.parcel.message.note for one in made.seen if one.parcel.message.kind == kind]
    hello = encode_hello(Hello(node.neighbours.facts, met=rng.random() < 0.5))
    note = rng.choice(said) if said else hello
    way = rng.randrange(4)
    if way == 0:
        note = another_note(rng, note)
    elif way == 1:
        text = bytearray(zlib.decompress(hello))
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(b'{}[]",:0-9eE\\\x00\xff')
        note = zlib.compress(bytes(text))
    elif way == 2:
        note = zlib.compress(rng.choice((b"[", b'{"facts":', b"[[", b"9")) * rng.choice((1, 40, 700, 9000)))
    return Message(kind, rng.choice((-1, 0, 1, 2**31 - 1)), 0, 0, note)


def on_the_wire(rng: random.Random, said: Said) -> tuple[str, bytes]:
    """A channel, and a chunk that is damaged, has another stamp, or answers what nobody has asked."""
    numbers = (0, 1, 2, 3, 1000, 2**32, 2**63, 2**64 - 1)
    stamp = Stamp(rng.choice(numbers), rng.choice(numbers[:5]))
    if rng.random() < 0.2:
        ack = Ack(stamp, rng.choice(list(Answer)), rng.choice(numbers))
        data = bytearray(encode_ack(ack))
        channel = ACKS
    else:
        payload = said.payload
        data = bytearray(next(chunks(said.parcel, payload.data if payload is not None else None, stamp)))
        channel = MODELS if payload is not None else CONTROL
    damage = rng.randrange(5)
    if damage == 0:
        del data[rng.randrange(len(data) + 1) :]
    elif damage == 1 and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif damage == 2:
        data += rng.randbytes(rng.choice((1, 8, 50)))
    elif damage == 3 and len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        data[at : at + 4] = struct.pack("<I", rng.choice((0, 2**16, 2**31, 2**32 - 1)))
    return rng.choice((channel, channel, MODELS, CONTROL, ACKS)), bytes(data)


def by_kind(said: list[Said]) -> list[list[Said]]:
    """Rare kinds of message are to be forged as often as frequent ones."""
    found: dict[str, list[Said]] = {}
    for one in said:
        found.setdefault(one.parcel.message.kind, []).append(one)
    return list(found.values())


def turned_away(node: Node) -> int:
    return sum(node.state.refused.values()) + sum(node.link.traffic.dropped.values())


def messages(name: str, seed: int, count: int, kinds: Kinds) -> None:
    """One node's forged messages, among true ones of a cluster without a network."""
    protocol, patch = PROTOCOLS.find(name)(), pytest.MonkeyPatch()
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.context() as patched,
        offline(protocol, graph_for(protocol), Path(folder), patched, seed) as made,
    ):
        for _ in range(30):
            made.go_on()
        rng, done = made.rng, 0
        liar = rng.randrange(len(made.nodes))
        receivers = sorted(made.nodes[liar].setup.endpoint.neighbours.values())
        gc.collect()
        before = resident()
        while done < count:
            made.go_on(rng.choice((0.01, 0.05, 0.3)))
            true = by_kind([one for one in made.seen if liar in one.parcel[:2]] or made.seen)
            for _ in range(min(TIMES, count - done)):
                said, to = rng.choice(rng.choice(true)), rng.choice(receivers)
                parcel = said.parcel._replace(sender=liar, receiver=to)
                node, dice = made.nodes[to], rng.random()
                made.number += 1
                lie = Said(parcel, said.payload, Stamp(1, made.number))
                if dice < 0.2:
                    lie = Said(Parcel(liar, to, between_nodes(rng, made, node)), None, Stamp(1, made.number))
                elif dice < 0.85:
                    lie = forge(rng, lie)
                kind, wire = lie.parcel.message.kind, None
                if dice >= 0.85:
                    kind, wire = "(the wire)", on_the_wire(rng, lie)
                give(made, node, lie, wire, kinds[kind])
                done += 1
            for node in made.nodes:
                if node.state.failure is not None:
                    kinds["(a node)"].fail(node.state.failure, f"{name}, seed {seed}")
                    return
        gc.collect()
        kinds["(memory)"].grown += resident() - before


def give(made: Offline, node: Node, lie: Said, wire: tuple[str, bytes] | None, seen: Seen) -> None:
    """Let a node have it, and see what it does."""
    before, began = turned_away(node), time.thread_time()
    try:
        if wire is None:
            node.inbox.arrived(Delivery(lie.parcel, lie.payload, lie.stamp))
        else:
            node.link.receive(wire[0], lie.parcel.sender, wire[1])
            for _ in range(node.events.qsize()):
                node.events.get_nowait()()
    except Exception as error:
        seen.fail(error, repr(lie)[:200])
    seen.add(time.thread_time() - began, turned_away(node) > before, lambda: repr(lie.parcel))


# -- files, certificates, questions -----------------------------------------------------------------------------------

STUDY = """network: {topology: erdos_renyi, nodes: 8, p: 0.4}
task: {name: digits, alpha: 1.0}
algorithms:
  - {name: multi_walk, walks: 4}
  - name: async_gossip
    lr: 0.1
optimizer: &sgd {lr: 0.05, momentum: 0.9}
stop: {iterations: 2000, bits: 1.0e9, time: 01:30}
nodes: {a: *sgd, "b": [1, 2, ~, true]}
"""


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same with a few changes of any kind."""
    raw = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at, way = rng.randrange(len(raw) + 1), rng.randrange(6)
        if way == 0 and at < len(raw):
            raw[at] = rng.choice(b'{}[]",:0123456789-+.eE*&!?|>%@`~#\n\t \\\x00\xff')
        elif way == 1 and at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            raw[at:at] = rng.choice((b"[", b"{", b"- ", b"!!int ", b"&a *a ", b"1e999", b"\xc3", b'"')) * rng.choice(
                (1, 3, 300)
            )
        elif way == 3:
            del raw[at : at + rng.choice((1, 5, 100))]
        elif way == 4:
            raw[at:at] = raw[max(0, at - 30) : at] * rng.choice((1, 4))
        elif len(raw) >= 8:
            at = rng.randrange(len(raw) - 7)
            raw[at : at + 8] = struct.pack("<Q", rng.choice((0, 2**31, 2**62, 2**64 - 1)))
    return bytes(raw)


@contextmanager
def yaml_files(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    def read(data: bytes) -> bool:
        try:
            yaml_text.parse(data.decode("utf-8", "replace"), "it")
        except UserError:
            return True
        return False

    yield STUDY.encode(), read


@contextmanager
def answers(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    facts = {"name": "n1", "alive": [1, 2], "iterations": 7, "loss": 0.5, "complaints": ["x"], "others": {"n2": [1, 2]}}

    def read(data: bytes) -> bool:
        said = read_answer(data)
        return any("refused" in line for line in said.get("complaints", ()))

    yield json.dumps(facts | {"roster": [["x", 1]], "copy": {"role": "a", "key": 1}}).encode() + ANSWERS[0], read


@contextmanager
def event_logs(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    path = folder / "trace-1.jsonl"
    line = json.dumps([1.0, 0, "combine", "walk/1", -1, 1, -1, 0, 0, -1, -1, {"walk/1": 0.5, "in/1": 0.5}])

    def read(data: bytes) -> bool:
        path.write_bytes(data)
        return len(read_lines([path])) < 5

    yield (line + "\n").encode() * 5, read


@contextmanager
def checkpoints(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    import torch

    path = folder / "checkpoint.safetensors"
    save_checkpoint(path, {"walk/1": torch.ones(20), "initial": torch.zeros(20)}, {"seconds": 3.0, "machine": {"a": 1}})

    def read(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            load_checkpoint(path)
        except UserError:
            return True
        return False

    yield path.read_bytes(), read


@contextmanager
def certificates(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    make_certificates(folder, {"a": [], "b": []})
    files = credentials(folder, "a")
    forms = [x509.load_pem_x509_certificates((folder / f"{name}.pem").read_bytes())[0] for name in ("a", "b")]
    chain = chained([form.public_bytes(Encoding.DER) for form in forms])

    def read(data: bytes) -> bool:
        try:
            SignedStatements("test", lambda: files, lambda number: "a").learn(data)
        except ValueError:
            return True
        return False

    yield chain, read


@contextmanager
def questions(folder: Path) -> Iterator[tuple[bytes, Callable[[bytes], bool]]]:
    """Of who wants to join."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched, offline(AsyncGossip(), graphs.complete(3), folder, patched, 0, True) as made:
        node = made.nodes[0]
        roster = node.members.roster
        assert roster is not None
        entry = next(iter(roster.entries.values())).said() if roster.entries else ["n9", 1, [], "", ""]
        asked = {"name": "n9", "facts": {k: str(v) for k, v in node.neighbours.facts.items()}, "entry": entry}

        def read(data: bytes) -> bool:
            got: list[bytes] = []
            text = {"said": data.decode("utf-8", "replace")}
            thread = threading.Thread(
                target=lambda: got.append(node.members._by_the_loop(node.members._answer_knock, text))
            )
            thread.start()
            while thread.is_alive():
                with suppress(Exception):
                    node.events.get(timeout=0.01)()
            return "refused" in json.loads(got[0])

        yield json.dumps(asked).encode(), read


FILES = {
    "yaml": yaml_files,
    "answer": answers,
    "event log": event_logs,
    "checkpoint": checkpoints,
    "certificate": certificates,
    "join": questions,
}


def files(what: str, seed: int, count: int, kinds: Kinds) -> None:
    rng, seen = random.Random(seed), kinds[what]
    with tempfile.TemporaryDirectory() as folder, FILES[what](Path(folder)) as (true, read):
        gc.collect()
        before = resident()
        for _ in range(count):
            data, began, refused = damaged(rng, true), time.thread_time(), False
            try:
                refused = read(data)
            except Exception as error:
                seen.fail(error, repr(data)[:200])
            seen.add(time.thread_time() - began, refused, lambda data=data: repr(data))  # type: ignore[misc]
        gc.collect()
        kinds["(memory)"].grown += resident() - before


# -- live -----------------------------------------------------------------------------------------------------------


def live(name: str, seed: int, count: int, kinds: Kinds) -> None:
    """Four nodes; one of them sends forged messages beside its own; what arrives at the others is counted there."""
    protocol, rng, liar = PROTOCOLS.find(name)(), random.Random(seed), 1
    graph = graph_for(protocol)
    said: list[Said] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running(protocol, graph, Path(folder), Stop(time=3600.0)) as cluster,
    ):
        wait_for(lambda: sum(n.progress.tally.own.iterations > 0 for n in cluster.nodes) > 1, "a beginning")
        bad, send = cluster.nodes[liar], cluster.nodes[liar].link.send

        def remember(parcel: Parcel, payload: Any) -> Stamp:
            said.append(Said(parcel, None if payload is None else payload.copy(), Stamp(1, 1)))
            if len(said) > 100:
                said.pop(rng.randrange(len(said)))
            return send(parcel, payload)

        bad.link.send = remember  # type: ignore[method-assign]
        for v, node in enumerate(cluster.nodes):
            if v != liar:
                watch(node, liar, kinds)
        wait_for(lambda: bool(said), "a word")
        gc.collect()
        before, end = resident(), time.monotonic() + LIVE_SECONDS

        def lie() -> None:
            to = rng.choice(sorted(bad.state.alive) or [said[0].parcel.receiver])
            if len(bad.link._outboxes[to]) < WAITING:
                true = rng.choice(rng.choice(by_kind(said)))
                made = forge(rng, Said(true.parcel._replace(sender=liar, receiver=to), true.payload, true.stamp))
                send(made.parcel, made.payload)

        def came() -> int:
            return sum(seen.inputs for kind, seen in kinds.items() if not kind.startswith("("))

        while came() < count and time.monotonic() < end:
            for _ in range(10):
                bad.events.put(lie)
            time.sleep(0.01)
        gc.collect()
        kinds["(memory)"].grown += resident() - before
        for v, node in enumerate(cluster.nodes):
            if node.state.failure is not None:
                kinds["(a node)"].fail(node.state.failure, f"{name}, n{v}")
            if v != liar and not cluster.threads[v].is_alive():
                kinds["(a node)"].fail("its loop has ended", f"{name}, n{v}")


def watch(node: Node, liar: int, kinds: Kinds) -> None:
    arrived = node.inbox.arrived

    def watched(delivery: Delivery) -> None:
        if delivery.parcel.sender != liar:
            arrived(delivery)
            return
        seen, before, began = kinds[delivery.parcel.message.kind], turned_away(node), time.thread_time()
        try:
            arrived(delivery)
        except Exception as error:
            seen.fail(error, repr(delivery)[:200])
        seen.add(time.thread_time() - began, turned_away(node) > before, lambda: repr(delivery.parcel))

    node.inbox.arrived = watched  # type: ignore[method-assign]


# -- portions --------------------------------------------------------------------------------------------------------


def work(portion: Portion) -> tuple[Portion, Kinds]:
    logging.disable(logging.CRITICAL)
    gc.freeze()  # what is imported is looked through no more
    kinds: Kinds = defaultdict(Seen)
    try:
        if portion.mode == "live":
            live(portion.what, portion.number, portion.inputs, kinds)
        else:
            (files if portion.what in FILES else messages)(portion.what, portion.number, portion.inputs, kinds)
    except Exception as error:
        kinds["(a node)"].fail(error, f"{portion}")
    return portion, dict(kinds)


FIELDS = ("inputs", "refused", "errors", "late", "slowest", "grown", "example")


def portions(offline_inputs: int, live_inputs: int, only: list[str]) -> list[Portion]:
    """Sixteen seventeenths of what is offline are messages, spread evenly over algorithms; the rest over files."""
    names = [name for name in ALL if not only or name in only]
    kinds = [kind for kind in FILES if not only or kind in only]
    found = []
    for what in [*names, *kinds]:
        share = 0.94 / len(names) if what in names else 0.06 / len(kinds)
        share = share if names and kinds else 1.0 / len([*names, *kinds])
        left = int(np.ceil(offline_inputs * share))
        found += [Portion("offline", what, k, min(PORTION, left - k * PORTION)) for k in range(-(-left // PORTION))]
    if live_inputs:
        found += [Portion("live", name, 0, int(np.ceil(live_inputs / len(names)))) for name in names]
    return sorted(found, key=lambda portion: (portion.mode == "live", portion.number))


def known(path: Path) -> dict[Portion, Kinds]:
    found: dict[Portion, Kinds] = defaultdict(dict)
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                portion = Portion(row["mode"], row["what"], int(row["number"]), int(row["of"]))
                numbers = [int(row[name]) for name in FIELDS[:4]]
                seen = Seen(*numbers, float(row["slowest"]), int(row["grown"]), row["example"])
                found[portion][row["kind"]] = seen
    return dict(found)


def summary(done: dict[Portion, Kinds]) -> str:
    """The table: one line a kind of input."""
    lines = ["| mode | input | inputs | refused | accepted | errors out | over 100 ms | slowest |", "|" + " --- |" * 8]
    total: Counter[str] = Counter()
    rows: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for portion, kinds in done.items():
        for kind, seen in kinds.items():
            label = "a file" if portion.what in FILES else kind
            where = f"{portion.mode}, {'file' if portion.what in FILES else 'message'}"
            if kind != "(memory)" and (seen.inputs or seen.errors):
                rows[where, portion.what if label == "a file" else kind].append(seen)
            total[f"grown {portion.mode}"] = max(total[f"grown {portion.mode}"], seen.grown)
    for (where, kind), seen in sorted(rows.items()):
        sums = {name: sum(getattr(one, name) for one in seen) for name in FIELDS[:4]}
        total.update(sums)
        slowest = max(one.slowest for one in seen)
        accepted = sums["inputs"] - sums["refused"]
        numbers = (sums["inputs"], sums["refused"], accepted, sums["errors"], sums["late"])
        lines.append(f"| {where} | {kind} | {' | '.join(f'{n:,}' for n in numbers)} | {1000 * slowest:.0f} ms |")
    numbers = (total["inputs"], total["refused"], total["inputs"] - total["refused"], total["errors"], total["late"])
    lines.append(f"| all |  | {' | '.join(f'{n:,}' for n in numbers)} |  |")
    grown = {mode: total[f"grown {mode}"] / 1e6 for mode in ("offline", "live")}
    lines.append(
        f"\nMemory grew in one portion by {grown['offline']:.1f} MB at most offline, {grown['live']:.1f} live."
    )
    worst = [s for kinds in done.values() for s in kinds.values() if s.errors or s.late]
    lines += [f"- {seen.errors} errors, {seen.late} late, {seen.slowest:.3f} s: {seen.example}" for seen in worst[:20]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offline", type=int, default=2_000_000)
    parser.add_argument("--live", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="algorithms, and kinds of files: " + ", ".join(FILES))
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    args = parser.parse_args()
    path = args.out / "portions.csv"
    args.out.mkdir(parents=True, exist_ok=True)
    done = known(path)
    wanted = portions(args.offline, args.live, [word for word in args.only.split(",") if word])
    left = [portion for portion in wanted if portion not in done]
    began, inputs, told = time.monotonic(), 0, 0.0
    print(f"{len(left)} of {len(wanted)} portions, {sum(p.inputs for p in left):,} inputs, {args.jobs} at once")
    with path.open("a", newline="") as file, multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        table = csv.writer(file, lineterminator="\n")
        if not done:
            table.writerow(("mode", "what", "number", "of", "kind", *FIELDS))
        for number, (portion, kinds) in enumerate(pool.imap_unordered(work, left), 1):
            done[portion] = kinds
            for kind, seen in kinds.items():
                table.writerow((*portion, kind, *(getattr(seen, name) for name in FIELDS)))
            file.flush()
            inputs += sum(seen.inputs for seen in kinds.values())
            if time.monotonic() > told + 4.0 or number == len(left):
                told, seconds = time.monotonic(), time.monotonic() - began
                errors = sum(seen.errors for kinds in done.values() for seen in kinds.values())
                slowest = max(seen.slowest for kinds in done.values() for seen in kinds.values())
                line = f"{number} of {len(left)} portions, {inputs:,} inputs, {inputs / seconds:,.0f}/s"
                print(
                    f"{line}, {errors} errors out, slowest {1000 * slowest:.0f} ms; {portion.mode} {portion.what}",
                    flush=True,
                )
    text = summary({portion: done[portion] for portion in wanted if portion in done})
    (args.out / "table.md").write_text(text + "\n")
    print(text)
    if any(seen.errors for kinds in done.values() for seen in kinds.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
