"""How many models fit into a wave: measured on one, before any training, so that no study dies of memory half-way."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.learning.frozen import to_training
from walktalk.learning.stacked import StackedModel, seeded

CPU_BYTES = 2**31  # of a wave's activations; more only leaves the caches
GPU_SHARE = 0.4  # of a GPU's memory: the study's models and the data need the rest


def rows_that_fit(model: StackedModel, row: Tensor, inputs: Tensor, targets: Tensor) -> int | None:
    """The widest wave whose activations fit, for batches like this one; None where they do not count."""
    if model.rows_at_once is not None:
        return model.rows_at_once
    each = activation_bytes(model, row, inputs, targets)
    return None if each == 0 else max(1, int(allowance(row.device) / each))


def allowance(device: torch.device) -> float:
    if device.type != "cuda":
        return float(CPU_BYTES)
    return GPU_SHARE * torch.cuda.get_device_properties(device).total_memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch could not get memory: on a GPU it has an exception for that, on a CPU only words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def activation_bytes(model: StackedModel, row: Tensor, inputs: Tensor, targets: Tensor) -> int:
    """What one model's forward pass keeps for its backward pass, each piece of memory counted once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    one = to_training(model.layout.module(model.module, row))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), seeded(0, row.device):
        with model.arithmetic.forward(row.device):
            outputs = one(inputs)
        model.loss(outputs.float(), targets)
    return sum(kept.values())
