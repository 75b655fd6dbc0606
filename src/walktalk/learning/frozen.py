"""What of a model does not train: it is held once in a process and on a device, and never travels.

A parameter is frozen that does not require a gradient. A part none of whose parameters train is frozen as a whole:
running statistics in it stay as they are, too, and are used as in an evaluation.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from walktalk.core.errors import ModelError

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

    The norm of all, and of a few weights spread over every tensor, as in `acquaintance.facts_of` of the initial model.
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
