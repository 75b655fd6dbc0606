"""What a figure says of a specification as it is written: the setting, and where the learning rate falls.

A curve that suddenly bends where the rate falls has learned nothing new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from walktalk import plots

STOPS: dict[str, plots.Axis] = {"iterations": "iteration", "time": "time", "bits": "bits"}
TASKS = {
    "cifar10": "CIFAR-10 with ResNet-20",
    "fashion_mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "digits": "Handwritten digits",
    "mnli": "MultiNLI",
}
IN_WORDS = {0.1: "to a tenth", 0.5: "to a half"}


def setting_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The task, V and α, from a specification as it is written."""
    task, nodes = spec.get("task", {}), spec.get("network", {}).get("nodes")
    name = str(task.get("name", ""))
    parts = (
        TASKS.get(name, name),
        f"V = {nodes} nodes" if nodes else "",
        f"α = {task['alpha']:g}" if task.get("alpha") is not None else "",
    )
    return tuple(part for part in parts if part)


@dataclass(frozen=True)
class RateFalls:
    """Shares of a run at which its learning rate is multiplied by a factor."""

    axis: plots.Axis  # on which a run's length is set
    length: float
    shares: tuple[float, ...]
    factor: float

    @property
    def places(self) -> list[float]:
        return [share * self.length for share in self.shares]


def rate_falls(spec: Mapping[str, Any]) -> RateFalls | None:
    """From a specification as it is written; none if it does not fall, or if the run's end depends on the run."""
    schedule = spec.get("schedule") or {}
    shares = tuple(float(share) for share in schedule.get("decay_at") or ())
    ends = {name: value for name, value in (spec.get("stop") or {}).items() if value is not None}
    if not shares or len(ends) != 1 or not set(ends) <= set(STOPS):
        return None
    ((name, length),) = ends.items()
    return RateFalls(STOPS[name], float(length), shares, float(schedule.get("factor", 0.1)))


def fall_words(falls: Iterable[RateFalls], *, marked: bool) -> str:
    """A sentence for the note; nothing if no rate falls, or not everywhere alike."""
    kinds = {(one.shares, one.factor) for one in falls}
    if len(kinds) != 1:
        return "Dotted: the learning rate falls." if marked else ""
    ((shares, factor),) = kinds
    by = IN_WORDS.get(factor, f"to {factor:g} times what it was")
    at = " and ".join(f"{100 * share:g} %" for share in shares)
    return (
        f"Dotted: the learning rate falls {by}, at {at} of a run."
        if marked
        else (f"The learning rate falls {by} at {at} of a run.")
    )
