"""The event loop alone: a schedule without training, at two sizes of network."""

from __future__ import annotations

import heapq
import random
import resource
import time
from typing import Any

from walktalk import graphs
from walktalk.bench.result import BenchResult
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.simulator import PoissonTiming, RunSetup, Simulation, Stop
from walktalk.seeds import Seed

NODES = 100_000
ITERATIONS = 100_000


def events() -> BenchResult:
    """Events/s of Multi-Walk with V/10 walks at V = 100,000, against a bare heap of the same size."""
    details: dict[str, Any] = {"nodes": NODES}
    rates = {}
    for nodes in (NODES // 100, NODES):
        graph = graphs.random_regular(nodes, 4, seed=0)
        for protocol in (MultiWalk(nodes // 10), AsyncGossip()):
            rates[nodes, protocol.name] = events_per_second(protocol, graph)
            details[f"{protocol.name}, {nodes} nodes"] = rates[nodes, protocol.name]
    details["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return BenchResult(
        "events", rates[NODES, "multi_walk"], bare_heap_per_second(NODES // 10), "events/s",
        f"schedule-only simulation, V = {NODES:,}, R = V/10", "a bare heap: pop one entry, push one", details=details,
    )  # fmt: skip


def events_per_second(protocol: Protocol, graph: graphs.Graph) -> float:
    setup = RunSetup(
        protocol, graph, Seed(0), Stop(iterations=ITERATIONS), PoissonTiming(), model_bytes=19_240,
        keep_trace=False, keep_schedule=False,
    )  # fmt: skip
    simulation = Simulation(setup)
    began = time.perf_counter()
    simulation.advance()
    return simulation.events / (time.perf_counter() - began)


def bare_heap_per_second(size: int, rounds: int = 300_000) -> float:
    """What Python's own heap can do, as a ceiling for any event loop in Python."""
    rng = random.Random(0)
    heap = [(rng.random(), n) for n in range(size)]
    heapq.heapify(heap)
    began = time.perf_counter()
    for n in range(rounds):
        now, _ = heapq.heappop(heap)
        heapq.heappush(heap, (now + rng.random(), n))
    return rounds / (time.perf_counter() - began)
