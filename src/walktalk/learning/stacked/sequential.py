"""Models that are too large for a wave, or that nothing else can stack: row after row, with plain autograd.

A model of a hundred million parameters fills a device alone, so stacking would gain nothing and cost memory. The
module's own tensors are pointed at a row's numbers, one row at a time; whatever `forward` does, it does as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.core.errors import ModelError
from walktalk.learning.arithmetic import any_alignment
from walktalk.learning.samples import seeded
from walktalk.learning.stacked.cpu import ImageOrder
from walktalk.learning.stacked.model import Gradients, LossByPart, StackedModel
from walktalk.learning.stacked.products import nothing
from walktalk.learning.stacked.tensors import masks, stream
from walktalk.learning.task import Loss, sharing_copy, still_parts, to_training
from walktalk.transforms.codecs import hashed, hashed_number

# Gradients by torch's engine itself: what `torch.autograd.grad` checks before takes a tenth of a small model's step.
#
# `run_backward` is torch's own and no promise of theirs, but the same since 1.8. Where a torch no longer has it so, as
# a first try of it shows, `torch.autograd.grad` is called.

Found: TypeAlias = tuple[Tensor | None, ...]


def gradients_of_loss(loss: Tensor, wanted: Sequence[Tensor]) -> Found:
    """Gradients of a loss, one number, by these leaves, in their order; None for those that have no say in it."""
    if loss.numel() == 1 and is_known():
        return by_engine(loss, wanted)
    return torch.autograd.grad(loss, wanted, allow_unused=True)


def by_engine(loss: Tensor, wanted: Sequence[Tensor]) -> Found:
    engine: Any = torch.autograd.Variable._execution_engine
    found: Found = engine.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        False,  # the graph is not kept,
        False,  # and there is none of the gradients
        tuple(wanted),
        True,  # some may have no say
        accumulate_grad=False,
    )
    return found


@cache
def is_known() -> bool:
    """Whether this torch's engine is called like this."""
    with torch.inference_mode(False), torch.enable_grad():
        x, y, unused = (torch.full((2,), number, requires_grad=True) for number in (2.0, 3.0, 5.0))
        try:
            found = by_engine((x * x * y).sum(), [y, unused, x])
        except (AttributeError, TypeError, RuntimeError):
            return False
    numbers = [None if gradient is None else gradient.tolist() for gradient in found]
    return numbers == [[4.0, 4.0], None, [12.0, 12.0]] and x.grad is None


DRAWN_FOR_MODULES = 7919  # the counter of a row's key from which torch's own random numbers are seeded
DRAWN_FOR_MEASURING = 0  # the seed of a measurement, the same for all: models are compared with the same draws


class SequentialModel(StackedModel):
    """The form for any module at all: one row at a time, by plain autograd."""

    rows_at_once = 1
    samples_at_once = 64  # large models have large activations

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats and part.momentum is None:
                raise ModelError(
                    f"{name or 'the model'}: BatchNorm with a cumulative average (momentum=None) counts its batches, "
                    "and that count does not travel with a model; give it a momentum, or use GroupNorm"
                )
        self.worker = sharing_copy(module)  # the module itself keeps its weights: runs may start from them
        named = dict(self.worker.named_parameters())  # looked up once: a walk through the layers takes its time
        self.wanted = [named[entry.name] for entry in self.layout.parameters]
        self.statistics = dict(self.worker.named_buffers())
        self.pointed: tuple[dict[str, Tensor], int] | None = None  # where the worker's parameters look
        has_images = any(isinstance(part, nn.Conv2d) for part in module.modules())
        self.images = ImageOrder() if has_images else None  # how a CPU is given the images of convolutions
        self.draws = True  # whether training draws random numbers; if not, no seed has to be set, and nothing waits
        self.draws_when_measured = True  # the same of a forward pass in evaluation, as that of a variational model

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        layout, rows = self.layout, len(keys)
        everything = torch.empty_like(weights)
        everything[rows * layout.parameter_width :].zero_()
        sources = layout.dense_views(weights, rows)
        places = [[place[r] for place in layout.dense_views(everything, rows).values()] for r in range(rows)]
        statistics = layout.views(buffers, layout.buffers, layout.parameter_width)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            if not self.worker.training:
                to_training(self.worker)
            seeds = seeds_of(keys, DRAWN_FOR_MODULES + step) if self.draws else []
            for r in range(rows):
                self.point_at(sources, statistics, r)
                with seeded(seeds[r], weights.device) if self.draws else nullcontext():
                    found = self.backward(inputs[r], targets[r])
                gradients_to(places[r], found)
                self.keep_buffers(statistics, r)
            return everything

        return gradients

    def backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parameters, in their order; None for those that have no say."""
        with torch.enable_grad():
            with self.arithmetic.forward(inputs.device):
                outputs = self.worker(self.ordered(inputs))
            if isinstance(self.loss, LossByPart):
                return self.by_part(self.loss, self.loss.by_name(outputs.float(), targets))
            loss = self.loss(outputs.float(), targets)
            return gradients_of_loss(loss, self.wanted)

    def by_part(self, loss: LossByPart, values: dict[str, Tensor]) -> tuple[Tensor | None, ...]:
        """Each part's gradients of its own loss, in the order of all parameters."""
        found: list[Tensor | None] = [None] * len(self.wanted)
        for name, places in loss.places.items():
            wanted = [self.wanted[place] for place in places]
            gradients = torch.autograd.grad(values[name], wanted, retain_graph=True, allow_unused=True)
            for place, gradient in zip(places, gradients, strict=True):
                found[place] = gradient
        return tuple(found)

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self.worker.eval()
        if not self.with_buffers:
            still = {id(part) for part in still_parts(self.worker).values()}
            for part in self.worker.modules():
                part.training = isinstance(part, nn.modules.batchnorm._BatchNorm) and id(part) not in still
        layout = self.layout
        parameters, buffers = layout.views(rows, layout.parameters), layout.views(rows, layout.buffers)
        results = []
        with torch.no_grad(), self.arithmetic.forward(rows.device), any_alignment(rows.device):
            for r in range(len(rows)):
                self.point_at(parameters, buffers, r)
                with seeded(DRAWN_FOR_MEASURING, rows.device) if self.draws_when_measured else nullcontext():
                    results.append(self.worker(self.ordered(inputs)).float())
        return torch.stack(results)

    def ordered(self, inputs: Tensor) -> Tensor:
        """Inputs as the worker is given them: images in the order of channels that is the fastest here."""
        return inputs if self.images is None else self.images.ordered(inputs, self.arithmetic.precision == "bf16")

    def point_at(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], row: int) -> None:
        """Lets the worker's tensors look at a row's numbers; nothing is copied but buffers, which are small."""
        if self.pointed is None or self.pointed[0] is not parameters or self.pointed[1] != row:
            for entry, parameter in zip(self.layout.parameters, self.wanted, strict=True):
                parameter.data = parameters[entry.name][row]
            self.pointed = parameters, row
        with torch.no_grad():
            for entry in self.layout.buffers:
                self.statistics[entry.name].copy_(buffers[entry.name][row])

    def keep_buffers(self, buffers: dict[str, Tensor], row: int) -> None:
        with torch.no_grad():
            for entry in self.layout.buffers:
                buffers[entry.name][row].copy_(self.statistics[entry.name])


