"""The models of one node, by slot. A tensor in a slot never changes: what is sent needs no copy of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from walktalk.protocols import TRAINED, for_statistics, with_update
from walktalk.runtimes.peers.assembly import Floats

ALL = 2**63  # of a model's numbers are parameters


class Slots:
    """Named models, each a flat float32 tensor on the CPU."""

    def __init__(self, models: Mapping[str, Tensor] | None = None, parameters: int = ALL) -> None:
        self._models: dict[str, Tensor] = dict(models or {})
        self.parameters = parameters  # what comes behind that many numbers are statistics
        self._updates: dict[str, tuple[Tensor, Tensor]] = {}  # slots that hold one: what was trained, what it became

    def __contains__(self, slot: str) -> bool:
        return slot in self._models

    def read(self, slot: str) -> Tensor:
        """The model in a slot; not to be changed."""
        return self._models[slot]

    def write(self, slot: str, model: Tensor) -> None:
        """Put a model into a slot; not to be changed afterwards."""
        self._models[slot] = model
        self._updates.pop(slot, None)

    def write_update(self, slot: str, before: Tensor, trained: Tensor) -> None:
        """Put what a training has changed into a slot."""
        self._models[slot] = trained - before
        self._updates[slot] = before, trained

    def forget(self, slot: str) -> None:
        """Drop a slot; nothing happens if there is none."""
        self._models.pop(slot, None)
        self._updates.pop(slot, None)

    def combine(self, into: str, terms: Mapping[str, float]) -> None:
        """A linear combination, added up in the order given, as the stacked executor does."""
        made = added_up(self._models, terms)
        if self.parameters < len(made):
            statistics = self._statistics(terms)
            if statistics is not None:
                made[self.parameters :] = statistics
        copied = self._updates.get(next(iter(terms))) if len(terms) == 1 else None
        self.write(into, made)
        if copied is not None and made is self._models[next(iter(terms))]:
            self._updates[into] = copied  # a plain copy of an update is one

    def _statistics(self, terms: Mapping[str, float]) -> Tensor | None:
        """What comes behind the parameters, where it is combined otherwise; see `protocols.statistics`."""
        update = next((slot for slot in terms if slot in self._updates), None)
        if update is None:
            calmer = for_statistics(terms)
            return None if calmer is terms else added_up(self._models, calmer, self.parameters)
        if len(terms) == 1:
            return None
        before, trained = self._updates[update]
        begun_with = next((slot for slot in terms if self._models[slot] is before), None)
        models = {**self._models, TRAINED: trained}
        return added_up(models, with_update(terms, update, begun_with), self.parameters)

    def everything(self) -> dict[str, Tensor]:
        """All slots, as they are now."""
        return dict(self._models)


def added_up(models: Mapping[str, Tensor], terms: Mapping[str, float], start: int = 0) -> Tensor:
    """A combination of models, from that number on."""
    total: Tensor | None = None
    for slot, weight in terms.items():
        model = models[slot][start:] if start else models[slot]
        if len(terms) == 1 and weight == 1.0:
            total = model
        elif total is None:
            total = model * weight
        else:
            total.add_(model, alpha=weight)
    if total is None:
        raise ValueError("a combination of nothing")
    return total


def to_wire(*parts: Tensor) -> Floats:
    """Tensors as one flat buffer; the first alone is not copied."""
    if len(parts) == 1:
        return np.asarray(parts[0].contiguous().numpy(), dtype="<f4")
    return np.concatenate([part.numpy() for part in parts]).astype("<f4", copy=False)


def from_wire(model: Floats, width: int) -> tuple[Tensor, Tensor | None]:
    """The model, and what travelled behind it."""
    tensor = torch.from_numpy(model)
    return tensor[:width], (tensor[width:] if len(tensor) > width else None)
