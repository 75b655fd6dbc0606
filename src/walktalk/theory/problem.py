"""What the bounds need to know about the task: F, L, σ² and ζ² (Assumptions 1 to 3), and δ where it is known."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from walktalk.errors import SpecError


@dataclass(frozen=True)
class Problem:
    """The constants of a task. All 1 by default: then only the network speaks."""

    F: float = 1.0  # f(x₀) − f*, what there is to gain
    L: float = 1.0  # smoothness: how fast a gradient changes
    sigma2: float = 1.0  # σ², the variance of a mini-batch gradient at a node
    zeta2: float = 1.0  # ζ², how far a node's gradient is from the mean over nodes, squared
    delta: float | None = None  # δ, how fast that difference changes with the model; None: as fast as L allows

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise SpecError(f"{field.name} = {value!r}, but it must be a number, 0 or more")
        if self.L == 0:
            raise SpecError("L = 0, but it must be more than 0")

    @property
    def curvature_difference(self) -> float:
        """δ: 2L where nothing is known of it."""
        return 2 * self.L if self.delta is None else self.delta
