"""Calls a person's module as it wants to be called, and makes one tensor of what it puts out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError

# Several tensors that a model puts out, in tuples, lists and dictionaries, as one tensor, and back.
#
# Everything that stacks, measures and compares outputs then needs to know of one tensor only, [samples, numbers]; the
# person's loss and metrics see what the person's model puts out.


class Leaf(NamedTuple):
    """A tensor among the outputs of a model."""

    of_samples: bool  # whether it has an entry for each sample; else it is one for the whole batch, as a penalty
    shape: tuple[int, ...]  # of one sample's entry, or of the whole
    dtype: torch.dtype
    start: int  # in numbers
    end: int


class Form:
    """The form of what a model puts out, learned from two trials."""

    def __init__(self, outputs: Any, of_twice: Any) -> None:
        """
        - `outputs`: for some samples.
        - `of_twice`: for twice as many: what has twice as many entries there has one for each sample.
        """
        self.leaves: list[Leaf | None] = []  # None: the model puts out None there
        self.frame = frame(outputs)
        at = 0
        for few, many in zip(leaves(outputs), leaves(of_twice), strict=True):
            if few is None or many is None:
                self.leaves.append(None)
                continue
            of_samples = few.dim() > 0 and len(many) == 2 * len(few)
            shape = tuple(few.shape[1:] if of_samples else few.shape)
            end = at + torch.Size(shape).numel()
            self.leaves.append(Leaf(of_samples, shape, few.dtype, at, end))
            at = end

    @property
    def is_one(self) -> bool:
        """Whether it is a tensor, and nothing around it."""
        return self.frame is None

    def pack(self, outputs: Any, samples: int) -> Tensor:
        """Packs all of it as one tensor [samples, numbers].

        What is one for the whole batch stands with every sample.
        """
        lines = [
            tensor.reshape(samples, -1) if leaf.of_samples else tensor.reshape(1, -1).expand(samples, -1)
            for leaf, tensor in zip(self.leaves, leaves(outputs), strict=True)
            if leaf is not None and tensor is not None
        ]
        kinds = [line.dtype for line in lines if line.is_floating_point()]
        common = kinds[0] if kinds else torch.float32  # whole numbers among them stay exact up to 2^24
        return torch.cat([line.to(common) for line in lines], 1)

    def unpack(self, packed: Tensor) -> Any:
        """The model's own form again, from [samples, numbers]; any further dimensions stay in front."""
        tensors: list[Tensor | None] = []
        for leaf in self.leaves:
            if leaf is None:
                tensors.append(None)
                continue
            numbers = packed[..., leaf.start : leaf.end]
            numbers = numbers if leaf.of_samples else numbers.mean(-2)
            numbers = numbers.reshape((*numbers.shape[:-1], *leaf.shape))
            tensors.append(numbers if leaf.dtype.is_floating_point else numbers.round().to(leaf.dtype))
        return filled(self.frame, iter(tensors))


def leaves(outputs: Any) -> list[Tensor | None]:
    """All tensors in some outputs, in order; None where they have None."""
    if isinstance(outputs, Mapping):
        return [leaf for value in outputs.values() for leaf in leaves(value)]
    if isinstance(outputs, (tuple, list)):
        return [leaf for value in outputs for leaf in leaves(value)]
    if outputs is not None and not isinstance(outputs, Tensor):
        raise ModelError(
            f"the model puts out a {type(outputs).__name__} among its outputs; it should put out tensors, alone or in "
            "tuples, lists and dictionaries"
        )
    if outputs is not None and outputs.is_complex():
        raise ModelError("the model puts out complex numbers; torch.view_as_real makes real ones of them")
    return [outputs]


class Named(NamedTuple):
    """A dictionary in a frame."""

    make: Callable[..., Any]  # of its values by name: a plain one, or the model's own class, as those of `transformers`
    values: dict[str, Any]


def frame(outputs: Any) -> Any:
    """The tuples, lists and dictionaries around the tensors, each of which is None."""
    if isinstance(outputs, Mapping):
        return Named(maker_of(outputs), {name: frame(value) for name, value in outputs.items()})
    if isinstance(outputs, (tuple, list)):
        return rebuilt(outputs, [frame(value) for value in outputs])
    return None


def filled(empty: Any, tensors: Iterator[Tensor | None]) -> Any:
    """A frame with the next tensors in it."""
    if isinstance(empty, Named):
        return empty.make(**{name: filled(value, tensors) for name, value in empty.values.items()})
    if isinstance(empty, (tuple, list)):
        return rebuilt(empty, [filled(value, tensors) for value in empty])
    return next(tensors)


def maker_of(outputs: Mapping[str, Any]) -> Callable[..., Any]:
    """What makes such a dictionary of its values by name: its class, where it does, since that may have attributes."""
    kind = type(outputs)
    try:
        same = kind(**outputs)
    except (TypeError, ValueError):
        return dict
    return kind if isinstance(same, Mapping) and list(same) == list(outputs) else dict


def rebuilt(like: Any, values: list[Any]) -> Any:
    """A tuple or list of the same kind with other values."""
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)


# Several columns of inputs as one tensor, and back.
#
# Everything that draws, stacks and moves samples then needs to know of one tensor only. Each column's bytes are laid
# side by side, in words of eight bytes, so that nothing is lost or changed.

WORD = 8  # bytes


class Field(NamedTuple):
    """Where a column lies in a packed tensor."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]  # of one sample
    start: int  # in words
    end: int


class Packing:
    """How columns lie side by side in one tensor."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self.fields: list[Field] = []
        at = 0
        for name, column in columns.items():
            size = column[0].numel() * column.element_size()
            end = at + -(-size // WORD)
            self.fields.append(Field(name, column.dtype, tuple(column.shape[1:]), at, end))
            at = end
        self.words = at

    def pack(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Packs all columns of some samples as one tensor [samples, words]."""
        samples = len(next(iter(columns.values())))
        packed = torch.zeros(samples, self.words, dtype=torch.int64)
        for field in self.fields:
            flat = columns[field.name].to(field.dtype).reshape(samples, -1).contiguous()
            packed[:, field.start : field.end].view(field.dtype)[:, : flat.shape[1]] = flat
        return packed

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        """Takes the tensor apart into columns again."""
        columns = {}
        for field in self.fields:
            flat = packed[:, field.start : field.end].view(field.dtype)
            size = torch.Size(field.shape).numel()
            columns[field.name] = flat[:, :size].reshape(len(packed), *field.shape)
        return columns


Call: TypeAlias = Literal["one", "several", "by name", "as a dictionary"]
OUTPUTS = ("logits", "predictions", "prediction", "outputs", "output", "last_hidden_state")
Kind = inspect.Parameter


class Behind(nn.Module):
    """A module behind which is a person's own."""

    inner: nn.Module


class Adapter(Behind):
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


def persons_module(module: nn.Module) -> nn.Module:
    """The person's own module."""
    return module.inner if isinstance(module, Behind) else module


def own_name(module: nn.Module, parameter: str) -> str:
    """What a parameter of a module is called in the person's own, which it may be behind."""
    return parameter.removeprefix("inner.") if isinstance(module, Behind) else parameter


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
    """The names by which the module's forward takes inputs."""
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
    """Says by which names a module that computes its own loss takes the targets: the data's name -> the module's.

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
