"""Whether one algorithm is better than another, from few repetitions of each; and how many more would tell.

Costs and losses differ by factors, so their logarithms are compared; accuracies as they are. The interval is Student's
for two means with spreads of their own (Welch's), with each spread taken together with what is known of spreads before
(a "moderated" t, Smyth 2004): two or three runs that agree by luck prove little, and two or three that do not need not
hide a gap of many times. What is known is from 149 algorithms in the 32 studies under results/ with three repetitions
or more: there this interval holds the difference in other repetitions 92 to 97 times of 100, where twice the standard
error does 76 to 79 (two repetitions) and 86 or 87 times (three). Repetitions share their seeds, but that makes runs of
two algorithms hardly more alike (median correlation 0.1), and pairs by repetition leave half of the degrees of freedom:
differences by pair decide less often (benchmarks/few_repetitions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import special
else:
    special = later("scipy.special")  # nodes of a cluster decide nothing

CLEAR = 0.975  # the chance of being better at which it is clear: 95 % with both sides
POWER = 0.8  # how likely a number of repetitions is to be enough
KNOWN = 1.0  # degrees of freedom that what is known of spreads counts for
SPREADS = {"accuracy": 0.02, "loss": 0.2}  # of one run; of costs and losses relative
COSTS = 0.13  # the same of iterations, time and bits
MOST = 1000  # repetitions: nobody makes more


@dataclass(frozen=True)
class Decision:
    """What repetitions say of a gap."""

    clear: bool  # whether the interval of 95 % leaves out zero
    chance: float  # that the first is really better
    needed: int | None  # repetitions of each after which it would be clear if the gap is as it seems; None: too many


def decide(measure: str, best: Sequence[float], other: Sequence[float]) -> Decision | None:
    """Whether the first is really better than the second; nothing with a single repetition of either.

    Args:
        measure: `accuracy`, which should be large, `loss`, or an axis of costs.
        best: Values of the one with the better mean, by repetition.
        other: Those of another.
    """
    if min(len(best), len(other)) < 2:
        return None
    x, y = (np.array(values, dtype=float) for values in (best, other))
    known = SPREADS.get(measure, COSTS)
    if measure == "accuracy":
        gap = float(x.mean() - y.mean())
    elif (x > 0).all() and (y > 0).all():
        x, y = np.log(x), np.log(y)
        gap = float(y.mean() - x.mean())
    else:  # a loss may be negative
        known *= max(float(np.abs(np.concatenate([x, y])).mean()), 1e-300)
        gap = float(y.mean() - x.mean())
    if x.std() == 0 and y.std() == 0:  # nothing in them is random
        return Decision(gap > 0, 1.0 if gap > 0 else 0.5, None)
    spreads = [moderated(values, known) for values in (x, y)]
    error, freedom = uncertainty(spreads, [len(x), len(y)])
    chance = float(special.stdtr(freedom, gap / error))
    clear = chance >= CLEAR
    return Decision(clear, chance, None if clear else repetitions_needed(gap, spreads, max(len(x), len(y))))


def moderated(values: np.ndarray, known: float) -> float:
    """The variance of one run: that of these, with what was known before."""
    return float((KNOWN * known**2 + ((values - values.mean()) ** 2).sum()) / (KNOWN + len(values) - 1))


def uncertainty(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    shares = [variance / count for variance, count in zip(variances, counts, strict=True)]
    freedom = sum(share**2 / (KNOWN + count - 1) for share, count in zip(shares, counts, strict=True))
    return sqrt(sum(shares)), sum(shares) ** 2 / freedom


def repetitions_needed(gap: float, variances: Sequence[float], there: int) -> int | None:
    """With how many of each a gap of this size would most likely be clear; None where nobody would make so many."""
    if not (isfinite(gap) and gap > 0):
        return None
    for count in range(there + 1, MOST + 1):
        error, freedom = uncertainty(variances, [count, count])
        if gap >= error * (float(special.stdtrit(freedom, CLEAR)) + float(special.stdtrit(freedom, POWER))):
            return count
    return None
