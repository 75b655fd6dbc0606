"""How the numbers are mixed that a model carries beside its weights: BatchNorm's running means and variances.

Line 8 of Algorithm 1 adds what a walk has learned to a copy: u + (x − uʳ)/R. For weights that is the point. A statistic
is no sum of increments, and a variance that is treated as one can fall below zero, after which the model says nothing
but NaN. So what is taken away of one model is taken from the one that is added to instead: (1 − 1/R) u + x/R. All
weights are then at least 0 and still sum to one; combinations that were so before are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping


def for_statistics(terms: Mapping[str, float]) -> Mapping[str, float]:
    """The weights with which slots are combined where it comes to statistics; the same object where nothing differs."""
    taken = sum(weight for weight in terms.values() if weight < 0)
    if not taken:
        return terms
    base = max(terms, key=terms.__getitem__)
    return {slot: weight + taken if slot == base else weight for slot, weight in terms.items() if weight > 0}
