"""Changes of shape in a program: other views of the same memory, and copies only where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from walktalk.learning.stacked.written.program import Program, Value


def viewed(program: Program, x: Value, view: Tensor, undo: Callable[[Tensor], Tensor]) -> Value:
    """The same numbers in another order or shape; `undo` does the reverse to gradients."""

    def write(gradient: Tensor, is_own: bool) -> None:
        x.given.append((undo(gradient), is_own))

    return program.backwards(Value(view, x.is_trained, x.is_free), write)


def dense(program: Program, x: Value) -> Value:
    """The same with its numbers one behind the other."""
    return x if x.tensor.is_contiguous() else reshaped(program, x, tuple(x.tensor.shape))


def reshaped(program: Program, x: Value, shape: tuple[int, ...]) -> Value:
    """As [W, …] of this shape; one of its sizes may be −1, as in torch."""
    if -1 in shape:
        rest = -math.prod(shape)
        shape = tuple(x.tensor.numel() // rest if size == -1 else size for size in shape)

    def undo(gradient: Tensor) -> Tensor:
        if not gradient.is_contiguous():
            copy = program.empty(*gradient.shape)
            program.do(copy.copy_, gradient)
            gradient = copy
        return gradient.view(x.tensor.shape)

    if shape != tuple(x.tensor.shape) or x.tensor.is_contiguous():
        try:
            return viewed(program, x, x.tensor.view(shape), undo)
        except RuntimeError:
            pass  # there is no such view
    out = program.empty(*shape)
    program.do(out.view(x.tensor.shape).copy_, x.tensor)
    program.release(x.tensor, x.is_free)
    result = viewed(program, x, out, undo)
    result.is_free = True
    return result


def permuted(program: Program, x: Value, dims: tuple[int, ...]) -> Value:
    """Dimensions of [W, …] in this order."""
    back = sorted(range(len(dims)), key=lambda k: dims[k])
    return viewed(program, x, x.tensor.permute(dims), lambda gradient: gradient.permute(back))


def selected(program: Program, x: Value, index: tuple[object, ...]) -> Value:
    """A part of [W, …]; what is not in it has no gradient by it."""

    def write(gradient: Tensor, is_own: bool) -> None:
        into = program.like(x.tensor)
        program.do(into.zero_)
        program.do(into[index].copy_, gradient)  # type: ignore[index]
        x.given.append((into, True))

    return program.backwards(Value(x.tensor[index], x.is_trained), write)  # type: ignore[index]
