"""F, L, σ² and ζ² of a task (Assumptions 1 to 3), estimated from its data as it is split over the nodes.

The assumptions speak of all models; we look at the initial model and at a few on the way down, and take the largest.

- σ²: E‖∇F_v(x, batch) − ∇f_v(x)‖² over mini-batches drawn as training draws them, mean over nodes; its standard error
  from how much the squared deviations differ.
- ζ²: the largest over nodes of ‖∇f_v(x) − ∇f(x)‖² (the assumption's), and the mean over nodes. Exact where every node's
  data is used; where it is sampled, what sampling adds is subtracted, with a jackknife's standard error over blocks.
- L: the largest curvature of any node's loss, by power iteration on Hessian-vector products. Its error is the residual
  ‖Hv − λv‖: a true eigenvalue is at most that far away.
- F: f(x₀) less the lowest value that a short full-gradient descent leads to, its tail continued as a geometric series;
  the error is what the continuation adds. Or f(x₀) less a lower bound that the caller knows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.learning import Task
from walktalk.theory import Problem

# -- Gradients and curvatures of each node's loss at one model, by plain backward passes ------------------------------
# A node's data beyond a limit is sampled, and the sample is cut into blocks, so that what the sample leaves open can be
# seen from how much the blocks differ.

APART = 1e-3  # of the model's size: so far apart are two gradients whose difference is a curvature, in 32 bits
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
        found: Any = self.task.loss(self.model(self.task.inputs[index]), self.task.targets[index])
        if not isinstance(found, Tensor):
            raise ModelError(
                f"task {self.task.name}: each part of its model follows a loss of its own, so there is none to advise "
                "by; compare algorithms instead, with wt.compare"
            )
        return found

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
        found = torch.autograd.grad(self.loss(samples), self.parameters, create_graph=True, materialize_grads=True)
        gradient = flat(found)
        vector = torch.as_tensor(self.rng.normal(size=len(gradient)), dtype=gradient.dtype)
        value, residual = 0.0, 0.0
        for _ in range(rounds):
            vector = vector / vector.norm()
            image = self._times_hessian(samples, gradient, vector)
            value = float(vector @ image)
            residual = float((image - value * vector).norm())
            if residual <= tolerance * abs(value) or float(image.norm()) == 0.0:
                break
            vector = image
        if not np.isfinite(value):
            raise ModelError(f"task {self.task.name}: the curvature at node {node} is not finite; look at its data")
        return abs(value), residual

    def _times_hessian(self, samples: np.ndarray, gradient: Tensor, vector: Tensor) -> Tensor:
        """H·vector; by differences where torch can derive an operation once only: it says so, or gives nothing."""
        try:
            found = flat(
                torch.autograd.grad(
                    gradient @ vector, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            )
        except (NotImplementedError, RuntimeError):
            return self._difference(samples, vector)
        return found if float(found.norm()) > 0.0 else self._difference(samples, vector)

    def _difference(self, samples: np.ndarray, vector: Tensor) -> Tensor:
        """H·vector from gradients on both sides of the model."""
        size = torch.sqrt(sum(p.detach().square().sum() for p in self.parameters))  # type: ignore[arg-type]
        step = APART * max(1.0, float(size)) / float(vector.norm())
        ahead = self._gradient_at(samples, step * vector)
        return (ahead - self._gradient_at(samples, -step * vector)) / (2 * step)

    def _gradient_at(self, samples: np.ndarray, away: Tensor) -> Tensor:
        before = [p.detach().clone() for p in self.parameters]
        try:
            with torch.no_grad():
                for parameter, piece in zip(self.parameters, away.split([p.numel() for p in before]), strict=True):
                    parameter.add_(piece.view_as(parameter))
            return self.gradient(samples, "beside the model")
        finally:
            with torch.no_grad():
                for parameter, old in zip(self.parameters, before, strict=True):
                    parameter.copy_(old)


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


# -- F, L, σ² and ζ² of a task (Assumptions 1 to 3), estimated from its data as it is split over the nodes ------------


@dataclass(frozen=True)
class Estimate:
    """A number, how far off it may be, and where it comes from."""

    value: float  # the estimate
    error: float  # standard error; 0 where it is exact
    how: str  # in words


@dataclass(frozen=True)
class Constants:
    """What the bounds need to know about a task."""

    F: Estimate  # f(x₀) − f*, what there is to gain
    L: Estimate  # smoothness
    sigma2: Estimate  # σ², the variance of a mini-batch gradient at a node
    zeta2: Estimate  # the largest over nodes, as Assumption 3 has it
    zeta2_mean: Estimate  # the mean over nodes
    f0: float  # the loss of the initial model, mean over nodes

    @property
    def problem(self) -> Problem:
        """The constants as a `theory.Problem`, which the theorems take."""
        return Problem(F=self.F.value, L=self.L.value, sigma2=self.sigma2.value, zeta2=self.zeta2.value)

    @property
    def f_best(self) -> float:
        """The lowest loss that seems possible."""
        return self.f0 - self.F.value


@dataclass(frozen=True)
class Effort:
    """How much work an estimate may be."""

    points: int = 3  # models to look at: the initial one and others on the way down
    batches: int = 16  # mini-batches per node and point
    rounds: int = 30  # of power iteration
    curved_nodes: int = 8  # nodes whose curvature is computed, spread evenly
    descent: int = 60  # steps of the descent that finds F
    most_samples: int = 512  # of a node's data; beyond, it is sampled


QUICK = Effort(points=2, batches=4, rounds=15, curved_nodes=4, descent=40, most_samples=128)
"""For the advisor, which orders candidates with it and then measures."""


def estimate_constants(
    task: Task,
    *,
    batch_size: int = 32,
    seed: int | Seed = 0,
    lower_bound: float | None = None,
    effort: Effort | None = None,
) -> Constants:
    """The constants of a task; `ModelError` in one line where a gradient is not finite.

    Args:
        task: The task to look at.
        batch_size: Of the mini-batches whose gradients σ² is about.
        seed: Of initial model and batches.
        lower_bound: Of the loss, if you know one; else a short descent looks for it.
        effort: How much work it may be.
    """
    effort = effort or Effort()
    if batch_size < 1:
        raise misfit("batch_size", batch_size, "a whole number, 1 or more", ModelError)
    root = as_seed(seed).child("constants")
    model = task.initial(root.child("initial model").integer)
    first = LocalLoss(task, copy.deepcopy(model), root.child("samples").numpy(), effort.most_samples)
    start = look(first, batch_size, effort)
    F, f0, points = gain(task, model, root, start.L.value, lower_bound, effort)
    found = [start, *(look(point, batch_size, effort) for point in points)]
    return Constants(
        F=F,
        L=largest([point.L for point in found]),
        sigma2=largest([point.sigma2 for point in found]),
        zeta2=largest([point.zeta2 for point in found]),
        zeta2_mean=largest([point.zeta2_mean for point in found]),
        f0=f0,
    )


@dataclass(frozen=True)
class Point:
    """What was measured at one model: smoothness L, noise σ² and diversity ζ²."""

    L: Estimate
    sigma2: Estimate
    zeta2: Estimate
    zeta2_mean: Estimate


def look(local: LocalLoss, batch_size: int, effort: Effort) -> Point:
    """Measure smoothness L, noise σ² and diversity ζ² at one model."""
    gradients = local.node_gradients()
    largest_one, mean = diversity(gradients)
    return Point(curvature(local, effort), noise(local, gradients, batch_size, effort.batches), largest_one, mean)


def noise(local: LocalLoss, gradients: NodeGradients, batch_size: int, batches: int) -> Estimate:
    """σ² of batches of this size, mean over nodes."""
    deviations = np.empty((len(local.samples), batches))
    for node, part in enumerate(local.task.parts):
        for k in range(batches):
            batch = local.rng.choice(part, batch_size, replace=True)  # as training draws
            away = local.gradient(batch, f"at node {node}") - gradients.mean[node]
            deviations[node, k] = float(away @ away)
    # The node's own gradient is known up to its sampling variance, which adds to every deviation.
    values = deviations.mean(1) - gradients.variance.numpy()
    error = sqrt(float(deviations.var(axis=1, ddof=1).sum()) / batches) / len(values) if batches > 1 else 0.0
    return Estimate(max(0.0, float(values.mean())), error, f"{batches} batches of {batch_size} at each node")


def diversity(gradients: NodeGradients) -> tuple[Estimate, Estimate]:
    """ζ²: the largest over nodes, and the mean."""
    if gradients.blocks is None:
        values = distances(gradients.mean, gradients.variance)
        how = "all data of every node"
        return Estimate(float(values.max()), 0.0, how), Estimate(float(values.mean()), 0.0, how)
    blocks = gradients.blocks
    count = blocks.shape[1]
    values = distances(gradients.mean, gradients.variance)
    found = []
    for left_out in range(count):
        rest = torch.cat([blocks[:, :left_out], blocks[:, left_out + 1 :]], dim=1)
        again = distances(rest.mean(1), gradients.variance * count / (count - 1))
        found.append((float(again.max()), float(again.mean())))
    errors = np.sqrt((count - 1) / count * ((np.array(found) - np.mean(found, axis=0)) ** 2).sum(0))
    how = f"a sample of every node's data, jackknife over {count} blocks"
    return Estimate(float(values.max()), float(errors[0]), how), Estimate(float(values.mean()), float(errors[1]), how)


def distances(means: torch.Tensor, variances: torch.Tensor) -> np.ndarray:
    """‖∇f_v − ∇f‖² of every node, less what the sampling of its data adds."""
    nodes = len(means)
    plain = ((means - means.mean(0)) ** 2).sum(1)
    # Var(ĝ_v − mean) = (1 − 2/V) var_v + (1/V²) Σ var
    added = (1 - 2 / nodes) * variances + variances.sum() / nodes**2
    return (plain - added).clamp(min=0.0).double().numpy()


def curvature(local: LocalLoss, effort: Effort) -> Estimate:
    """L: the largest over some nodes, evenly chosen."""
    nodes = np.unique(np.linspace(0, len(local.samples) - 1, effort.curved_nodes).round().astype(int))
    found = [local.largest_curvature(int(node), effort.rounds, tolerance=1e-3) for node in nodes]
    value, residual = max(found)
    return Estimate(value, residual, f"power iteration at {len(nodes)} nodes, residual as error")


def gain(
    task: Task, model: torch.nn.Module, root: Seed, L: float, lower_bound: float | None, effort: Effort
) -> tuple[Estimate, float, list[LocalLoss]]:
    """F, f(x₀), and models on the way down to look at."""
    local = LocalLoss(task, copy.deepcopy(model), root.child("samples").numpy(), effort.most_samples)
    marks = {round(effort.descent * k / max(effort.points - 1, 1)) for k in range(1, effort.points)}
    values: list[float] = []
    points: list[LocalLoss] = []

    def seen(step: int, value: float) -> None:
        values.append(value)
        if step in marks:
            rng = root.child("point", step).numpy()
            points.append(LocalLoss(task, copy.deepcopy(local.model), rng, effort.most_samples))

    descend(local, effort.descent, 1.0 / max(L, 1e-12), momentum=0.9, seen=seen)
    f0 = values[0]
    if not np.isfinite(f0):
        raise ModelError(f"task {task.name}: the loss of the initial model is {f0}; look at its data and its loss")
    if lower_bound is not None:
        if lower_bound > min(values):
            raise ModelError(f"lower_bound: {lower_bound} is above {min(values):.6g}, a loss that was reached")
        return (
            Estimate(f0 - lower_bound, 0.0, f"f(x₀) = {f0:.4g} less the given lower bound {lower_bound:g}"),
            f0,
            points,
        )
    rest = tail(values)
    return Estimate(f0 - min(values) + rest, rest, f"{effort.descent} steps of descent, and its tail"), f0, points


def tail(values: list[float]) -> float:
    """What a descent would still gain if its last two quarters went on as a geometric series."""
    quarter = len(values) // 4
    if quarter < 2:
        return 0.0
    earlier, later = values[-2 * quarter] - values[-quarter], values[-quarter] - values[-1]
    if later <= 0 or earlier <= 0:
        return 0.0
    ratio = min(later / earlier, 0.95)
    return later * ratio / (1 - ratio)


def largest(estimates: list[Estimate]) -> Estimate:
    return max(estimates, key=lambda estimate: estimate.value)
