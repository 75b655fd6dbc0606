"""Benchmarks, each with its baseline measured in the same run. `walktalk bench NAME` runs them."""

from collections.abc import Callable

from walktalk.bench.events import events
from walktalk.bench.result import BenchResult
from walktalk.bench.simulator import simulator

BENCHMARKS: dict[str, Callable[[], BenchResult]] = {"simulator": simulator, "events": events}

__all__ = ["BENCHMARKS", "BenchResult"]
