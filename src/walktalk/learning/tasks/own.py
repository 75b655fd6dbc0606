"""Bring your own: any torch module and loss, any datasets, one per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as torch_
from torch import Tensor, nn

from walktalk.errors import DataError, ModelError
from walktalk.learning.task import Loss, Task


def torch(module: nn.Module, loss: Loss, partitions: Sequence[Any], test: Any = None, *, name: str = "own") -> Task:
    """A task of one's own.

    `partitions` has one entry per node: a pair (inputs, targets) of tensors or arrays, or any torch `Dataset` of
    (input, target) pairs. `test` likewise; with integer targets accuracy is measured on it. If the module's parts can
    `reset_parameters`, every repetition starts from fresh weights; other weights start as they are.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"module: a torch.nn.Module is needed, not {type(module).__name__}")
    if not callable(loss):
        raise ModelError("loss: a function of (outputs, targets) is needed, such as torch.nn.functional.cross_entropy")
    if len(partitions) == 0:
        raise DataError("partitions: there is none; give one dataset per node")
    pairs = [_pair(part, f"partitions[{node}]") for node, part in enumerate(partitions)]
    for node, pair in enumerate(pairs):
        for column, mine, first in zip(("inputs", "targets"), pair, pairs[0], strict=True):
            _check_alike(f"partitions[{node}]: {column}", mine, first)
    sizes = [len(inputs) for inputs, _ in pairs]
    ends = np.cumsum(sizes)
    parts = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    inputs, targets = (torch_.cat([pair[k] for pair in pairs]) for k in (0, 1))
    labels = targets.numpy() if targets.dim() == 1 and not targets.is_floating_point() else None
    held_out = None if test is None else _pair(test, "test")
    return Task(name, module, loss, inputs, targets, parts, held_out, labels=labels)


def _check_alike(what: str, mine: Tensor, first: Tensor) -> None:
    if mine.shape[1:] != first.shape[1:]:
        raise DataError(f"{what} of shape {tuple(mine.shape[1:])}, but node 0 has {tuple(first.shape[1:])}")
    if mine.dtype != first.dtype:
        names = [str(t.dtype).removeprefix("torch.") for t in (mine, first)]
        raise DataError(f"{what} are {names[0]}, but node 0 has {names[1]}")


def _is_columns(data: Any) -> bool:
    """Whether this is (inputs, targets), and not a list that happens to have two samples."""
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not all(hasattr(part, "__len__") for part in data):
        return False
    return not (isinstance(data, list) and all(isinstance(part, tuple) and len(part) == 2 for part in data))


def _pair(data: Any, where: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets as two tensors."""
    if _is_columns(data):
        inputs, targets = (torch_.as_tensor(part) for part in data)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise DataError(f"{where}: it has no samples; every node needs at least one")
        try:
            samples = [data[k] for k in range(len(data))]
            inputs = torch_.stack([torch_.as_tensor(x) for x, _ in samples])
            targets = torch_.stack([torch_.as_tensor(y) for _, y in samples])
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{where}: its samples are not (input, target) pairs of equal shape ({error})") from error
    else:
        raise DataError(f"{where}: a pair (inputs, targets) or a Dataset is needed, not {type(data).__name__}")
    if len(inputs) == 0:
        raise DataError(f"{where}: it has no samples; every node needs at least one")
    if len(inputs) != len(targets):
        raise DataError(f"{where}: {len(inputs)} inputs but {len(targets)} targets")
    if inputs.dtype == torch_.float64:
        inputs = inputs.float()
    if targets.dtype == torch_.float64:
        targets = targets.float()
    return inputs, targets
