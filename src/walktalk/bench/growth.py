"""From a hundred nodes to ten thousand: what an iteration and a node cost, training included.

Every case runs in a process of its own, so that its peak memory is its own. The data grow with the network, eight
samples a node, drawn from the digits with a little noise; the model is the digits model. Every node trains at least
ten times, and all models are measured after every second time.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch

from walktalk import graphs
from walktalk.bench.events import resident_bytes
from walktalk.bench.result import BenchResult, Say
from walktalk.learning import OptimizerSpec, Task, Trainer, tasks
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.seeds import Seed
from walktalk.studies import PlannedRun, Runner

SIZES = (100, 1_000, 10_000)
ITERATIONS = 20_000  # at least
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
    iterations = max(ITERATIONS, VISITS * nodes)
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
