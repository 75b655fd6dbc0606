"""The event loop alone: a schedule without training, at two sizes of network."""

from __future__ import annotations

import heapq
import random
import time
from pathlib import Path
from typing import Any

from walktalk import graphs
from walktalk.bench.result import BenchResult, Say
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.simulator import PoissonTiming, RunSetup, Simulation
from walktalk.seeds import Seed

NODES = 100_000
ITERATIONS = 100_000
TRIES = 3  # the best counts: others on the machine can only make it slower


def events(say: Say) -> BenchResult:
    """Events/s of Multi-Walk with V/10 walks at V = 100,000, against a bare heap of the same size."""
    details: dict[str, Any] = {"nodes": NODES}
    rates = {}
    for nodes in (NODES // 100, NODES):
        graph = graphs.random_regular(nodes, 4, seed=0)
        for protocol in (MultiWalk(nodes // 10), AsyncGossip()):
            say(f"{protocol.name} on {nodes:,} nodes")
            measured = [planned_events(protocol, graph) for _ in range(TRIES)]
            rates[nodes, protocol.name] = max(rate for rate, _ in measured)
            details[f"{protocol.name}, {nodes} nodes"] = rates[nodes, protocol.name]
            details[f"{protocol.name}, {nodes} nodes, bytes per node"] = max(size for _, size in measured) // nodes
    say("a bare heap")
    baseline = max(bare_heap_per_second(NODES // 10) for _ in range(TRIES))
    return BenchResult(
        "events",
        rates[NODES, "multi_walk"],
        baseline,
        "events per CPU second",
        f"schedule-only simulation, V = {NODES:,}, R = V/10",
        "a bare heap: pop one entry, push one",
        details=details,
    )


def planned_events(protocol: Protocol, graph: graphs.Graph, iterations: int = ITERATIONS) -> tuple[float, int]:
    """Events a second of a run without arithmetic, and the bytes that it takes."""
    setup = RunSetup(
        protocol,
        graph,
        Seed(0),
        Stop(iterations=iterations),
        PoissonTiming(),
        model_bytes=19_240,
        keep_trace=False,
        keep_schedule=False,
    )
    before = resident_bytes()
    simulation = Simulation(setup)
    began = time.process_time()
    simulation.advance()
    seconds = time.process_time() - began
    return simulation.events / seconds, max(0, resident_bytes() - before)


def bare_heap_per_second(size: int, rounds: int = 300_000) -> float:
    """What Python's own heap can do, as a ceiling for any event loop in Python."""
    rng = random.Random(0)
    heap = [(rng.random(), n) for n in range(size)]
    heapq.heapify(heap)
    began = time.process_time()
    for n in range(rounds):
        now, _ = heapq.heappop(heap)
        heapq.heappush(heap, (now + rng.random(), n))
    return rounds / (time.process_time() - began)


def resident_bytes() -> int:
    """Memory of this process now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
