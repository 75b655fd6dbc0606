"""f_v(x) = ½ (x − b_v)ᵀ A (x − b_v): everything that the theorems speak of is known exactly.

A is diagonal with eigenvalues from μ to L. A sample of node v is ξ = b_v + ε, with F(x, ξ) = ½ (x − ξ)ᵀ A (x − ξ), so
∇F − ∇f_v = −Aε. The node's ε are a finite set whose mean is exactly zero and whose mean ‖Aε‖² is exactly σ²; the b_v
are placed so that their mean is b̄ and the largest ‖A(b_v − b̄)‖², which is ‖∇f_v − ∇f‖² everywhere, is exactly ζ².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.learning.task import Task


class Point(nn.Module):
    """A model that is one point x; for a sample ξ it puts out √A (x − ξ)."""

    scale: Tensor

    def __init__(self, eigenvalues: np.ndarray, start: np.ndarray) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start, dtype=torch.float32))
        self.scale = torch.tensor(np.sqrt(eigenvalues), dtype=torch.float32)  # not a buffer: it does not travel

    def forward(self, samples: Tensor) -> Tensor:
        return self.scale.to(samples.device) * (self.x - samples)


def half_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """½ ‖√A (x − ξ)‖², averaged over the batch; the targets are not used."""
    return 0.5 * (outputs**2).sum(-1).mean()


@dataclass(frozen=True)
class QuadraticFacts:
    """The quadratic function itself, to check results against."""

    eigenvalues: np.ndarray  # of A
    centres: np.ndarray  # b_v, one row per node
    noise: float  # what noise adds to every f_v: ½ E[εᵀAε]

    def value(self, x: np.ndarray) -> float:
        """The value f(x) of the mean objective."""
        return float(0.5 * (self.eigenvalues * (x - self.centres) ** 2).sum(1).mean() + self.noise)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient ∇f(x) of the mean objective."""
        return np.asarray(self.eigenvalues * (x - self.centres.mean(0)))


def quadratic(
    nodes: int = 20,
    seed: int | Seed = 0,
    *,
    dimension: Annotated[int, Ge(1)] = 20,
    smoothness: Annotated[float, Gt(0)] = 1.0,
    convexity: Annotated[float, Gt(0)] = 0.1,
    noise: Annotated[float, Ge(0)] = 1.0,
    heterogeneity: Annotated[float, Ge(0)] = 1.0,
    samples: Annotated[int, Ge(1)] = 64,
    distance: Annotated[float, Ge(0)] = 10.0,
) -> Task:
    """A convex function for each node, of which everything is known: σ², ζ², L, μ and the optimum.

    Args:
        nodes: how many nodes, each with a function of its own.
        seed: of all that is drawn.
        dimension: of x.
        smoothness: L, the largest eigenvalue.
        convexity: μ, the smallest eigenvalue.
        noise: σ², the variance of a sample's gradient.
        heterogeneity: ζ², how far a node's gradient is from the mean's at most, squared.
        samples: of each node.
        distance: of the start from the optimum.
    """
    limits = {"nodes": nodes, "dimension": dimension, "samples": samples}
    for name, count in limits.items():
        if count < 1:
            raise misfit(name, count, "a whole number, 1 or more", DataError)
    if noise < 0 or heterogeneity < 0 or distance < 0 or not 0 < convexity <= smoothness:
        raise DataError(
            f"noise: {noise}, heterogeneity: {heterogeneity}, distance: {distance}, convexity: {convexity}, "
            f"smoothness: {smoothness} do not fit; noise, heterogeneity, distance ≥ 0 and 0 < convexity ≤ smoothness"
        )
    if noise and samples == 1:
        raise DataError(f"samples: 1 has no noise, so noise: {noise} cannot be; 2 or more are needed, or noise: 0")
    rng = as_seed(seed).child("quadratic").numpy()
    eigenvalues = np.linspace(convexity, smoothness, dimension) if dimension > 1 else np.array([smoothness])
    optimum = rng.normal(size=dimension)
    centres = optimum + _spread_out(rng, nodes, eigenvalues, heterogeneity)
    start = optimum + distance * _unit(rng, dimension)
    offsets = _noise(rng, nodes, samples if noise else 1, eigenvalues, noise)
    inputs = (centres[:, None, :] + offsets).reshape(-1, dimension)
    per_node = offsets.shape[1]
    parts = [np.arange(v * per_node, (v + 1) * per_node) for v in range(nodes)]
    facts = QuadraticFacts(eigenvalues, centres, float(0.5 * (eigenvalues * offsets**2).sum(2).mean()))
    best = facts.value(centres.mean(0))
    diversity = ((eigenvalues * (centres - centres.mean(0))) ** 2).sum(1)
    task = Task(
        "quadratic",
        Point(eigenvalues, start),
        half_mean_square,
        torch.tensor(inputs, dtype=torch.float32),
        torch.zeros(len(inputs)),
        parts,
        pretrained=True,
    )
    task.facts = {
        "f_star": best,
        "F": facts.value(start) - best,
        "L": smoothness,
        "mu": float(eigenvalues[0]),
        "sigma2": float(noise),
        "zeta2": float(diversity.max()),
        "zeta2_mean": float(diversity.mean()),
    }
    task.details = {"quadratic": facts, "start": start}
    return task


def _unit(rng: np.random.Generator, dimension: int) -> np.ndarray:
    direction = rng.normal(size=dimension)
    return np.asarray(direction / np.linalg.norm(direction))


def _spread_out(rng: np.random.Generator, nodes: int, eigenvalues: np.ndarray, zeta2: float) -> np.ndarray:
    """Offsets with mean zero whose largest gradient difference is exactly √ζ²."""
    if nodes == 1 or zeta2 == 0:
        return np.zeros((nodes, len(eigenvalues)))
    gradients = rng.normal(size=(nodes, len(eigenvalues)))
    gradients -= gradients.mean(0)
    gradients *= np.sqrt(zeta2 / (gradients**2).sum(1).max())
    return np.asarray(gradients / eigenvalues)


def _noise(rng: np.random.Generator, nodes: int, samples: int, eigenvalues: np.ndarray, sigma2: float) -> np.ndarray:
    """Offsets of every node's samples: mean exactly zero, mean ‖Aε‖² exactly σ²."""
    if sigma2 == 0 or samples == 1:
        return np.zeros((nodes, samples, len(eigenvalues)))
    gradients = rng.normal(size=(nodes, samples, len(eigenvalues)))
    gradients -= gradients.mean(1, keepdims=True)
    gradients *= np.sqrt(sigma2 / (gradients**2).sum(2).mean(1))[:, None, None]
    return np.asarray(gradients / eigenvalues)
