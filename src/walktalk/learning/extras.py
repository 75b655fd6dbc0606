"""What a protocol may ask of a training beyond the study's settings: see `protocols.effects.Train`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from walktalk.learning.optimizers import Spread, to_vector


class Extras(NamedTuple):
    """The same for all rows of a wave, but for the tensors, which have a row each."""

    steps: int  # local steps, or batches of a gradient
    gradient: bool = False  # the mean gradient over the batches is wanted, and no step is made
    correction: Tensor | None = None  # [W, P]: added to every gradient
    anchor: Tensor | None = None  # [W, P]: every step is pulled back to it
    pulls: Tensor | None = None  # [W]: by so much times the difference

    @property
    def kind(self) -> tuple[int, bool, bool, bool]:
        """What a training of this sort is made for."""
        return self.steps, self.gradient, self.correction is not None, self.anchor is not None

    def beside(self, rows: Tensor) -> Tensor:
        """Rows with these tensors behind them, as one."""
        pulls = None if self.pulls is None else self.pulls[:, None]
        return torch.cat([rows, *(t for t in (self.correction, self.anchor, pulls) if t is not None)], dim=1)


def taken_apart(kind: tuple[int, bool, bool, bool], rows: Tensor, width: int) -> tuple[Tensor, Extras]:
    """What `beside` put together, by the kind and the width of a row."""
    steps, gradient, corrected, anchored = kind
    sizes = [width] * (1 + corrected + anchored) + [1] * anchored
    parts = list(rows.split(sizes, dim=1))
    correction = parts[1] if corrected else None
    anchor, pulls = (parts[-2], parts[-1][:, 0]) if anchored else (None, None)
    return parts[0], Extras(steps, gradient, correction, anchor, pulls)


class Beside:
    """The tensors of `Extras` as vectors, and the sum of the gradients so far."""

    def __init__(self, extras: Extras, spread: Spread, width: int, device: torch.device) -> None:
        def vector(rows: Tensor | None) -> Tensor | None:
            return None if rows is None else to_vector(rows[:, :width], spread)

        self.gradient = extras.gradient
        self.correction, self.anchor = vector(extras.correction), vector(extras.anchor)
        self.pulls = None if extras.pulls is None else spread.over(extras.pulls)
        self.total = torch.zeros(spread.length, device=device)

    def corrected(self, found: Tensor, weights: Tensor) -> Tensor:
        """A gradient with what is added to it."""
        if self.gradient:
            self.total = self.total + found
        if self.correction is not None:
            found = found + self.correction
        if self.anchor is not None and self.pulls is not None:
            found = found + self.pulls * (weights - self.anchor)
        return found
