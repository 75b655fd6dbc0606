"""What a hop costs: a model to a neighbour and its acknowledgement back, against a raw TCP socket on loopback.

    python benchmarks/hop.py [--json] [--repeat N]

The same bytes in the same run, raw and over the real link by turns, so that a busy machine slows both: the ratio of
the medians is what counts. 1.08 MB is ResNet-20, 500 MB is OPT-125M; plain, and with mutual TLS.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from walktalk.protocols import Message
from walktalk.runtimes.peers.assembly import Delivery, Limits
from walktalk.runtimes.peers.certificates import credentials, make_certificates
from walktalk.runtimes.peers.link import Link, Listener
from walktalk.runtimes.peers.session import Endpoint
from walktalk.runtimes.peers.wire import Parcel

SIZES = {"1.08 MB": 269_722, "500 MB": 125_240_832}  # parameters: ResNet-20, OPT-125M
TARGETS = {"1.08 MB": 4.0, "500 MB": 2.0}  # times the raw socket, without TLS
Hop = Callable[[], float]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def endpoint(number: int, port: int, folder: str) -> Endpoint:
    """Node 0 connects, node 1 listens."""
    names = ("a", "b")
    files = credentials(Path(folder), names[number]) if folder else None
    address = f"127.0.0.1:{port}"
    other = {names[1 - number]: 1 - number}
    return Endpoint("hop", names[number], number, address if number else "", other, () if number else (address,), files)


def answer_links(port: int, width: int, folder: str, ready: Event) -> None:
    """The receiving process: takes every model as soon as it is whole, as a node's loop does."""
    inbox: SimpleQueue[Delivery] = SimpleQueue()
    listener = Listener(arrived=inbox.put, taken=lambda parcel: None, peer=lambda peer, alive: None)
    with Link(endpoint(1, port, folder), Limits(width, messages_per_second=1e6), listener) as link:
        link.start()
        ready.set()
        while True:
            link.take(inbox.get())


def answer_raw(port: int, size: int, ready: Event) -> None:
    """The same with a bare socket: receive, answer with as many bytes as an acknowledgement has."""
    with socket.create_server(("127.0.0.1", port)) as server:
        ready.set()
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = memoryview(np.zeros(size, dtype=np.uint8))
        while True:
            got = 0
            while got < size:
                count = connection.recv_into(room[got:])
                if not count:
                    return
                got += count
            connection.sendall(b"\0" * 20)


@contextmanager
def answering(target: Callable[..., None], *args: Any) -> Iterator[int]:
    """A process that answers on a free port."""
    port, ready = free_port(), mp.get_context("spawn").Event()
    process = mp.get_context("spawn").Process(target=target, args=(port, *args, ready), daemon=True)
    process.start()
    if not ready.wait(60):
        raise TimeoutError("the answering process did not start")
    try:
        yield port
    finally:
        process.kill()
        process.join()


@contextmanager
def raw_hop(width: int) -> Iterator[Hop]:
    size = 64 + 4 * width
    data = memoryview(np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8))
    with answering(answer_raw, size) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def hop() -> float:
            start = time.perf_counter()
            connection.sendall(data)
            connection.recv(20, socket.MSG_WAITALL)
            return time.perf_counter() - start

        yield hop


@contextmanager
def link_hop(width: int, folder: str = "") -> Iterator[Hop]:
    model = np.random.default_rng(0).standard_normal(width, dtype=np.float32)
    taken: SimpleQueue[Parcel] = SimpleQueue()
    met: SimpleQueue[int] = SimpleQueue()
    listener = Listener(arrived=lambda d: None, taken=taken.put, peer=lambda peer, alive: met.put(peer))
    with (
        answering(answer_links, width, folder) as port,
        Link(endpoint(0, port, folder), Limits(width), listener) as link,
    ):
        link.start()
        met.get(timeout=30)
        parcel = Parcel(0, 1, Message("walk", walk=1), "walk/1", width)

        def hop() -> float:
            start = time.perf_counter()
            link.send(parcel, model)
            taken.get(timeout=120)
            return time.perf_counter() - start

        yield hop


def measure(name: str, repeat: int, tls: bool) -> dict[str, Any]:
    """Medians over hops taken by turns, after a first one that opens everything."""
    width = SIZES[name]
    with tempfile.TemporaryDirectory() as folder:
        if tls:
            make_certificates(Path(folder), {"a": (), "b": ()})
        with raw_hop(width) as raw, link_hop(width, folder if tls else "") as link:
            raw(), link()
            pairs = [(raw(), link()) for _ in range(repeat)]
    baseline, value = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "size": name, "tls": tls, "value": value, "baseline": baseline, "ratio": value / baseline,
        "target": None if tls else TARGETS[name],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object and nothing else")
    parser.add_argument("--repeat", type=int, default=0, help="hops of each size; 0: 300 small ones, 7 large ones")
    parser.add_argument("--size", choices=SIZES, help="only this one")
    args = parser.parse_args()
    cases = [(name, tls) for name in SIZES if args.size in (None, name) for tls in (False, True)]
    rows = []
    for name, tls in cases:
        row = measure(name, args.repeat or (300 if SIZES[name] < 1e6 else 7), tls)
        rows.append(row)
        if not args.json:
            kind = "mutual TLS" if tls else f"plain (target {row['target']:g}x)"
            line = f"{row['value'] * 1e3:9.2f} ms, raw socket {row['baseline'] * 1e3:8.2f} ms, {row['ratio']:5.2f}x"
            print(f"{name:>8}  {line}  {kind}", flush=True)
    if args.json:
        worst = max((row for row in rows if row["target"]), key=lambda row: row["ratio"] / row["target"])
        print(json.dumps({"name": "hop", **{k: worst[k] for k in ("value", "baseline", "ratio")}, "cases": rows}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
