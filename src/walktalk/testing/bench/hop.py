"""What a hop costs: a model to a neighbour and its acknowledgement back, against a raw TCP socket on loopback.

The same bytes in the same run, raw and over the real link by turns, so that a busy machine slows both. 1.08 MB is
ResNet-20. `benchmarks/hop.py` measures more sizes, and mutual TLS.
"""

from __future__ import annotations

import multiprocessing as mp
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from walktalk.core.errors import UnavailableError
from walktalk.protocols import Message
from walktalk.testing.bench.suites import BenchResult, Say

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Delivery, Endpoint, Limits, Parcel

WIDTH = 269_722  # parameters of ResNet-20
HOPS = 200
HEADER, ACKNOWLEDGEMENT = 64, 28  # bytes

Hop: TypeAlias = Callable[[], float]  # makes one hop, gives its seconds


def hop(say: Say) -> BenchResult:
    """Median milliseconds of a hop over the real link, and over a bare socket."""
    try:
        import walktalk.runtimes.peers  # noqa: F401 (needs Zenoh)
    except ImportError as error:
        raise UnavailableError("bench hop needs the extra `peers`: pip install 'walktalk[peers]'") from error
    say(f"{HOPS} hops of {WIDTH * 4 / 1e6:.2f} MB, raw and over the link by turns")
    with raw_hop(WIDTH) as raw, link_hop(WIDTH) as link:
        raw(), link()  # opens everything
        pairs = [(raw(), link()) for _ in range(HOPS)]
    baseline, value = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
    return BenchResult(
        "hop",
        value,
        baseline,
        "ms",
        "a 1.08 MB model to a neighbour and its acknowledgement back, over Zenoh",
        "the same bytes over a bare TCP socket",
        higher_is_better=False,
        details={"times raw": value / baseline},
    )


@contextmanager
def answering(target: Callable[..., None], *args: Any) -> Iterator[int]:
    """Starts a process that answers on a free port, and ends it afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    context = mp.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=target, args=(port, *args, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(60):
            raise TimeoutError("the answering process did not start")
        yield port
    finally:
        process.kill()
        process.join()


# -- a bare socket ------------------------------------------------------------------------------------------------


@contextmanager
def raw_hop(width: int) -> Iterator[Hop]:
    size = HEADER + 4 * width
    data = np.random.default_rng(0).bytes(size)
    with answering(answer_raw, size) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def one() -> float:
            start = time.perf_counter()
            connection.sendall(data)
            connection.recv(ACKNOWLEDGEMENT, socket.MSG_WAITALL)
            return time.perf_counter() - start

        yield one


def answer_raw(port: int, size: int, ready: Event) -> None:
    """Receive, and answer with as many bytes as an acknowledgement has."""
    with socket.create_server(("127.0.0.1", port)) as server:
        ready.set()
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = memoryview(bytearray(size))
        while True:
            got = 0
            while got < size:
                count = connection.recv_into(room[got:])
                if not count:
                    return
                got += count
            connection.sendall(bytes(ACKNOWLEDGEMENT))


# -- the real link --------------------------------------------------------------------------------------------------


def endpoint(number: int, port: int, certificates: str) -> Endpoint:
    """Node 0 connects, node 1 listens; with mutual TLS where there is a folder of certificates."""
    from walktalk.runtimes.peers import Endpoint, credentials

    names, address = ("a", "b"), f"127.0.0.1:{port}"
    files = credentials(Path(certificates), names[number]) if certificates else None
    other = {names[1 - number]: 1 - number}
    return Endpoint("hop", names[number], number, address if number else "", other, () if number else (address,), files)


@contextmanager
def link_hop(width: int, certificates: str = "") -> Iterator[Hop]:
    from walktalk.runtimes.peers import Link, Listener, Parcel

    model = np.random.default_rng(0).standard_normal(width, dtype=np.float32).view(np.uint8)
    taken: SimpleQueue[Parcel] = SimpleQueue()
    met: SimpleQueue[int] = SimpleQueue()
    listener = Listener(arrived=lambda d: None, taken=taken.put, peer=lambda peer, alive: met.put(peer))
    with (
        answering(answer_links, width, certificates) as port,
        Link(endpoint(0, port, certificates), limits_of(width), listener) as link,
    ):
        link.start()
        met.get(timeout=30)
        parcel = Parcel(0, 1, Message("walk", walk=1), model.nbytes)

        def one() -> float:
            start = time.perf_counter()
            link.send(parcel, model)
            taken.get(timeout=120)
            return time.perf_counter() - start

        yield one


def limits_of(width: int) -> Limits:
    """Limits that let models of this many parameters pass, at any rate."""
    from walktalk.runtimes.peers import Limits

    return Limits({"walk": frozenset((4 * width,))}, messages_per_second=1e6)


def answer_links(port: int, width: int, certificates: str, ready: Event) -> None:
    """Takes every model as soon as it is whole, as a node's loop does."""
    from walktalk.runtimes.peers import Link, Listener

    inbox: SimpleQueue[Delivery] = SimpleQueue()
    listener = Listener(arrived=inbox.put, taken=lambda parcel: None, peer=lambda peer, alive: None)
    with Link(endpoint(1, port, certificates), limits_of(width), listener) as link:
        link.start()
        ready.set()
        while True:
            link.acknowledge(inbox.get())
