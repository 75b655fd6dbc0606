"""A step's forward and backward pass as two lists of operations, in memory that is laid out once.

Autograd finds the way back anew in every step, gets memory for every result, and makes a view for every change of
shape; of small models that takes as long as the arithmetic. Here all of it is done once for each width of a wave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from walktalk.learning.stacked.tensors import NotStackable, filled_with_masks, stream

Operation = Callable[[], object]


@dataclass(eq=False)
class Value:
    """Numbers of all rows, [W, …], at the place where they are in every step."""

    tensor: Tensor
    is_trained: bool = True  # whether anybody wants to know its gradient
    is_free: bool = False  # whether its only user may write into its memory: who made it does not need it again
    given: list[tuple[Tensor, bool]] = field(default_factory=list)  # gradients by its users; is the memory its own?
    left: tuple[str, str | None] | None = None  # names of a layer norm's weights, which linear layers multiply by
    of: tuple[Value, int] | None = None  # what it is a part of along the first dimension of a row, and which one


@dataclass
class Now:
    """What differs from one step to the next: targets, keys, and its number."""

    targets: Tensor
    keys: Tensor
    step: int = 0


class Program:
    """Operations of one width and shape of batches; `emit` and `layers` write them.

    weights, places: by name [W, *shape]: where parameters are, and where their gradients go. by_numpy: who multiplies.
    """

    def __init__(
        self, rows: int, now: Now, weights: dict[str, Tensor], places: dict[str, Tensor], by_numpy: bool = False
    ) -> None:
        self.rows, self.now, self.weights, self.places, self.by_numpy = rows, now, weights, places, by_numpy
        self.operations: list[Operation] = []
        self.back: list[Callable[[], None]] = []  # what writes the way back, in the order of the way there
        self.unwritten = dict(places)
        self.unused: dict[int, list[Tensor]] = {}  # memory that nobody needs any more, by its size
        self.draws, self.bytes = 0, 0

    def __call__(self) -> None:
        for operation in self.operations:
            operation()

    def do(self, function: Callable[..., object], *args: Any, **named: Any) -> None:
        self.operations.append(partial(function, *args, **named))

    def finish(self) -> None:
        """Writes the backward pass, once the last operation of the way there and the loss are written."""
        for write in reversed(self.back):
            write()
        for place in self.unwritten.values():  # of weights that have no say; an optimizer may have written there
            self.do(place.zero_)

    # -- memory -------------------------------------------------------------------------------------------------------

    def empty(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        if kept := self.unused.get(size):
            return kept.pop().view(shape)
        self.bytes += 4 * size
        return torch.empty(size).view(shape)

    def like(self, tensor: Tensor) -> Tensor:
        """Memory for as many numbers, in the same order where that has no gaps."""
        return self.empty(*tensor.shape) if tensor.is_contiguous() else torch.empty_like(tensor)

    def release(self, tensor: Tensor, is_own: bool) -> None:
        """Lets somebody else use this memory, if it belongs to nobody else."""
        whole = tensor._base
        if is_own and whole is not None and whole.dim() == 1 and whole.numel() == tensor.numel():
            self.unused.setdefault(tensor.numel(), []).append(whole)

    # -- gradients ----------------------------------------------------------------------------------------------------

    def gradient(self, value: Value) -> tuple[Tensor, bool] | None:
        """The sum of what the users of a value gave, and whether its memory is its own; None if there are none."""
        if not value.given:
            return None
        parts = sorted(value.given, key=lambda part: not part[1])
        (total, is_own), rest = parts[0], parts[1:]
        if rest and not is_own:
            into = self.like(value.tensor)
            self.do(torch.add, total, rest[0][0], out=into)
            total, is_own, rest = into, True, rest[1:]
        for other, _ in rest:
            self.do(total.add_, other)
        value.given = []
        return total, is_own

    def backwards(self, value: Value, write: Callable[[Tensor, bool], None]) -> Value:
        """`write` writes how the gradient of a value is handed on; it is told that, and whether it may change it."""

        def from_users() -> None:
            found = self.gradient(value)
            if found is not None:
                write(*found)

        if value.is_trained:
            self.back.append(from_users)
        return value

    def place(self, name: str) -> Tensor | None:
        """Where a parameter's gradient is to be written; None if it is not trained."""
        if name in self.places and name not in self.unwritten:
            raise NotStackable("weights that are used twice")
        return self.unwritten.pop(name, None)

    def parameter(self, name: str) -> Value:
        """A parameter that is used by itself, and not by a layer."""
        place, value = self.place(name), Value(self.weights[name])
        value.is_trained = place is not None

        def write(gradient: Tensor, is_own: bool) -> None:
            if place is not None:
                self.do(place.copy_, gradient.view(place.shape))

        return self.backwards(value, write)

    # -- dropout ------------------------------------------------------------------------------------------------------

    def kept(self, shape: Sequence[int], p: float) -> Tensor:
        """What a dropout multiplies [W, …] by, drawn in every step; the numbers are those of `Pass.kept`."""
        self.draws += 1
        draw, kept, now = self.draws, self.empty(*shape), self.now
        self.operations.append(lambda: filled_with_masks(kept, stream(now.keys, now.step, draw), p))
        return kept


# Changes of shape in a program: other views of the same memory, and copies only where there is none.


def viewed(program: Program, x: Value, view: Tensor, undo: Callable[[Tensor], Tensor]) -> Value:
    """A value's numbers in another order or shape; `undo` does the reverse to gradients."""

    def write(gradient: Tensor, is_own: bool) -> None:
        x.given.append((undo(gradient), is_own))

    return program.backwards(Value(view, x.is_trained, x.is_free), write)


def dense(program: Program, x: Value) -> Value:
    """A value with its numbers one behind the other."""
    return x if x.tensor.is_contiguous() else reshaped(program, x, tuple(x.tensor.shape))


def reshaped(program: Program, x: Value, shape: tuple[int, ...]) -> Value:
    """A value [W, …] in this shape; one of its sizes may be −1, as in torch."""
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
    """A value [W, …] with its dimensions in this order."""
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