def gradients_to(places: list[Tensor], found: tuple[Tensor | None, ...]) -> None:
    """Copies gradients to where they belong; what has none is zero."""
    there = [(place, gradient) for place, gradient in zip(places, found, strict=True) if gradient is not None]
    if len(there) < len(places):
        torch._foreach_zero_([place for place, gradient in zip(places, found, strict=True) if gradient is None])
    if there:
        torch._foreach_copy_([place for place, _ in there], [gradient for _, gradient in there])


def seeds_of(keys: Tensor, counter: int) -> list[int]:
    """A seed of 31 bits for each key; on a CPU number by number, which takes a twentieth of the time for a few."""
    if keys.is_cuda:
        seeds: list[int] = hashed(keys, torch.full_like(keys, counter)).tolist()
        return seeds
    return [hashed_number(key, counter) for key in keys.tolist()]


# One row by torch's own layers, with the numbers that it has in a wave.
#
# Most of torch's layers round as stacked ones do. Two do not: a layer norm, which adds and multiplies at once, and a
# dropout, whose mask is drawn from torch's random numbers. Those do here what they do in a wave.


class SingleRowModel(SequentialModel):
    """A `SequentialModel` of rows that are in waves at other times."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        self.draws = False  # of torch's random numbers it needs none
        self.drops = DropoutMasks()
        for part in self.worker.modules():  # copies, so that each may become one of another kind
            if type(part) is nn.LayerNorm and part.elementwise_affine:
                part.__class__ = SingleRowLayerNorm
            elif type(part) is nn.Dropout:
                part.__class__ = SingleRowDropout
                part.drops = self.drops  # type: ignore[assignment]

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        of_step = super().wave(weights, buffers, keys)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            self.drops.begin(keys, step)
            return of_step(inputs, targets, step)

        return gradients


class DropoutMasks:
    """The masks of a row's training; those of some steps are drawn at once, since a draw takes long for few numbers."""

    AT_ONCE = 8  # steps
    FEW = 2**14  # numbers of a mask, up to which it pays

    def __init__(self) -> None:
        self.keys, self.step, self.draws = torch.zeros(1, dtype=torch.int64), 0, 0
        self.drawn: dict[int, Tensor] = {}  # of the present steps, by the dropout's turn

    def begin(self, keys: Tensor, step: int) -> None:
        """Begins a step of the row with these keys [1] begins."""
        self.keys, self.step, self.draws = keys, step, 0
        if step % self.AT_ONCE == 0:
            self.drawn.clear()

    def dropped(self, x: Tensor, p: float) -> Tensor:
        """Dropout on one row's x; with the masks of `Pass.dropped`."""
        self.draws += 1
        first, shape = self.step // self.AT_ONCE * self.AT_ONCE, tuple(x.shape)
        if x.numel() > self.FEW:
            return x * masks(stream(self.keys, self.step, self.draws), (1, *shape), p, x)[0]
        found = self.drawn.get(self.draws)
        if found is None or found.shape[1:] != shape:
            steps = torch.arange(first, first + self.AT_ONCE)
            found = masks(stream(self.keys, steps, self.draws), (self.AT_ONCE, *shape), p, x)
            self.drawn[self.draws] = found
        return x * found[self.step - first]


class SingleRowLayerNorm(nn.LayerNorm):
    """A layer norm that normalizes first, then multiplies, then adds, as `products.BatchedLayerNorm` does."""

    def forward(self, x: Tensor) -> Tensor:
        shape = tuple(self.normalized_shape)
        out = functional.layer_norm(x, shape, *nothing(x, shape), self.eps) * self.weight
        return out if self.bias is None else out.add_(self.bias)


class SingleRowDropout(nn.Dropout):
    """A dropout with the mask that the row has in a wave."""

    drops: DropoutMasks

    def forward(self, x: Tensor) -> Tensor:
        return self.drops.dropped(x, self.p) if self.training and self.p > 0.0 else x
