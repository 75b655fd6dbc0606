"""A task that somebody else's loop trains: all that is known of it are the arrays of its model.

A person writes their model's arrays into a file, which every site has, and names it in the cluster's study:

    task: {name: outside, state: start.safetensors}

A model on the wire is one row of 32-bit numbers: its floating-point arrays one after the other, running means and
variances behind all others. Arrays of whole numbers, such as counts of batches, stay as the file has them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from walktalk.core.errors import DataError, suggestion
from walktalk.learning.task import Task, matches

STATISTICS = ("running_mean", "running_var")  # how the names of arrays end that are measured and not trained
KINDS = {str(kind).removeprefix("torch."): kind for kind in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)}  # fmt: skip
SHOWN = 3  # mistakes that are named in one line


class Array(NamedTuple):
    """One array of a model: its name, kind and shape, and where in a row its numbers begin; -1: it does not travel."""

    name: str
    kind: str  # as torch has it, such as float32
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def words(self) -> str:
        """Its kind and shape, as people write them."""
        return f"{self.kind}{list(self.shape)}"


@dataclass(frozen=True)
class StateLayout:
    """Where the arrays of a model stand in a row, and which of them do not travel."""

    arrays: tuple[Array, ...]
    parameters: int  # numbers that are trained and shared; behind them stand statistics
    width: int
    shared: int  # numbers that travel; behind them stands what stays at a node

    @classmethod
    def of(cls, state: Mapping[str, Tensor], private: Sequence[str] = ()) -> StateLayout:
        """That of a state, by name; `private`: patterns of names whose arrays stay at their node."""
        floats = [name for name, array in state.items() if array.is_floating_point()]
        unknown = next((one for one in private if not any(matches(name, one) for name in floats)), None)
        if unknown is not None:
            raise DataError(f"private: no array of floats is called {unknown!r}; there are {', '.join(floats[:5])}, …")
        own = {name for name in floats if any(matches(name, one) for one in private)}
        starts, start = dict[str, int](), 0
        for name in sorted(floats, key=lambda name: (name in own, name.endswith(STATISTICS))):
            starts[name] = start
            start += state[name].numel()
        shared = start - sum(state[name].numel() for name in own)
        parameters = sum(state[name].numel() for name in set(floats) - own if not name.endswith(STATISTICS))
        if own and not parameters:
            raise DataError("private: all arrays are; some have to be shared, or nodes need not meet")
        arrays = [
            Array(name, str(array.dtype).removeprefix("torch."), tuple(array.shape), starts.get(name, -1))
            for name, array in state.items()
        ]
        return cls(tuple(arrays), parameters, start, shared)

    @classmethod
    def from_json(cls, said: Any) -> StateLayout:
        """What `as_json` has written."""
        arrays = [Array(str(name), str(kind), tuple(shape), int(start)) for name, kind, shape, start in said["arrays"]]
        return cls(tuple(arrays), *(int(said[name]) for name in ("parameters", "width", "shared")))

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON can say it."""
        numbers = {"parameters": self.parameters, "width": self.width, "shared": self.shared}
        return {"arrays": [list(array) for array in self.arrays], **numbers}

    @property
    def digest(self) -> str:
        """A few letters that differ where names, shapes or kinds do."""
        return hashlib.blake2b(json.dumps(self.as_json()).encode(), digest_size=8).hexdigest()

    def row(self, state: Mapping[str, Tensor]) -> Tensor:
        """A state as a row."""
        row = torch.empty(self.width)
        for array in self.arrays:
            if array.start >= 0:
                row[array.start : array.start + array.size] = state[array.name].detach().reshape(-1)
        return row

    def state(self, row: Tensor, constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The arrays of a row by name: views where they are float32; what does not travel is taken from `constants`."""
        return {
            array.name: constants[array.name]
            if array.start < 0
            else row[array.start : array.start + array.size].view(array.shape).to(KINDS[array.kind])
            for array in self.arrays
        }

    def differences(self, state: Mapping[str, Tensor]) -> list[str]:
        """What of a state is not as it has to be, some words for each array; []: nothing."""
        own = {array.name: array for array in self.arrays}
        found = [f"{name} is missing" for name in own if name not in state]
        found += [f"{name} is none of the study's" for name in state if name not in own]
        for name, array in own.items():
            if name in state:
                is_there = state[name]
                given = Array(name, str(is_there.dtype).removeprefix("torch."), tuple(is_there.shape), -1)
                if given[1:3] != array[1:3]:
                    found.append(f"{name} is {given.words} and was {array.words}")
        return found


def in_words(mistakes: list[str]) -> str:
    """The first few of some mistakes, and how many more there are."""
    more = len(mistakes) - SHOWN
    return "; ".join(mistakes[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def named_arrays(given: Any) -> dict[str, Tensor]:
    """The arrays of a module or of a mapping by name, as tensors that share their memory where that is possible.

    Of arrays that are one and the same, such as tied weights, the first name counts.
    """
    if isinstance(given, nn.Module):
        given = unwrapped(given).state_dict()
    if isinstance(given, torch.optim.Optimizer):
        return optimizer_arrays(given)
    if not isinstance(given, Mapping):
        raise DataError(f"state: a module or a mapping of names to arrays is needed, not {type(given).__name__}")
    found: dict[str, Tensor] = {}
    seen: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
    for name, array in given.items():
        check_whole(name, array)
        try:
            tensor = array.detach() if isinstance(array, Tensor) else torch.as_tensor(np.asarray(array))
        except (TypeError, ValueError) as error:
            raise DataError(f"state: {name} is no array of numbers ({type(array).__name__})") from error
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        found[str(name)] = tensor
    return found


def check_whole(name: str, array: Any) -> None:
    """Raise a `DataError` where an array is in pieces, at several processes: of a model that is sharded."""
    if any(hasattr(array, one) for one in ("full_tensor", "local_shards")) or getattr(array, "is_meta", False):
        raise DataError(
            f"state: {name} is spread over several processes; a node takes whole models: train with "
            "DistributedDataParallel, or gather and spread them yourself, by get_model_state_dict and "
            "set_model_state_dict of torch.distributed.checkpoint.state_dict, with full_state_dict=True"
        )


def optimizer_arrays(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimizer by the numbers of its parameters, such as `0.exp_avg`."""
    found = {
        f"{number}.{name}": value.detach().float() if isinstance(value, Tensor) else torch.tensor(float(value))
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if value is not None
    }
    if not found:
        raise DataError("optimizer: it has no state before its first step; make one, then write it or give it back")
    return found


def unwrapped(module: nn.Module) -> nn.Module:
    """The module of a person in what data parallelism and `torch.compile` have put around it."""
    while True:
        inside = getattr(module, "_orig_mod", None)
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inside = module.module
        if not isinstance(inside, nn.Module):
            return module
        module = inside


def write_state(state: Any, path: str | PathLike[str]) -> None:
    """Write the arrays of a model into a file, from which all nodes of a study begin.

    Args:
        state: A module, or a mapping of names to arrays. Of adapters those alone: what is in the file travels.
        path: Of a safetensors file.
    """
    arrays = named_arrays(state)
    if not any(array.is_floating_point() for array in arrays.values()):
        raise DataError("state: there is no array of floating-point numbers in it, so nothing would be trained")
    for name, array in arrays.items():
        check_array(name, array)
    part = Path(f"{path}.part")
    save_file({name: array.cpu().contiguous().clone() for name, array in arrays.items()}, part)
    part.replace(path)


def read_state(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The arrays of a safetensors file by name, in the order of their names."""
    if not Path(path).is_file():
        raise DataError(f"state: there is no file {path} (from {Path.cwd()}); write it with wt.tasks.write_state")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            found = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"state: {path} is no safetensors file ({error}); write it with wt.tasks.write_state"
        ) from error
    for name, array in found.items():
        check_array(name, array)
    if not any(array.is_floating_point() for array in found.values()):
        raise DataError(f"state: {path} has no array of floating-point numbers, so nothing would be trained")
    return found


def check_array(name: str, array: Tensor) -> None:
    """Raise a `DataError` where an array cannot be part of a model that is mixed."""
    kind = str(array.dtype).removeprefix("torch.")
    if kind not in KINDS:
        raise DataError(f"state: {name} is {kind}; allowed: {', '.join(KINDS)}")
    if array.is_floating_point() and not bool(torch.isfinite(array).all()):
        raise DataError(f"state: {name} has numbers that are not finite")


class Outside(nn.Module):
    """Stands for a model of which only its arrays are known."""

    def __init__(self, start: Mapping[str, Tensor], private: Sequence[str] = ()) -> None:
        super().__init__()
        self.start = dict(start)
        self.layout = StateLayout.of(start, private)

    def forward(self, inputs: Tensor) -> Tensor:
        """Nobody here can say what it puts out."""
        raise DataError("outside: this model is trained by somebody else's loop, and only that knows what it puts out")


def check_samples(samples: Any, names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Raise a `DataError` where a task's samples, by node, are of nodes that are not there, or not of all.

    Args:
        samples: the task's setting.
        names: nodes of the cluster's file, each of which needs some.
        others: that may have some, as those that have joined.
    """
    if not isinstance(samples, dict):
        return
    unknown = next((name for name in samples if name not in names and name not in others), None)
    if unknown is not None:
        near = suggestion(str(unknown), names)
        raise DataError(f"task.samples: {unknown} is no node of the cluster, whose nodes are {', '.join(names)}{near}")
    missing = next((name for name in names if name not in samples), None)
    if missing is not None:
        raise DataError(f"task.samples: {missing} has none; allowed: a whole number, 1 or more, for each node")


def no_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a model that somebody else trains is theirs."""
    raise DataError("outside: this model is trained by somebody else's loop, and only that knows its loss")


def outside(
    state: str,
    samples: int | dict[str, int] = 1,
    optimizer: str = "",
    private: str | list[str] = "",
    nodes: int = 1,
    part: str | int | None = None,
) -> Task:
    """Whatever a script of your own trains, at every node of a cluster (`wt.site`).

    Args:
        state: a safetensors file with the arrays that training starts from, as `wt.tasks.write_state` writes it.
        samples: how many samples a node has, one number or one by the name of every node: how much it counts.
        optimizer: a file with the arrays of an optimizer, where its state stays at nodes or travels with walks.
        private: names of arrays, `*` for anything, that stay at every node and are never sent, such as `head`.
        nodes: how many there are.
        part: the node whose part it is.
    """
    start, own = read_state(state), [private] if isinstance(private, str) and private else list(private)
    beside = StateLayout.of(read_state(optimizer) if optimizer else {})
    count = samples.get(str(part), 0) if isinstance(samples, dict) else samples
    if part is not None and count < 1:
        raise DataError(f"samples: {part} has none; allowed: a whole number, 1 or more, for each node")
    task = Task(
        "outside",
        Outside(start, own),
        no_loss,
        torch.zeros(1),
        torch.zeros(1),
        [np.zeros(1, dtype=np.int64)] * (1 if part is not None else nodes),
        pretrained=True,
        private=tuple(own),
    )
    task.details = {"samples": count, "optimizer": beside}
    return task
