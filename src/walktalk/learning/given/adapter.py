"""Calls a person's module as it wants to be called, and makes one tensor of what it puts out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from walktalk.errors import ModelError
from walktalk.learning.given.outputs import Form
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
        self.form: Form | None = None  # of all that is put out, beside a loss; None: the one tensor that counts

    def like(self, inner: nn.Module) -> Adapter:
        """Another module, called in the same way, which puts out the same form."""
        other = Adapter(inner, self.call, self.packing, self.name, self.own_loss)
        other.form = self.form
        return other

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.put_out(inputs)
        if not self.own_loss:
            return main_output(outputs) if self.form is None else self.form.pack(outputs, len(inputs))
        loss, rest = loss_and_rest(outputs)
        lines = loss.reshape(1, 1).expand(len(inputs), 1)
        if self.form is None:
            return lines
        return torch.cat((lines, self.form.pack(rest, len(inputs)).to(lines.dtype)), 1)

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
        """What the module puts out beside it: a tensor as it is, several packed."""
        packed = outputs[..., 1:]
        return self.form.unpack(packed) if self.form is not None and self.form.is_one else packed


def inner(module: nn.Module) -> nn.Module:
    """The person's own module."""
    return module.inner if isinstance(module, Adapter) else module


def main_output(outputs: Any) -> Tensor:
    """The one tensor in a model's outputs that a loss is computed from."""
    return outputs if (found := named_output(outputs)) is None else found


def named_output(outputs: Any) -> Tensor | None:
    """The tensor in a dictionary of outputs that a usual loss is computed from, by its name or as the only one."""
    if not isinstance(outputs, Mapping):
        return None
    for name in OUTPUTS:
        if isinstance(outputs.get(name), Tensor):
            return outputs[name]  # type: ignore[no-any-return]
    tensors = [value for name, value in outputs.items() if isinstance(value, Tensor) and name != "loss"]
    return tensors[0] if len(tensors) == 1 else None


def loss_and_rest(outputs: Any) -> tuple[Tensor, Any]:
    """The loss that a module has computed, and what counts of the rest: a tensor, several by name, or None."""
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


def names_of_labels(module: nn.Module, targets: Sequence[str]) -> dict[str, str]:
    """By which names a module that computes its own loss takes the targets: the data's name -> the module's.

    targets: names of the columns of targets; "" is the only one, which has none.
    """
    accepted = accepted_by(module)
    if all(name in accepted for name in targets):
        return {name: name for name in targets}
    found = next((name for name in ("labels", "label", "targets", "target") if name in accepted), None)
    if found is None or len(targets) > 1:
        wanted = "labels" if len(targets) == 1 else ", ".join(targets)
        raise ModelError(f"the model takes no {wanted}, so it computes no loss of its own; give one: loss=…")
    return {targets[0]: found}
