"""Benchmarks, each with its baseline measured in the same run. `walktalk bench NAME` runs them."""

from walktalk.bench.events import events
from walktalk.bench.executor import executor
from walktalk.bench.growth import growth
from walktalk.bench.hop import hop
from walktalk.bench.result import Benchmark, BenchResult, Say
from walktalk.bench.simulator import gossip, simulator
from walktalk.bench.theory import theory
from walktalk.lazy import listing

BENCHMARKS: dict[str, Benchmark] = {
    "simulator": simulator,
    "gossip": gossip,
    "executor": executor,
    "events": events,
    "growth": growth,
    "theory": theory,
    "hop": hop,
}

__all__ = ["BENCHMARKS", "BenchResult", "Benchmark", "Say"]

__dir__ = listing(__all__)
