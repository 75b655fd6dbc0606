"""A task: one model, one loss, and data that is split over nodes."""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from walktalk.core.errors import DataError, ModelError
from walktalk.learning.models import LoraLinear
from walktalk.learning.samples import Samples, only

# -- What of a model does not train: it is held once in a process and on a device, and never travels ------------------
# A parameter is frozen that does not require a gradient. A part none of whose parameters train is frozen as a whole:
# running statistics in it stay as they are, too, and are used as in an evaluation.

SEEN = 64  # weights of every frozen tensor that are looked at, to tell one base from another


def is_partly_frozen(module: nn.Module) -> bool:
    """Whether some parameters of a module do not train."""
    return any(not parameter.requires_grad for parameter in module.parameters())


def sharing_copy(module: nn.Module) -> nn.Module:
    """A copy with numbers of its own for all that trains; what is frozen is the very same tensors."""
    return copy.deepcopy(module, {id(p): p for p in module.parameters() if not p.requires_grad})


def copy_on(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy of a module on a device: frozen tensors are brought there once, however many copies there are."""
    memo = {id(p): held.on(p, device) for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, memo).to(device)


class Held:
    """Frozen parameters of this process on other devices; they go when the originals go."""

    def __init__(self) -> None:
        self.there: dict[torch.device, WeakTensorKeyDictionary] = {}

    def on(self, parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
        """A parameter on a device: itself where it is there already, else its only copy there."""
        if parameter.device == device:
            return parameter
        copies = self.there.setdefault(device, WeakTensorKeyDictionary())
        version, moved = copies.get(parameter, (None, None))
        if moved is None or version != parameter._version:  # somebody has loaded other weights into it
            moved = nn.Parameter(parameter.detach().to(device), requires_grad=False)
            copies[parameter] = parameter._version, moved
        found: nn.Parameter = moved
        return found


held = Held()


def still_parts(module: nn.Module) -> dict[str, nn.Module]:
    """Parts with statistics of their own in which nothing trains, by name."""
    found: dict[str, nn.Module] = {}

    def look(name: str, part: nn.Module, is_frozen: bool) -> None:
        parameters = list(part.parameters())
        if parameters:
            is_frozen = not any(p.requires_grad for p in parameters)
        if is_frozen and any(buffer.is_floating_point() for buffer in part.buffers(recurse=False)):
            found[name] = part
        for child, inside in part.named_children():
            look(f"{name}.{child}" if name else child, inside, is_frozen)

    look("", module, False)
    return found


def to_training(module: nn.Module) -> nn.Module:
    """Sets a module to training as `module.train()` does, but for what is frozen with its statistics."""
    module.train()
    for part in still_parts(module).values():
        part.training = False
    return module


def with_trainable(module: nn.Module, names: str | Sequence[str]) -> nn.Module:
    """A copy of which only the parameters of these names train.

    Args:
        module: what is copied; its own parameters are left as they are, and the copy's frozen ones are the same memory.
        names: of parameters or of parts; `*` stands for anything: `head`, `layers.11.*`, `*.bias`.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    there = [name for name, _ in module.named_parameters()]
    chosen = {name for name in there for pattern in wanted if matches(name, pattern)}
    for pattern in wanted:
        if not any(matches(name, pattern) for name in there):
            listed = ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
            raise ModelError(f"trainable: no parameter is called {pattern!r}; there are {listed}")
    return chosen_to_train(module, chosen)


def chosen_to_train(module: nn.Module, names: Iterable[str]) -> nn.Module:
    """A copy of which exactly these parameters train; the others are the module's own memory."""
    wanted = set(names)
    memo: dict[int, object] = {}
    for name, parameter in module.named_parameters():
        if name in wanted:
            memo[id(parameter)] = nn.Parameter(parameter.detach().clone())
        else:
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(module, memo)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a parameter, or a part that it is in."""
    return any(fnmatch.fnmatchcase(name, p) for p in (pattern, f"{pattern}.*", f"*.{pattern}", f"*.{pattern}.*"))


def frozen_numbers(module: nn.Module) -> tuple[float, ...] | None:
    """A few numbers that tell one frozen base from another; None where nothing is frozen.

    The norm of all, and of a few weights spread over every tensor, as nodes that meet compare the initial model.
    """
    frozen = [p.detach().reshape(-1) for p in module.parameters() if not p.requires_grad]
    if not frozen:
        return None
    some = torch.cat([flat[:: max(1, len(flat) // SEEN)].double().cpu() for flat in frozen])
    waves = torch.cos(torch.arange(len(some), dtype=torch.float64))
    norm = math.sqrt(sum(float(flat.norm().double()) ** 2 for flat in frozen))
    return float(sum(len(flat) for flat in frozen)), norm, float(some @ waves)


def keep_at_home(module: nn.Module) -> list[tuple[str, str]]:
    """Take buffers that hold an infinity, such as the mask of an attention, out of what travels and is mixed.

    ∞ − ∞ is not a number. They are constants, so every node has them anyway. Says which: (submodule, name).
    """
    found = []
    for place, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            kept = name not in part._non_persistent_buffers_set
            if kept and buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
                part._non_persistent_buffers_set.add(name)
                found.append((place, name))
    return found


# -- A task: one model, one loss, and data that is split over nodes ---------------------------------------------------

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> mean loss, as F.cross_entropy
Lengths: TypeAlias = Callable[
    [Tensor], Tensor
]  # inputs [B, T, …] -> [B]: what is behind is padding, and changes nothing
Metric: TypeAlias = Callable[[Tensor, Tensor], Any]  # (outputs, targets) of all test samples -> a number
Augment: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # (inputs [W, B, …], keys [W], step) -> inputs


@dataclass(repr=False)
class Task:
    """What is learned, and who has which samples."""

    name: str  # how it is called in tables and folders
    model: nn.Module  # the architecture; its weights are replaced by `initial`, unless it is pretrained
    loss: Loss  # (outputs, targets) -> mean loss, as torch.nn.functional.cross_entropy
    inputs: Samples  # all training samples
    targets: Samples  # what is to be learned, one for each sample
    parts: list[np.ndarray]  # node -> indices of its samples; disjoint, none empty
    test: tuple[Samples, Samples] | None = None  # inputs and targets that nobody trains on
    facts: dict[str, float] = field(default_factory=dict)  # what is known exactly, e.g. the smoothness of a quadratic
    labels: np.ndarray | None = None  # the class of each sample, for pictures of the partition
    pretrained: bool = False  # whether every run starts from the weights that the model has
    augment: Augment | None = None  # changes batches in training; random by the rows' keys alone (`hashed`)
    lengths: Lengths | None = None  # of samples that are padded: a large model then need not be given all of it
    details: dict[str, Any] = field(default_factory=dict)  # anything else that a person may want to know
    names: tuple[str, ...] | None = None  # of the nodes, where they have any
    test_parts: list[np.ndarray] | None = None  # node -> indices of its test samples, where each has its own
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # measured on the test samples beside loss and accuracy
    predictions: Callable[[Tensor], Tensor] | None = None  # from the model's outputs, where they hold more than those
    make: Callable[[], nn.Module] | None = None  # makes the model anew, where its parts cannot be reset
    private: tuple[str, ...] = ()  # names of parameters that stay at the node (`learning.private`)
    optimizers: Mapping[str, Any] = field(default_factory=dict)  # of some parameters, by their names; else the study's
    columns: tuple[str, ...] = ()  # names of the inputs' columns that stand side by side, where they have any
    target_columns: tuple[str, ...] = ()  # the same of the targets

    def __post_init__(self) -> None:
        if not self.parts:
            raise DataError(f"task {self.name}: there is no node; at least one part is needed")
        empty = [node for node, part in enumerate(self.parts) if len(part) == 0]
        if empty:
            raise DataError(f"task {self.name}: node {empty[0]} has no samples; every node needs at least one")
        if len(self.inputs) != len(self.targets):
            raise DataError(f"task {self.name}: {len(self.inputs)} inputs but {len(self.targets)} targets")
        if self.names is not None and len(self.names) != len(self.parts):
            raise DataError(f"task {self.name}: {len(self.names)} names for {len(self.parts)} nodes")

    def __repr__(self) -> str:
        """Describes the task in one line; samples and weights are for others to print."""
        sizes = [len(part) for part in self.parts]
        of_each = f"{sizes[0]:,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        tests = "" if self.test is None else f", {len(self.test[0]):,} test samples"
        numbers = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"Task({self.name}: {type(self.model).__name__} with {numbers:,} parameters, {self.nodes} nodes with "
            f"{of_each} samples each{tests})"
        )

    @property
    def nodes(self) -> int:
        return len(self.parts)

    def initial(self, seed: int) -> nn.Module:
        """The model that a run starts from, the same for the same seed; torch's own random state is left alone."""
        if self.pretrained:
            return sharing_copy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            if self.make is not None:
                return self.make()
            model = copy.deepcopy(self.model)
            for module in (*model.modules(), *(m for m in model.modules() if isinstance(m, LoraLinear))):
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()  # an adapter once more, after its parts: one of its factors is zero
        return model

    def only(self, node: int) -> Task:
        """The task with this node's samples and nobody else's."""
        mine = np.asarray(self.parts[node])
        tests = self.test
        if tests is not None and self.test_parts is not None:
            tests = only(tests[0], self.test_parts[node]), only(tests[1], self.test_parts[node])
        return replace(
            self,
            inputs=only(self.inputs, mine),
            targets=only(self.targets, mine),
            parts=[np.arange(len(mine))],
            labels=None if self.labels is None else self.labels[mine],
            test=tests,
            test_parts=None,
            names=None if self.names is None else (self.names[node],),
        )

    def ordered(self, names: Sequence[str]) -> Task:
        """The task with its nodes in the order of these names, which a graph has."""
        if self.names is None:
            return replace(self, names=tuple(names))
        if self.names == tuple(names):
            return self
        without, unknown = [n for n in names if n not in self.names], [n for n in self.names if n not in names]
        if without or unknown:
            words = [f"no data for {', '.join(without)}"] if without else []
            words += [f"data for {', '.join(unknown)}, which the graph does not have"] if unknown else []
            raise DataError(
                f"task {self.name}: there is {' and '.join(words)}; the graph's nodes are {', '.join(names)}"
            )
        order = [self.names.index(name) for name in names]
        tests = self.test_parts
        return replace(
            self,
            names=tuple(names),
            parts=[self.parts[k] for k in order],
            test_parts=None if tests is None else [tests[k] for k in order],
        )
