"""How the numbers are mixed that a model carries beside its weights: BatchNorm's running means and variances.

Weights learn by increments, and protocols add them up: u + (x − uʳ)/R where walks are mixed (line 8 of Algorithm 1),
the model and an update, trained minus received, everywhere. A statistic is no sum of increments, and a variance that is
treated as one can fall below zero, after which the model says nothing but NaN. So for statistics

- what is taken away of one model is taken from the one that is added to: (1 − 1/R) u + x/R;
- an update is the trained model itself. It takes the place of the model that the training began with, where that is
  still there, and counts half where it has been mixed with others meanwhile.

All weights are then at least 0, and sum to what they did.
"""

from __future__ import annotations

from collections.abc import Mapping

TRAINED = "\0trained"  # names the trained model of the update in a combination


def for_statistics(terms: Mapping[str, float]) -> Mapping[str, float]:
    """The weights with which models are combined where it comes to statistics; the same object if none is negative."""
    taken = sum(weight for weight in terms.values() if weight < 0)
    if not taken:
        return terms
    base = max(terms, key=terms.__getitem__)
    return {slot: weight + taken if slot == base else weight for slot, weight in terms.items() if weight > 0}


def with_update(terms: Mapping[str, float], update: str, begun_with: str | None) -> dict[str, float]:
    """The same for a combination with an update; `begun_with` is the slot that still holds what was trained, if any."""
    rest = {slot: weight for slot, weight in terms.items() if slot != update}
    if begun_with is not None:
        return {TRAINED if slot == begun_with else slot: weight for slot, weight in rest.items()}
    return {**{slot: weight / 2 for slot, weight in rest.items()}, TRAINED: sum(rest.values()) / 2}
