"""Where training starts: the weights that a module has, those of a file, or fresh ones for every repetition."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from walktalk.errors import ModelError
from walktalk.learning.given import inner
from walktalk.learning.task import Task

Weights: TypeAlias = str | PathLike[str] | Mapping[str, Tensor] | nn.Module
MODEL_FILE = "model.safetensors"  # in the folder of a run


def with_weights(module: nn.Module, weights: Weights, where: str = "init") -> nn.Module:
    """A copy of the module with these weights: a safetensors file, a state dict, or a module such as `run.model`."""
    state = state_of(weights, where)
    started = copy.deepcopy(module)
    try:
        missing, unexpected = started.load_state_dict(dict(state), strict=False)
    except RuntimeError as error:
        raise ModelError(f"{where}: these weights do not fit the model: {' '.join(str(error).split())}") from error
    if missing or unexpected:
        words = [f"{len(missing)} are missing ({missing[0]}…)"] if missing else []
        words += [f"{len(unexpected)} are not the model's ({unexpected[0]}…)"] if unexpected else []
        raise ModelError(f"{where}: these weights are another model's: of its tensors {' and '.join(words)}")
    return started


def state_of(weights: Any, where: str) -> Mapping[str, Tensor]:
    if isinstance(weights, nn.Module):
        return weights.state_dict()
    if isinstance(weights, Mapping):
        return weights
    if isinstance(weights, (str, PathLike)):
        return from_file(Path(weights), where)
    raise ModelError(f"{where}: a safetensors file, a state dict or a module is needed, not {type(weights).__name__}")


def from_file(path: Path, where: str) -> Mapping[str, Tensor]:
    """The tensors in a file; nothing is ever unpickled."""
    path = path / MODEL_FILE if path.is_dir() else path
    try:
        state: Mapping[str, Tensor] = load_file(path)
        return state
    except OSError as error:
        reason = error.strerror or "not there"
        raise ModelError(f"{where}: {path} cannot be read: {reason}") from error
    except SafetensorError as error:
        raise ModelError(
            f"{where}: {path} is no safetensors file; of a .pt file, give the state dict itself: "
            "torch.load(file, weights_only=True)"
        ) from error


def check_that_all_start_afresh(module: nn.Module) -> None:
    """Every parameter must belong to a part that can draw it anew."""
    for name, part in module.named_modules():
        own = [key for key, _ in part.named_parameters(recurse=False)]
        if own and not callable(getattr(part, "reset_parameters", None)):
            place = f"{name}.{own[0]}" if name else own[0]
            raise ModelError(
                f"fresh: {place} cannot start afresh, since {type(part).__name__} has no reset_parameters(); give a "
                "function that makes the model in place of the model"
            )


def seeded_module(make: Any, seed: int = 0) -> nn.Module:
    """A module from the function that makes it; torch's own random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make()
    if not isinstance(module, nn.Module):
        raise ModelError(f"module: the function should make a torch.nn.Module, not {type(module).__name__}")
    return module


def starting_from(task: Task, weights: Weights) -> Task:
    """The task, every run of which starts from these weights."""
    started = copy.deepcopy(task.model)
    own = inner(started)
    own.load_state_dict(with_weights(own, weights).state_dict())
    return replace(task, model=started, pretrained=True, make=None)
