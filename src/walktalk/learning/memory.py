"""How many models fit into a wave: measured on one, before any training, so that no study dies of memory half-way."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.errors import UnavailableError
from walktalk.learning.frozen import to_training
from walktalk.learning.stacked import JoinedModel, Pass, StackedModel, seeded

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


def fewer_rows(rows: int, task: str, device: torch.device, error: RuntimeError) -> int:
    """Half as many rows at once from now on: what was planned did not fit after all."""
    if rows == 1:
        raise UnavailableError(
            f"{task}: not even one model fits into the memory that is free on {device} "
            f"({' '.join(str(error).split())}); take a smaller batch_size or model, or end what else uses it"
        ) from error
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return (rows + 1) // 2


def activation_bytes(model: StackedModel, row: Tensor, inputs: Tensor, targets: Tensor) -> int:
    """What one model's forward pass keeps for its backward pass, each piece of memory counted once.

    What is frozen does not count: it is there once, however wide a wave is.
    """
    kept: dict[int, int] = {}
    frozen = {p.untyped_storage().data_ptr() for p in model.module.parameters() if not p.requires_grad}
    if isinstance(model, JoinedModel):
        frozen |= {p.untyped_storage().data_ptr() for p in model.worker.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in frozen:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def outputs() -> Tensor:
        if not isinstance(model, JoinedModel):
            found: Tensor = to_training(model.layout.module(model.module, row))(inputs)
            return found
        tensors = model.layout.views(row[None].requires_grad_(), [*model.layout.parameters, *model.layout.buffers])
        return model.passed(inputs[None], Pass(tensors, True, torch.zeros(1, dtype=torch.int64, device=row.device)))[0]

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), seeded(0, row.device):
        with model.arithmetic.forward(row.device):
            given = outputs()
        model.loss(given.float(), targets)
    return sum(kept.values())
