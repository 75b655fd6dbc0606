"""The models of one node, by slot. A tensor in a slot never changes: what is sent needs no copy of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from walktalk.protocols import for_statistics
from walktalk.runtimes.peers.assembly import Floats

ALL = 2**63  # of a model's numbers are parameters


class Slots:
    """Named models, each a flat float32 tensor on the CPU."""

    def __init__(self, models: Mapping[str, Tensor] | None = None, parameters: int = ALL) -> None:
        self._models: dict[str, Tensor] = dict(models or {})
        self.parameters = parameters  # what comes behind that many numbers are statistics

    def __contains__(self, slot: str) -> bool:
        return slot in self._models

    def read(self, slot: str) -> Tensor:
        """The model in a slot; not to be changed."""
        return self._models[slot]

    def write(self, slot: str, model: Tensor) -> None:
        """Put a model into a slot; not to be changed afterwards."""
        self._models[slot] = model

    def forget(self, slot: str) -> None:
        """Drop a slot; nothing happens if there is none."""
        self._models.pop(slot, None)

    def combine(self, into: str, terms: Mapping[str, float]) -> None:
        """A linear combination, added up in the order given, as the stacked executor does."""
        made = self._added_up(terms)
        calmer = for_statistics(terms)
        if calmer is not terms and self.parameters < len(made):
            made[self.parameters :] = self._added_up(calmer, self.parameters)
        self._models[into] = made

    def _added_up(self, terms: Mapping[str, float], start: int = 0) -> Tensor:
        """Of the numbers from there on."""
        total: Tensor | None = None
        for slot, weight in terms.items():
            model = self._models[slot][start:]
            if len(terms) == 1 and weight == 1.0:
                total = model
            elif total is None:
                total = model * weight
            else:
                total.add_(model, alpha=weight)
        if total is None:
            raise ValueError("a combination of nothing")
        return total

    def everything(self) -> dict[str, Tensor]:
        """All slots, as they are now."""
        return dict(self._models)


def to_wire(*parts: Tensor) -> Floats:
    """Tensors as one flat buffer; the first alone is not copied."""
    if len(parts) == 1:
        return np.asarray(parts[0].contiguous().numpy(), dtype="<f4")
    return np.concatenate([part.numpy() for part in parts]).astype("<f4", copy=False)


def from_wire(model: Floats, width: int) -> tuple[Tensor, Tensor | None]:
    """The model, and what travelled behind it."""
    tensor = torch.from_numpy(model)
    return tensor[:width], (tensor[width:] if len(tensor) > width else None)
