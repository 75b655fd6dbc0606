"""Gradients and curvatures of each node's loss at one model, by plain backward passes.

A node's data beyond a limit is sampled, and the sample is cut into blocks, so that what the sample leaves open can be
seen from how much the blocks differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.learning import Task

BLOCKS = 8  # of a node's sample: few enough that a block is a fair gradient, many enough for a standard error
AT_ONCE = 1024  # samples in one backward pass: bounds the memory


@dataclass(frozen=True)
class NodeGradients:
    """Every node's gradient at one model."""

    mean: Tensor  # [V, P]
    variance: Tensor  # [V], of the mean: E‖mean − gradient of all data‖²; 0 where all data was used
    blocks: Tensor | None  # [V, BLOCKS, P], where data was sampled

    @property
    def exact(self) -> bool:
        return self.blocks is None


class LocalLoss:
    """A task's loss as a function of one model, node by node."""

    def __init__(self, task: Task, model: nn.Module, rng: np.random.Generator, most_samples: int) -> None:
        self.task = task
        self.model = model.train()  # as it is trained: batch normalization sees the batch
        self.rng = rng
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ModelError(f"task {task.name}: the model has no parameter that requires a gradient")
        self.samples = [self._sample(part, most_samples) for part in task.parts]
        self.exact = all(len(s) == len(p) for s, p in zip(self.samples, task.parts, strict=True))

    def _sample(self, part: np.ndarray, most: int) -> np.ndarray:
        if len(part) <= max(most, BLOCKS):
            return np.asarray(part)
        return np.sort(self.rng.choice(part, most, replace=False))

    def loss(self, samples: np.ndarray) -> Tensor:
        index = torch.as_tensor(samples)
        return self.task.loss(self.model(self.task.inputs[index]), self.task.targets[index])

    def mean_loss(self) -> float:
        """f: the plain average over nodes, as the paper has it, whatever each node's share of the data."""
        with torch.no_grad():
            values = [
                sum(float(self.loss(piece)) * len(piece) for piece in pieces(samples)) / len(samples)
                for samples in self.samples
            ]
        return float(np.mean(values))

    def gradient(self, samples: np.ndarray, where: str) -> Tensor:
        """The mean gradient over these samples, as one flat vector; an error names the place if it is not finite."""
        total = torch.zeros(sum(p.numel() for p in self.parameters))
        for piece in pieces(samples):
            found = torch.autograd.grad(self.loss(piece), self.parameters, materialize_grads=True)
            total += flat(found) * (len(piece) / len(samples))
        if not bool(torch.isfinite(total).all()):
            raise ModelError(
                f"task {self.task.name}: the gradient {where} is not finite; look for infinities in its data, "
                "a logarithm of 0, or weights that are too large"
            )
        return total

    def node_gradients(self) -> NodeGradients:
        if self.exact:
            rows = [self.gradient(s, f"at node {v}") for v, s in enumerate(self.samples)]
            return NodeGradients(torch.stack(rows), torch.zeros(len(rows)), None)
        blocks = torch.stack(
            [
                torch.stack([self.gradient(b, f"at node {v}") for b in np.array_split(self.rng.permutation(s), BLOCKS)])
                for v, s in enumerate(self.samples)
            ]
        )
        spread = ((blocks - blocks.mean(1, keepdim=True)) ** 2).sum(2).sum(1) / (BLOCKS - 1)
        # Drawn without replacement: what was drawn is known, so only the rest of the node's data leaves doubt.
        unseen = [1 - len(s) / len(part) for s, part in zip(self.samples, self.task.parts, strict=True)]
        return NodeGradients(blocks.mean(1), spread / BLOCKS * torch.tensor(unseen), blocks)

    def largest_curvature(self, node: int, rounds: int, tolerance: float) -> tuple[float, float]:
        """The largest |eigenvalue| of a node's Hessian by power iteration, and the residual: how far off it may be."""
        samples = self.samples[node][:AT_ONCE]
        gradient = flat(torch.autograd.grad(self.loss(samples), self.parameters, create_graph=True))
        if not gradient.requires_grad:
            return 0.0, 0.0  # a loss that is linear in the model
        vector = torch.as_tensor(self.rng.normal(size=len(gradient)), dtype=gradient.dtype)
        value, residual = 0.0, 0.0
        for _ in range(rounds):
            vector = vector / vector.norm()
            image = self._times_hessian(gradient, vector)
            value = float(vector @ image)
            residual = float((image - value * vector).norm())
            if residual <= tolerance * abs(value) or float(image.norm()) == 0.0:
                break
            vector = image
        if not np.isfinite(value):
            raise ModelError(f"task {self.task.name}: the curvature at node {node} is not finite; look at its data")
        return abs(value), residual

    def _times_hessian(self, gradient: Tensor, vector: Tensor) -> Tensor:
        found = torch.autograd.grad(
            gradient @ vector, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return flat(found)


def pieces(samples: np.ndarray) -> list[np.ndarray]:
    return [samples[at : at + AT_ONCE] for at in range(0, len(samples), AT_ONCE)]


def flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def descend(local: LocalLoss, steps: int, rate: float, momentum: float, seen: Callable[[int, float], None]) -> None:
    """Full-gradient descent on f with Nesterov's momentum, in place; `seen` gets the step and f before it.

    A step that makes f larger is taken back, the momentum dropped and the rate halved: the curvature at the start says
    little about elsewhere.
    """
    velocity = [torch.zeros_like(p) for p in local.parameters]
    before, kept = float("inf"), [p.detach().clone() for p in local.parameters]
    for step in range(steps + 1):
        value = local.mean_loss()
        if not value <= before:
            rate /= 2
            velocity = [torch.zeros_like(p) for p in local.parameters]
            with torch.no_grad():
                for parameter, old in zip(local.parameters, kept, strict=True):
                    parameter.copy_(old)
            value = before
        seen(step, value)
        before, kept = value, [p.detach().clone() for p in local.parameters]
        rows = [local.gradient(s, f"at node {v} after {step} steps") for v, s in enumerate(local.samples)]
        gradient, at = torch.stack(rows).mean(0), 0
        with torch.no_grad():
            for parameter, memory in zip(local.parameters, velocity, strict=True):
                piece = gradient[at : at + parameter.numel()].view_as(parameter)
                at += parameter.numel()
                memory.mul_(momentum).add_(piece)
                parameter.sub_(piece + momentum * memory, alpha=rate)
