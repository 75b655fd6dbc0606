"""Several tensors that a model puts out, in tuples, lists and dictionaries, as one tensor, and back.

Everything that stacks, measures and compares outputs then needs to know of one tensor only, [samples, numbers]; the
person's loss and metrics see what the person's model puts out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.errors import ModelError


class Leaf(NamedTuple):
    """One tensor of them."""

    of_samples: bool  # whether it has an entry for each sample; else it is one for the whole batch, as a penalty
    shape: tuple[int, ...]  # of one sample's entry, or of the whole
    dtype: torch.dtype
    start: int  # in numbers
    end: int


class Form:
    """What a model puts out, learned from two trials."""

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
        """All of it as one tensor [samples, numbers]; what is one for the whole batch stands with every sample."""
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
    """All tensors in it, in order; None where it has None."""
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


def frame(outputs: Any) -> Any:
    """The tuples, lists and dictionaries around the tensors, each of which is None."""
    if isinstance(outputs, Mapping):
        return {name: frame(value) for name, value in outputs.items()}
    if isinstance(outputs, (tuple, list)):
        return rebuilt(outputs, [frame(value) for value in outputs])
    return None


def filled(empty: Any, tensors: Iterator[Tensor | None]) -> Any:
    """A frame with the next tensors in it."""
    if isinstance(empty, dict):
        return {name: filled(value, tensors) for name, value in empty.items()}
    if isinstance(empty, (tuple, list)):
        return rebuilt(empty, [filled(value, tensors) for value in empty])
    return next(tensors)


def rebuilt(like: Any, values: list[Any]) -> Any:
    """The same kind of tuple or list with other values."""
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)
