"""How sure it is that nobody else is much better, from the repetitions of each."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log, sqrt

import numpy as np
from scipy.special import stdtr

WITHIN = 1.1  # "as good as": within 10 % of the best
LEAST_SPREAD = 0.05  # of one repetition's cost, relative: two that agree by luck prove nothing
ONE_RUN = 0.15  # the relative spread that is assumed where nothing was repeated
ASSUMED = 5.0  # degrees of freedom that such an assumption counts for


def surety(best: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """The probability that no other is really more than 10 % better, with Student's errors of the log means.

    Args:
        best: Costs, or losses, of the one that is advised, by repetition.
        others: Those of every other; one without any takes no part.
    """
    spread, freedom = log_spread([best, *others])
    sure, mean = 1.0, float(np.mean(best)) if len(best) else 0.0
    for other in others:
        theirs = float(np.mean(other)) if len(other) else np.inf
        if mean > 0 and isfinite(theirs):
            gap = log(WITHIN * theirs / mean)
            sure *= float(stdtr(freedom, gap / (spread * sqrt(1 / len(best) + 1 / len(other)))))
    return sure


def log_spread(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The relative spread of one repetition, pooled over all, and its degrees of freedom."""
    logs = [np.log(np.maximum(of, 1e-300)) for of in values if len(of) > 1]
    freedom = sum(len(of) - 1 for of in logs)
    if not freedom:
        return ONE_RUN, ASSUMED
    squares = sum(float(((of - of.mean()) ** 2).sum()) for of in logs)
    return max(LEAST_SPREAD, sqrt(squares / freedom)), max(float(freedom), 2.0)
