"""Rows of a matrix on a GPU, trained where they lie: of large models, copies would take as long as a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from torch import Tensor

from walktalk.learning.cuda_graph import GraphedInPlace
from walktalk.learning.optimizers import Chosen, RowSGD, Spread, to_vector

LARGE_ROW = 2**20  # numbers from which on it pays

MakeStep: TypeAlias = Callable[[Tensor, Tensor], None]  # an optimizer's, of weights and gradients
Steps: TypeAlias = Callable[[Tensor, Tensor, MakeStep, Tensor, Tensor, int, Tensor | None], None]
"""Weights as a vector, buffers, an optimizer's step, parts, keys, how many, what is added to gradients."""


class InPlaceTraining:
    """Gathers the rows of a wave, trains them, and writes each result into another row, all in one graph."""

    def __init__(
        self, optimizer: RowSGD, parameters: int, local_steps: int, spread: Callable[[int], Spread], steps: Steps
    ) -> None:
        self.optimizer, self.parameters, self.local_steps = optimizer, parameters, local_steps
        self.spread, self.steps = spread, steps
        self.graphed = GraphedInPlace()

    def __call__(
        self,
        models: Tensor,
        columns: list[Tensor],
        corrections: Tensor | None,
        states: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        """As `Trainer.train_in_place`; fails as torch does, with no row changed that is read."""
        beside = [] if corrections is None else [corrections]
        kept, moved = ([], []) if states is None else ([states[0]], [*states[1:]])

        def work(*given: Tensor) -> None:
            pair = None if states is None else (Chosen(states[0], given[-2]), Chosen(states[0], given[-1]))
            self.train(models, given[:5], given[5] if beside else None, pair)

        kind = bool(beside), states is not None
        self.graphed(kind, [models, *kept], [*columns, *beside, *moved], work)

    def train(
        self,
        models: Tensor,
        columns: tuple[Tensor, ...],
        corrections: Tensor | None,
        states: tuple[Chosen, Chosen] | None,
    ) -> None:
        """One wave. Nothing in it waits for a GPU, so that it can be captured as a graph."""
        sources, outs, parts, keys, lr = columns
        into, spread, width = Chosen(models, outs), self.spread(len(sources)), self.parameters
        weights, buffers = to_vector(Chosen(models, sources), spread), models[:, width:].index_select(0, sources)
        added = None if corrections is None else to_vector(Chosen(models, corrections), spread)
        if self.local_steps == 1 and (states is not None or not self.optimizer.momentum):
            step = partial(self.optimizer.step_between, lr=lr, spread=spread, into=into, states=states)
            self.steps(weights, buffers, step, parts, keys, 1, added)
        else:
            optimizer = self.optimizer.begin(lr, None if states is None else states[0], spread)
            self.steps(weights, buffers, optimizer.step, parts, keys, self.local_steps, added)
            into.write(weights, spread)
            if states is not None:
                optimizer.write(states[1])
        if models.shape[1] > width:
            models[:, width:].index_copy_(0, outs, buffers)
