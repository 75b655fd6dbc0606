"""Calls a person's module as it wants to be called, and takes from what it puts out the one tensor that counts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from walktalk.errors import ModelError
from walktalk.learning.given.packing import Packing

Call: TypeAlias = Literal["one", "several", "by name", "as a dictionary"]
OUTPUTS = ("logits", "predictions", "prediction", "outputs", "output", "last_hidden_state")
Kind = inspect.Parameter


class Adapter(nn.Module):
    """A person's module, behind one tensor in and one tensor out.

    Without a loss of the task's own, the module computes it: then it comes first in what is put out, once for every
    sample, and what the module puts out beside it comes behind.
    """

    def __init__(self, inner: nn.Module, call: Call, packing: Packing | None, name: str, own_loss: bool) -> None:
        super().__init__()
        self.inner = inner
        self.call, self.packing, self.name, self.own_loss = call, packing, name, own_loss
        self.shape: tuple[int, ...] | None = None  # of what is put out beside the loss, for one sample; None: nothing

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.put_out(inputs)
        if not self.own_loss:
            return main_output(outputs)
        loss, rest = loss_and_rest(outputs)
        lines = loss.reshape(1, 1).expand(len(inputs), 1)
        self.shape = None if rest is None else tuple(rest.shape[1:])
        return lines if rest is None else torch.cat((lines, rest.flatten(1).to(lines.dtype)), 1)

    def put_out(self, inputs: Tensor) -> Any:
        if self.packing is None:
            return self.inner(**{self.name: inputs}) if self.call == "by name" else self.inner(inputs)
        columns = self.packing.unpack(inputs)
        if self.call == "by name":
            return self.inner(**columns)
        return self.inner(columns) if self.call == "as a dictionary" else self.inner(*columns.values())

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss that the module has computed; the targets were among its inputs."""
        return outputs[..., 0].mean()

    def predictions(self, outputs: Tensor) -> Tensor:
        """What the module puts out beside it."""
        return outputs[..., 1:] if self.shape is None else outputs[..., 1:].unflatten(-1, self.shape or (1,))


def inner(module: nn.Module) -> nn.Module:
    """The person's own module."""
    return module.inner if isinstance(module, Adapter) else module


def main_output(outputs: Any) -> Tensor:
    """The one tensor in a model's outputs that a loss is computed from."""
    if not isinstance(outputs, Mapping):
        return outputs  # type: ignore[no-any-return]  # what is no tensor is found out before any training
    for name in OUTPUTS:
        if isinstance(outputs.get(name), Tensor):
            return outputs[name]  # type: ignore[no-any-return]
    tensors = {name: value for name, value in outputs.items() if isinstance(value, Tensor) and name != "loss"}
    if len(tensors) != 1:
        raise ModelError(
            f"the model puts out a dictionary with {', '.join(map(str, outputs))}; which of it counts? Call that logits"
        )
    return next(iter(tensors.values()))


def loss_and_rest(outputs: Any) -> tuple[Tensor, Tensor | None]:
    if not isinstance(outputs, Mapping) or not isinstance(outputs.get("loss"), Tensor):
        raise ModelError("the model computes no loss of its own (its outputs have no 'loss'); give one: loss=…")
    rest = {name: value for name, value in outputs.items() if name != "loss" and isinstance(value, Tensor)}
    return outputs["loss"], main_output(rest) if rest else None


def accepted_by(module: nn.Module) -> frozenset[str]:
    """What the module's forward takes by name."""
    kinds = (Kind.POSITIONAL_OR_KEYWORD, Kind.KEYWORD_ONLY)
    return frozenset(name for name, parameter in parameters_of(module).items() if parameter.kind in kinds)


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def way_to_call(module: nn.Module, names: Sequence[str]) -> Call:
    """How a module takes inputs of these names."""
    parameters, accepted = parameters_of(module), accepted_by(module)
    if list(names) == [""]:
        return "one"
    if all(name.isdecimal() for name in names):
        return "several"
    anything = any(parameter.kind is Kind.VAR_KEYWORD for parameter in parameters.values())
    if all(name in accepted or anything for name in names):
        return "by name"
    if len(names) == 1:
        return "one"
    kinds = (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)
    if sum(p.default is Kind.empty and p.kind in kinds for p in parameters.values()) == 1 and not accepted & {*names}:
        return "as a dictionary"
    raise ModelError(
        f"the model's forward takes {', '.join(parameters)}, but the data has the columns {', '.join(names)}; rename "
        "them, or choose (columns=…)"
    )


def name_of_labels(module: nn.Module, target: str) -> str:
    """By which name a module that computes its own loss takes the targets."""
    accepted = accepted_by(module)
    for name in (target, "labels", "label", "targets", "target"):
        if name in accepted:
            return name
    raise ModelError("the model takes no labels, so it computes no loss of its own; give one: loss=…")
