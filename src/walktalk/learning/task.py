"""A task: one model, one loss, and data that is split over nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.errors import DataError

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> mean loss, as F.cross_entropy
Lengths: TypeAlias = Callable[
    [Tensor], Tensor
]  # inputs [B, T, …] -> [B]: what is behind is padding, and changes nothing
Augment: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # (inputs [W, B, …], keys [W], step) -> inputs


@dataclass
class Task:
    """What is learned, and who has which samples."""

    name: str
    model: nn.Module  # the architecture; its weights are replaced by `initial`, unless it is pretrained
    loss: Loss
    inputs: Tensor  # all training samples
    targets: Tensor
    parts: list[np.ndarray]  # node -> indices of its samples; disjoint, none empty
    test: tuple[Tensor, Tensor] | None = None
    facts: dict[str, float] = field(default_factory=dict)  # what is known exactly, e.g. the smoothness of a quadratic
    labels: np.ndarray | None = None  # the class of each sample, for pictures of the partition
    pretrained: bool = False  # whether every run starts from the weights that the model has
    augment: Augment | None = None  # changes batches in training; random by the rows' keys alone (`sampling.hashed`)
    lengths: Lengths | None = None  # of samples that are padded: a large model then need not be given all of it
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.parts:
            raise DataError(f"task {self.name}: there is no node; at least one part is needed")
        empty = [node for node, part in enumerate(self.parts) if len(part) == 0]
        if empty:
            raise DataError(f"task {self.name}: node {empty[0]} has no samples; every node needs at least one")
        if len(self.inputs) != len(self.targets):
            raise DataError(f"task {self.name}: {len(self.inputs)} inputs but {len(self.targets)} targets")

    @property
    def nodes(self) -> int:
        return len(self.parts)

    def initial(self, seed: int) -> nn.Module:
        """A model with fresh weights, the same for the same seed; torch's own random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            model = copy.deepcopy(self.model)
            if not self.pretrained:
                for module in model.modules():
                    reset = getattr(module, "reset_parameters", None)
                    if callable(reset):
                        reset()
        return model
