"""Networks from a hundred to a million nodes: the event loop, what training costs a node, and theory."""

from __future__ import annotations

import heapq
import math
import multiprocessing
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from walktalk import graphs
from walktalk.chains import metropolis_hastings, return_time, spectrum
from walktalk.core.seeds import Seed
from walktalk.learning import OptimizerSpec, Task, Trainer, tasks
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import PoissonTiming, RunSetup, Simulation
from walktalk.studies import PlannedRun, Runner
from walktalk.testing.bench.suites import BenchResult, Say

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


# -- from a hundred nodes to ten thousand: what an iteration and a node cost, training included -----------------------
#
# Every case runs in a process of its own, so that its peak memory is its own. The data grow with the network, eight
# samples a node, drawn from the digits with a little noise; the model is the digits model. Every node trains at least
# ten times, and all models are measured after every second time.

SIZES = (100, 1_000, 10_000)
LEAST_ITERATIONS = 20_000  # at least
VISITS = 10  # of every node, on average, at least: then what a node costs once hardly counts, its machine and first row
EVALUATED_AFTER = 2  # visits of every node
SAMPLES_A_NODE = 8


def growth(say: Say) -> BenchResult:
    """CPU time of an iteration at 10,000 nodes against the same at 100; the worse of walks and gossip."""
    details: dict[str, Any] = {}
    times: dict[str, list[float]] = {}
    for name in ("multi_walk", "async_gossip"):
        for nodes in SIZES:
            say(f"{name} on {nodes:,} nodes")
            case = in_own_process(name, nodes)
            times.setdefault(name, []).append(case["seconds"])
            label = f"{name}, {nodes} nodes"
            details[f"{label}: µs per iteration"] = 1e6 * case["seconds"]
            details[f"{label}: KB per node"] = case["bytes"] / nodes / 1e3
            details[f"{label}: peak MB"] = case["peak"] / 1e6
    worst = max(times.values(), key=lambda t: t[-1] / t[0])
    return BenchResult(
        "growth",
        1e6 * worst[-1],
        1e6 * worst[0],
        "µs per iteration",
        f"CPU time at {SIZES[-1]:,} nodes",
        f"the same at {SIZES[0]} nodes; a ratio of 0.67 or more is flat within 1.5 times",
        higher_is_better=False,
        details=details,
    )


def in_own_process(name: str, nodes: int) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(grown, name, nodes).result()


def grown(name: str, nodes: int) -> dict[str, float]:
    """One case: CPU seconds of an iteration, the peak of its memory, and how much of that came with the run."""
    torch.set_num_threads(1)
    protocol: Protocol = MultiWalk(max(1, nodes // 10)) if name == "multi_walk" else AsyncGossip()
    iterations = max(LEAST_ITERATIONS, VISITS * nodes)
    before = resident_bytes()
    trainer = Trainer(digits_for(nodes), batch_size=32, local_steps=5, optimizer=OptimizerSpec(lr=0.05))
    setup = RunSetup(
        protocol,
        graphs.random_regular(nodes, 4, seed=0),
        Seed(0),
        Stop(iterations=iterations),
        evaluate=Evaluate(every=EVALUATED_AFTER * nodes),
        model_bytes=trainer.payload_bytes,
        state_bytes=trainer.state_bytes,
        keep_trace=False,
    )
    runner = Runner(trainer, [PlannedRun(protocol.label, 0, setup, trainer.initial_row(0))])
    began = time.process_time()
    runner.run()
    seconds = (time.process_time() - began) / iterations
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "peak": peak, "bytes": peak - before}


def digits_for(nodes: int) -> Task:
    """Digits for any number of nodes: drawn with replacement, with a little noise."""
    source, rng = tasks.digits(nodes=1, seed=0), np.random.default_rng(0)
    chosen = torch.from_numpy(rng.integers(0, len(source.inputs), nodes * SAMPLES_A_NODE))
    noise = torch.from_numpy(rng.normal(0.0, 0.05, (len(chosen), 64)).astype(np.float32))
    inputs, targets = source.inputs[chosen] + noise, source.targets[chosen]
    parts = zip(inputs.split(SAMPLES_A_NODE), targets.split(SAMPLES_A_NODE), strict=True)
    return tasks.torch(source.model, source.loss, list(parts), source.test, fresh=True)


# -- theory at a million nodes: spectral gap and return time, against dense linear algebra ----------------------------

TORUS_SIDE = 1_000  # a torus of a million nodes
DENSE_SIDE = 40  # a torus of 1,600 nodes: the dense way takes a second


def theory(say: Say) -> BenchResult:
    """Nodes/s of the gap p and the return time's second moment on a torus of a million nodes."""
    say(f"{TORUS_SIDE * TORUS_SIDE:,} nodes, sparse; about half a minute")
    began = time.process_time()
    chain = metropolis_hastings(graphs.torus(TORUS_SIDE, TORUS_SIDE))
    gap = spectrum(chain).p
    moment = return_time(chain, 0).second_moment
    seconds = time.process_time() - began
    say(f"{DENSE_SIDE**2:,} nodes, dense")
    began = time.process_time()
    dense_gap, dense_moment = dense_quantities(DENSE_SIDE)
    dense_seconds = time.process_time() - began
    known = closed_form_gap(TORUS_SIDE)
    details = {
        "seconds": seconds,
        "p": gap,
        "relative error of p": abs(gap - known) / known,
        "H2": moment,
        "dense seconds": dense_seconds,
        "dense p": dense_gap,
        "dense H2": dense_moment,
    }
    return BenchResult(
        "theory",
        TORUS_SIDE * TORUS_SIDE / seconds,
        DENSE_SIDE**2 / dense_seconds,
        "nodes per CPU second",
        f"gap and return time on a torus of {TORUS_SIDE * TORUS_SIDE:,} nodes",
        f"NumPy's dense eigenvalues and solve on {DENSE_SIDE**2:,} nodes; its cost a node grows as V²",
        details=details,
    )


def dense_quantities(side: int) -> tuple[float, float]:
    """p and the second moment of node 0's return time, as the formulas are written."""
    matrix = metropolis_hastings(graphs.torus(side, side)).matrix.toarray()
    values = np.linalg.eigvalsh(matrix)
    rest = np.eye(len(matrix) - 1) - matrix[1:, 1:]
    hitting = np.linalg.solve(rest, np.ones(len(rest)))
    second = np.linalg.solve(rest, 2 * hitting - 1)  # E[T²] = 1 + 2 P E[T] + P E[T²]
    moment = 1 + 2 * matrix[0, 1:] @ hitting + matrix[0, 1:] @ second
    return float(1 - max(values[-2], -values[0]) ** 2), float(moment)


def closed_form_gap(side: int) -> float:
    """p = 1 − λ₂² of the torus, all weights 1/5: λ₂ = (3 + 2 cos(2π/n)) / 5."""
    return 1 - ((3 + 2 * math.cos(2 * math.pi / side)) / 5) ** 2
