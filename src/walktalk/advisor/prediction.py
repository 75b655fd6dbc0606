"""What runs that were made say about one to come: its expected value, and between which it will lie 95 times of 100.

Costs and losses differ by factors, so their logarithms are taken as normal: the interval is Student's for one more
value beside n that were seen, and at least as wide as what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt

import numpy as np
from scipy.special import stdtrit

COVERS = 0.95  # of runs to come
LEAST_SPREAD = 0.02  # of one run, relative: some that agree by luck prove nothing
ONE_RUN = 0.3  # the relative spread that is assumed where nothing was repeated
GUESSED = 4.0  # times wider where no run has got there


@dataclass(frozen=True)
class Prediction:
    """A number of a run to come."""

    value: float  # on average
    low: float  # 95 % of runs lie between this
    high: float  # and this

    def times(self, factor: float) -> Prediction:
        """In another unit."""
        return Prediction(self.value * factor, self.low * factor, self.high * factor)


def predict(seen: Sequence[float], guessed: bool = False) -> Prediction:
    """From what runs with other randomness have shown.

    Args:
        seen: Their costs, or their losses.
        guessed: Whether none has really got there, and these are extrapolations.
    """
    values = np.array([value for value in seen if np.isfinite(value)], dtype=float)
    if len(values) == 0:
        return Prediction(inf, 0.0, inf)
    logs = bool((values > 0).all())  # a loss may be negative
    x = np.log(values) if logs else values
    scale = 1.0 if logs else max(float(np.abs(values).mean()), 1e-12)
    n = len(x)
    spread = ONE_RUN * scale if n == 1 else max(float(x.std(ddof=1)), LEAST_SPREAD * scale)
    reach = float(stdtrit(max(n - 1, 1) if n > 1 else 5, 0.5 + COVERS / 2)) * spread * sqrt(1 + 1 / n)
    reach *= GUESSED if guessed else 1.0
    low, high = float(x.mean()) - reach, float(x.mean()) + reach
    if logs:
        low, high = exp(low), exp(min(high, 700.0))
    mean = float(values.mean())
    return Prediction(mean, min(low, float(values.min())), max(high, float(values.max())))
