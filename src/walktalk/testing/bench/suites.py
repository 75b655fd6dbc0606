"""The benchmarks by name, and what each gives: a value, the baseline measured in the same run, and their ratio.

Seconds depend on the machine and on who else uses it; a ratio of two things measured side by side hardly does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, TypeAlias, cast

from walktalk.core.errors import UserError

BENCHMARKS = {
    "simulator": "training",
    "gossip": "training",
    "executor": "training",
    "events": "large_networks",
    "growth": "large_networks",
    "theory": "large_networks",
    "hop": "hop",
}
"""The module of each benchmark, where it is the function of this name. Modules import torch, so they wait."""

STEADY = 0.10  # by how much baselines may differ around a measurement
Say: TypeAlias = Callable[[str], None]  # is told what is being measured
Benchmark: TypeAlias = "Callable[..., BenchResult]"  # of `Say`; the executor also takes a model


@dataclass(frozen=True)
class BenchResult:
    """What a benchmark measured, beside its baseline."""

    name: str
    value: float  # what was measured
    baseline: float  # the plain way to do the same, measured in the same run
    unit: str
    what: str  # what the value is, for a person
    against: str  # what the baseline is
    higher_is_better: bool = True
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times better than the baseline."""
        return self.value / self.baseline if self.higher_is_better else self.baseline / self.value

    @staticmethod
    def of_steady(before: float, after: float, unit: str) -> float:
        """The baseline of a measurement, from those before and behind it; a `UserError` where they are too far apart.

        Beside other work seconds of a clock say nothing: a ratio of 28.9 was seen where 7 is right, between baselines
        of 183 and 1,965.
        """
        if max(before, after) > (1.0 + STEADY) * min(before, after):
            raise UserError(
                f"this machine is too busy to measure on: the baseline was {before:,.0f} {unit} before and "
                f"{after:,.0f} afterwards; allowed: {STEADY:.0%} between them. Try again when nothing else runs."
            )
        return (before + after) / 2

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name; a `UserError` lists all where there is none."""
    if name not in BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}; allowed: {', '.join(BENCHMARKS)}")
    return cast(Benchmark, getattr(import_module(f"walktalk.testing.bench.{BENCHMARKS[name]}"), name))
