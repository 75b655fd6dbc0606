"""A trainer small enough to be sure of: f_v(x) = ½ (x − b_v)ᵀ diag(a) (x − b_v), exact gradients, plain SGD."""

from __future__ import annotations

import time
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from walktalk.learning import TrainingRows

Floats: TypeAlias = npt.NDArray[np.float64]


class QuadraticTrainer:
    """Implements what the executor asks for, in a few lines, and keeps every row it was asked to evaluate."""

    def __init__(self, nodes: int, dimension: int = 5, steps: int = 3, seed: int = 0, momentum: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        self.curvature = rng.uniform(0.2, 1.0, dimension)
        self.centres = rng.normal(size=(nodes, dimension)) * 3
        self.centres = np.vstack([self.centres, self.centres.mean(0)])  # the last: everybody's data
        self.steps = self.local_steps = steps
        self.samples = [1] * nodes
        self.momentum = momentum
        self.width = dimension
        self.state_width = dimension if momentum else 0
        self.device = torch.device("cpu")
        self.evaluated: list[Floats] = []
        self.widths: list[int] = []

    def initial(self) -> Tensor:
        return torch.linspace(-2.0, 2.0, self.width)

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        """Plain gradient descent from every row, with what `Extras` ask for."""
        rows, parts, _, lr, state, extras, _ = given
        self.widths.append(len(rows))
        a = torch.tensor(self.curvature, dtype=torch.float32)
        b = torch.tensor(self.centres, dtype=torch.float32)[parts]
        if extras is not None and extras.gradient:
            return a * (rows - b), state
        x, velocity = rows.clone(), torch.zeros_like(rows) if state is None else state.clone()
        for _ in range(self.steps if extras is None else extras.steps):
            gradient = a * (x - b)
            if extras is not None and extras.correction is not None:
                gradient = gradient + extras.correction
            if extras is not None and extras.anchor is not None:
                assert extras.pulls is not None
                gradient = gradient + extras.pulls[:, None] * (x - extras.anchor)
            velocity = self.momentum * velocity + gradient
            x = x - lr[:, None] * velocity
        return x, velocity if state is not None else None

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        self.evaluated += [row.double().numpy() for row in rows]
        a, b = torch.tensor(self.curvature), torch.tensor(self.centres[:-1])
        losses = 0.5 * (a * (rows[:, None, :].double() - b) ** 2).sum(2).mean(1)
        return losses.float(), torch.full((len(rows),), float("nan"))


class SlowTrainer(QuadraticTrainer):
    """A trainer that takes a moment for each training, as real ones do."""

    seconds = 0.01

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        time.sleep(self.seconds)
        return super().train(given)


class MeasuringTrainer(QuadraticTrainer):
    """Behind its parameters a model carries a variance, which each training moves towards that of the node's data."""

    def __init__(self, nodes: int, seed: int = 0) -> None:
        super().__init__(nodes, seed=seed)
        self.parameters = self.width
        self.width += 1
        self.variances = np.geomspace(0.01, 100.0, nodes + 1)

    def initial(self) -> Tensor:
        return torch.cat((torch.linspace(-2.0, 2.0, self.parameters), torch.ones(1)))

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        rows, extras = given.rows, given.extras
        if extras is not None:
            beside = [None if t is None else t[:, : self.parameters] for t in (extras.correction, extras.anchor)]
            extras = extras._replace(correction=beside[0], anchor=beside[1])
        trained, state = super().train(given._replace(rows=rows[:, : self.parameters], extras=extras))
        here = torch.tensor(self.variances, dtype=torch.float32)[given.parts]
        return torch.cat((trained, (0.3 * rows[:, -1] + 0.7 * here)[:, None]), 1), state

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        kept = len(self.evaluated)
        losses = super().evaluate(rows[:, : self.parameters])
        self.evaluated[kept:] = [row.double().numpy() for row in rows]
        return losses
