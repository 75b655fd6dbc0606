"""What the arithmetic asks of whoever trains rows: `learning.Trainer`, or anything like it."""

from __future__ import annotations

from typing import Protocol as Interface

import torch
from torch import Tensor

from walktalk.errors import SpecError
from walktalk.learning import Extras
from walktalk.protocols import Protocol


class RowTrainer(Interface):
    """What the executor asks of `learning.Trainer`."""

    width: int
    state_width: int
    local_steps: int
    device: torch.device

    def train(
        self,
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None = None,
        extras: Extras | None = None,
    ) -> tuple[Tensor, Tensor | None]: ...

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]: ...


def parameters_of(trainer: RowTrainer) -> int:
    """How many of a row's numbers are parameters; what comes behind them are statistics."""
    count: int = getattr(trainer, "parameters", trainer.width)
    return count


class Averaging(Interface):
    """How means of models are made, where that is more than a sum of their numbers."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Σ_k weights[k] · model k, as one row, of rows [K, width]."""


def averaging_of(trainer: RowTrainer, protocol: Protocol | None = None) -> Averaging | None:
    """That of the trainer's models; a `SpecError` where the protocol adds up other things than models as means."""
    found: Averaging | None = getattr(trainer, "averaging", None)
    if found is not None and protocol is not None and not protocol.means_of_models:
        raise SpecError(
            f"task.adapter.mixing: product is for walks and gossip; {protocol.label} mixes more than models, so take "
            "factors or freeze-a"
        )
    return found
