"""Multilayer perceptrons with cross-entropy, written out by hand: no autograd, a dozen batched products a step.

Small models are where a simulator spends its time on everything but arithmetic. Here the forward pass keeps what the
backward pass needs, the gradients go straight to their places in one vector, and the loss itself, which training does
not need, is not computed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, fx, nn

from walktalk.learning.stacked.cpu import multiplied, numpy_multiplies
from walktalk.learning.stacked.fused import is_relu
from walktalk.learning.stacked.model import Gradients, TracedModel, is_cross_entropy
from walktalk.learning.stacked.tensors import NotStackable
from walktalk.learning.stacked.traced import Graph
from walktalk.learning.task import Loss


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
