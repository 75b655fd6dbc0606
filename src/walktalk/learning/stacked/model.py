"""Losses and gradients of many models at once, each on its own batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from walktalk.core.errors import ModelError
from walktalk.learning.arithmetic import Arithmetic, any_alignment
from walktalk.learning.samples import seeded
from walktalk.learning.stacked.cpu import multiplied, numpy_multiplies
from walktalk.learning.stacked.fused import is_relu
from walktalk.learning.stacked.tensors import NotStackable, Pass, RowLayout
from walktalk.learning.stacked.traced import Graph, Traced
from walktalk.learning.task import Loss, matches, still_parts, to_training

MEANS_OVER_SAMPLES = {
    functional.cross_entropy,
    functional.nll_loss,
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.binary_cross_entropy_with_logits,
    functional.binary_cross_entropy,
}
MEAN_MODULES = (
    nn.CrossEntropyLoss,
    nn.NLLLoss,
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.BCEWithLogitsLoss,
    nn.BCELoss,
)


CLASS_FUNCTIONS = {functional.cross_entropy, functional.nll_loss, functional.multi_margin_loss}
CLASS_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)
IGNORED = -100  # torch's number of the class that does not count


def is_mean_over_samples(loss: Loss) -> bool:
    """Whether a loss of a joined batch is the mean of the losses of its equal parts."""
    if isinstance(loss, MEAN_MODULES):
        weighted = getattr(loss, "weight", None) is not None
        return loss.reduction == "mean" and not weighted and getattr(loss, "ignore_index", -100) == -100
    return loss in MEANS_OVER_SAMPLES


def sum_of_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum over rows of each row's loss; its gradient is every row's own."""
    if is_cross_entropy(loss) and outputs.dim() == 3 and not targets.is_floating_point():
        if not outputs.is_cuda:  # few operations; a sum by the samples, and no mean, has the same bits in every wave
            total = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
            return total / outputs.shape[1]
        return BatchedCrossEntropy.apply(outputs, targets).sum()  # type: ignore[no-any-return,no-untyped-call]
    if is_mean_over_samples(loss):  # a mean over all rows has other last bits in every wave, so by a row's own count
        joined = outputs.flatten(0, 1), targets.flatten(0, 1)
        if is_of_classes(loss) and not targets.is_floating_point():
            counted = (targets != IGNORED).flatten(1).sum(1)
            return (reduced_by(loss, "none")(*joined).view(len(outputs), -1).sum(1) / counted).sum()
        if is_of_classes(loss):
            return reduced_by(loss, "sum")(*joined) / (outputs[0].numel() // outputs.shape[2])
        if outputs.shape == targets.shape:
            return reduced_by(loss, "sum")(*joined) / outputs[0].numel()
    return row_losses(loss, outputs, targets).sum()


def reduced_by(loss: Loss, reduction: str) -> Loss:
    """One of torch's losses with another `reduction` than the mean."""
    if not isinstance(loss, nn.Module):
        return partial(loss, reduction=reduction)  # type: ignore[call-arg]
    other: Any = copy(loss)
    other.reduction = reduction
    return cast(Loss, other)


def row_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Each row's loss, [W].

    loss: of one row's outputs and targets. outputs: [W, B, …]. targets: [W, B, …].
    """
    if isinstance(loss, RowByRowLoss):
        return torch.stack([loss(*row) for row in zip(outputs, targets, strict=True)])
    if is_cross_entropy(loss) and outputs.dim() == 3 and not targets.is_floating_point():
        return BatchedCrossEntropy.apply(outputs, targets)  # type: ignore[no-any-return,no-untyped-call]
    return vmap(loss)(outputs, targets)


class RowByRowLoss:
    """A loss that vmap cannot follow, as one that looks at numbers: only ever called with the outputs of one row."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets)


class LossByPart(RowByRowLoss):
    """Several losses by names of parts, as those of a GAN: each parameter follows the one that has its name.

    What is measured is their sum.
    """

    def __init__(self, loss: Loss, names: Sequence[str], parameters: Sequence[str]) -> None:
        """
        - `loss`: gives a dictionary of losses by names of parameters or parts.
        - `names`: those of the dictionary.
        - `parameters`: names of the model's that train, in their order.
        """
        super().__init__(loss)
        owners = [next((name for name in names if matches(one, name)), None) for one in parameters]
        for one, owner in zip(parameters, owners, strict=True):
            if owner is None:
                raise ModelError(f"the loss is a dictionary of {', '.join(names)}, none of which {one} belongs to")
        self.places = {name: [place for place, owner in enumerate(owners) if owner == name] for name in names}
        unused = [name for name, places in self.places.items() if not places]
        if unused:
            raise ModelError(f"the loss has an entry {unused[0]!r}, and no parameter is called so")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([value.reshape(()) for value in self.by_name(outputs, targets).values()]).sum()

    def by_name(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Computes the loss of each part, by its name."""
        found: Any = self.loss(outputs, targets)
        return dict(found)


def is_cross_entropy(loss: Loss) -> bool:
    if isinstance(loss, nn.CrossEntropyLoss):
        return is_mean_over_samples(loss) and loss.label_smoothing == 0.0
    return loss is functional.cross_entropy


def is_of_classes(loss: Loss) -> bool:
    """Whether it is one of torch's losses whose whole numbers are classes."""
    return isinstance(loss, CLASS_LOSSES) or loss in CLASS_FUNCTIONS


def takes_classes(loss: Loss, outputs: Tensor, targets: Tensor, classes: int) -> bool:
    """Whether a loss takes whole numbers for classes: then it fails of one that the outputs do not have.

    Others, of counts, days or groups, take any number, so neither is one too large a mistake, nor is there an accuracy.
    It is tried on the CPU, where a class that is not there is an error and not the end of the process.

    Args:
        loss: of one model's outputs and targets.
        outputs: of a few samples.
        targets: such of them as the loss takes.
        classes: how many the outputs have.
    """
    if is_of_classes(loss):
        return True
    scores, right = outputs.detach().cpu(), targets.cpu()
    with torch.no_grad(), seeded(0, scores.device):
        try:
            loss(scores, right)
        except Exception:  # whatever it is, as weights on another device: nothing can be told, so it is as usual
            return True
        try:
            loss(scores, torch.full_like(right, classes))
        except Exception:
            return True
    return False


class BatchedCrossEntropy(torch.autograd.Function):
    """Each row's mean cross-entropy [W] of outputs [W, B, C].

    Works class by class over all samples ([W, C, B]), which is several times faster than torch's own softmax over a
    last dimension of ten, and keeps the gradient, softmax minus one-hot, from the forward pass.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor) -> Tensor:
        scores = outputs.transpose(1, 2).contiguous()
        scores -= scores.amax(1, keepdim=True)
        truth = targets.unsqueeze(1)
        chosen = scores.gather(1, truth)
        shares = scores.exp_()
        total = shares.sum(1, keepdim=True)
        losses = (total.log() - chosen).mean((1, 2))
        shares /= total
        shares.scatter_add_(1, truth, torch.full((), -1.0, device=shares.device).expand(truth.shape))
        ctx.save_for_backward(shares)
        return losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (shares,) = ctx.saved_tensors
        return (shares * (gradient / shares.shape[2]).view(-1, 1, 1)).transpose(1, 2), None


class Gradients(Protocol):
    """Computes the gradients of a wave of rows, step after step."""

    def __call__(self, inputs: Tensor, targets: Tensor, step: int) -> Tensor:
        """The gradient of each row's loss on its own batch, as a vector like the weights; may be reused memory."""


class StackedModel(ABC):
    """One architecture, many rows."""

    rows_at_once: int | None = None  # the widest wave that makes sense; None: any
    samples_at_once = 1024  # in an evaluation

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        self.module = module
        self.loss = loss
        self.with_buffers = with_buffers  # else normalizations use the statistics of the batch at hand, always
        self.layout = RowLayout(module, with_buffers)
        self.arithmetic = Arithmetic()
        self.fused: torch.dtype | None = None  # of activations in kernels of our own; see `choice.use`

    @abstractmethod
    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        """Get ready for some steps on these weights (`RowLayout.spread_out`) and buffers [W, width − P].

        The optimizer changes the weights in place between the steps; the buffers are brought up to date here.
        """

    def activation_bytes(self, row: Tensor, inputs: Tensor, targets: Tensor) -> int:
        """How much one model's forward pass keeps for its backward pass, each piece of memory counted once.

        What is frozen does not count: it is there once, however wide a wave is.
        """
        kept: dict[int, int] = {}
        frozen = {p.untyped_storage().data_ptr() for p in self.held_once()}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in frozen:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), seeded(0, row.device):
            with self.arithmetic.forward(row.device):
                outputs = self.outputs_in_training(row, inputs)
            self.loss(outputs.float(), targets)
        return sum(kept.values())

    def held_once(self) -> list[nn.Parameter]:
        """Frozen parameters, which all rows share."""
        return [p for p in self.module.parameters() if not p.requires_grad]

    def outputs_in_training(self, row: Tensor, inputs: Tensor) -> Tensor:
        """What a single model puts out in a training."""
        found: Tensor = to_training(self.layout.module(self.module, row))(inputs)
        return found

    @abstractmethod
    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        """Predictions [W, B, …] of whole rows [W, width], in evaluation mode, for inputs [B, …] that all rows share."""


class PassedModel(StackedModel):
    """One pass for all rows, and one flat matrix for the gradients of all parameters."""

    @abstractmethod
    def passed(self, inputs: Tensor, run: Pass) -> Tensor:
        """Outputs [W, B, …] for inputs [W, B, …]."""

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        layout, rows = self.layout, len(keys)
        leaves = {name: leaf.requires_grad_() for name, leaf in layout.dense_views(weights.detach(), rows).items()}
        tensors = leaves | layout.views(buffers, layout.buffers, layout.parameter_width)
        everything = torch.empty_like(weights)
        places = layout.dense_views(everything, rows)
        wanted = list(leaves.values())
        channels_last, fused = self.arithmetic.uses_channels_last(weights.device), self.fused

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            run = Pass(tensors, True, keys, step, 0, channels_last, self.with_buffers, fused, places)
            with self.arithmetic.forward(weights.device):
                outputs = self.passed(inputs, run)
            loss = sum_of_losses(self.loss, outputs.float(), targets)
            found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
            # Some of them are there already: kernels of our own write where they are told to.
            left = [(to, g) for to, g in zip(places.values(), found, strict=True) if to.data_ptr() != g.data_ptr()]
            torch._foreach_copy_([to for to, _ in left], [g for _, g in left])
            return everything

        return gradients

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        layout = self.layout
        with torch.no_grad():
            tensors = layout.views(rows, [*layout.parameters, *layout.buffers])
            channels_last = self.arithmetic.uses_channels_last(rows.device)
            run = Pass(tensors, False, None, 0, 0, channels_last, self.with_buffers, self.fused)
            with self.arithmetic.forward(rows.device):
                return self.passed(inputs.expand(len(rows), *inputs.shape), run).float()


class TracedModel(PassedModel):
    """The fast path: stacked layers."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        self.traced = Traced(module)

    def passed(self, inputs: Tensor, run: Pass) -> Tensor:
        return self.traced(inputs, run)


class VmapModel(StackedModel):
    """Modules that torch.fx cannot trace, through torch.func.vmap: slower than stacked layers, and never random."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if {id(m) for m in norms if m.track_running_stats} - {id(m) for m in still_parts(module).values()}:
            raise NotStackable("vmap cannot bring the running statistics of a BatchNorm up to date")

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        to_training(self.module)

        def loss_of(row: Tensor, buffer: Tensor, x: Tensor, y: Tensor) -> Tensor:
            with self.arithmetic.forward(row.device):
                outputs: Tensor = functional_call(self.module, self._named(row, buffer), (x,))
            return self.loss(outputs.float(), y)

        of_all = vmap(grad(loss_of))

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            rows = self.layout.gather(weights, len(keys))
            return self.layout.spread_out(of_all(rows, buffers, inputs, targets))

        return gradients

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self.module.eval()
        width = self.layout.parameter_width

        def outputs_of(row: Tensor) -> Tensor:
            result: Tensor = functional_call(self.module, self._named(row[:width], row[width:]), (inputs,))
            return result

        with torch.no_grad(), any_alignment(rows.device):
            return vmap(outputs_of)(rows)

    def _named(self, row: Tensor, buffer: Tensor) -> dict[str, Tensor]:
        layout, width = self.layout, self.layout.parameter_width
        named = {e.name: row[e.start : e.end].view(e.shape) for e in layout.parameters}
        return named | {e.name: buffer[e.start - width : e.end - width].view(e.shape) for e in layout.buffers}


# -- Multilayer perceptrons with cross-entropy, written out by hand: no autograd, a dozen batched products a step -----
# Small models are where a simulator spends its time on everything but arithmetic. Here the forward pass keeps what the
# backward pass needs, the gradients go straight to their places in one vector, and the loss itself, which training does
# not need, is not computed.


class ChainModel(TracedModel):
    """`Linear` layers with `ReLU` between them, on flat samples, with cross-entropy; logistic regression, too."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        if not is_cross_entropy(loss):
            raise NotStackable("not a chain with cross-entropy")
        super().__init__(module, loss, with_buffers)
        names = chain_of(self.traced.training)
        expected = [f"{name}.{part}".removeprefix(self.traced.prefix) for name in names for part in ("weight", "bias")]
        if [entry.name for entry in self.layout.parameters] != expected or self.layout.buffers:
            raise NotStackable("frozen, shared or unused weights")

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        rows = len(keys)
        everything = torch.empty_like(weights)
        layers = pairs(self.layout.dense_views(weights, rows))
        places = pairs(self.layout.dense_views(everything, rows))
        minus_one = torch.full((), -1.0, device=weights.device)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            with torch.no_grad():
                ours = numpy_multiplies(inputs) and numpy_multiplies(weights)
                entering = (forward_by_numpy if ours else forward)(layers, inputs.flatten(2))
                weight, bias = layers[-1]
                # [W, classes, B]: a softmax over ten classes is much faster when the samples are innermost.
                if ours:
                    scores = multiplied(weight, entering[-1].transpose(1, 2)).add_(bias.unsqueeze(2))
                else:
                    scores = torch.baddbmm(bias.unsqueeze(2), weight, entering[-1].transpose(1, 2))
                error = torch.softmax(scores, 1)
                truth = targets.unsqueeze(1)
                error.scatter_add_(1, truth, minus_one.expand(truth.shape)).div_(inputs.shape[1])
                (backward_by_numpy if ours else backward)(layers, places, entering, error)
            return everything

        return gradients


def chain_of(graph: Graph) -> list[str]:
    """The names of the linear layers, in order; raises where there is anything else than them and ReLUs."""
    names: list[str] = []
    kinds: list[str] = []
    for before, node in pairwise(graph.nodes):
        if node.all_input_nodes != [before]:
            raise NotStackable("not a chain")
        module = graph.modules.get(str(node.target)) if node.op == "call_module" else None
        if type(module) is nn.Linear and module.bias is not None:
            names.append(str(node.target))
            kinds.append("linear")
        elif is_relu(node, graph.modules):
            kinds.append("relu")
        elif not (is_flattening(node, module) and not kinds) and node.op != "output":
            raise NotStackable(f"{node.target} in a chain")
    if not names or kinds != ["linear", "relu"] * (len(names) - 1) + ["linear"]:
        raise NotStackable("not a chain of Linear and ReLU")
    return names


def is_flattening(node: fx.Node, module: nn.Module | None) -> bool:
    if module is not None:
        return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
    is_flatten = node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten")
    return is_flatten and node.args[1:] == (1,) and not node.kwargs


def pairs(views: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of every layer, in order."""
    tensors = list(views.values())
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def forward(layers: list[tuple[Tensor, Tensor]], inputs: Tensor) -> list[Tensor]:
    """What enters each layer, [W, B, features]."""
    entering = [inputs]
    for weight, bias in layers[:-1]:
        entering.append(torch.baddbmm(bias.unsqueeze(1), entering[-1], weight.transpose(1, 2)).relu_())
    return entering


def backward(
    layers: list[tuple[Tensor, Tensor]], places: list[tuple[Tensor, Tensor]], entering: list[Tensor], error: Tensor
) -> None:
    """Write every gradient to its place; `error` [W, features, B] is the derivative by the last layer's output."""
    for k in range(len(layers) - 1, -1, -1):
        for_weight, for_bias = places[k]
        torch.bmm(error, entering[k], out=for_weight)
        torch.sum(error, 2, out=for_bias)
        if k > 0:
            before = torch.bmm(error.transpose(1, 2), layers[k][0])
            before = torch.ops.aten.threshold_backward(before, entering[k], 0)
            error = before.transpose(1, 2)


def forward_by_numpy(layers: list[tuple[Tensor, Tensor]], inputs: Tensor) -> list[Tensor]:
    """The forward pass with the samples of hidden layers innermost, where OpenBLAS is faster and MKL slower.

    By how much is said in `training.chain`.
    """
    entering = [inputs]
    for weight, bias in layers[:-1]:
        leaving = multiplied(weight, entering[-1].transpose(1, 2)).add_(bias.unsqueeze(2)).relu_()
        entering.append(leaving.transpose(1, 2))
    return entering


def backward_by_numpy(
    layers: list[tuple[Tensor, Tensor]], places: list[tuple[Tensor, Tensor]], entering: list[Tensor], error: Tensor
) -> None:
    """The backward pass that belongs to `forward_by_numpy`."""
    for k in range(len(layers) - 1, -1, -1):
        for_weight, for_bias = places[k]
        np.matmul(error.numpy(), entering[k].numpy(), out=for_weight.numpy())
        torch.sum(error, 2, out=for_bias)
        if k > 0:
            before = multiplied(layers[k][0].transpose(1, 2), error)
            error = torch.ops.aten.threshold_backward(before, entering[k].transpose(1, 2), 0)
