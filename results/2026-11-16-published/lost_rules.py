"""What a node puts in the place of messages that are lost, with RelaySGD and with quasi-global momentum.

    python results/2026-11-16-published/lost_rules.py --out results/2026-11-16-published/lost_rules.csv

Digits, 16 nodes, split as in Table 1 with α = 0.01, a perceptron 64-32-10, batches of 32, 300 rounds: a plain loop of
its own. RelaySGD on two binary trees with Nesterov momentum: for every model that is missing in its sums stands the
node's own as it is after this round's training, or as it was before. Quasi-global momentum on a ring: the weight of
what is missing stays with the node itself (kept), all weights are divided by the sum of what came (divided), or they
are left as the first code of RelaySGD's authors has them (first: `reproduction.published.lost_weights`). Worst and mean
node's test accuracy, and how large the mean node's parameters are, by their root mean square.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.graphs import Graph, pair_of_trees
from walktalk.learning import Task, tasks
from walktalk.learning.partition import even_dirichlet

NODES, BATCH, ROUNDS, HIDDEN, MOMENTUM = 16, 32, 300, 32, 0.9
SHAPES = ((64, HIDDEN), (1, HIDDEN), (HIDDEN, 10), (1, 10))
SHARES = {"relay": (0.0, 0.01, 0.1), "qg": (0.01, 0.1)}  # of the messages
RATES = (0.3, 1.0, 2.0, 4.0)  # of RelaySGD; quasi-global momentum has a sixth of it, as in Table 2
RULES = {"relay": ("trained", "before"), "qg": ("kept", "divided", "first")}
DROPS = (0.75, 0.9)  # of the way, where the learning rate falls

Average = Callable[[Tensor, Tensor, np.random.Generator], Tensor]  # trained models and those before -> models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates")
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for rate, seed, name in product(options.rates, range(options.seeds), RULES):
        lr = rate if name == "relay" else rate / 6
        task = tasks.digits(nodes=NODES, alpha=None, seed=seed)
        parts = even_dirichlet(task.targets.numpy(), NODES, 0.01, np.random.RandomState(101 + seed))
        for share, rule in product(SHARES[name], RULES[name]):
            average: Average = Relays(share, rule == "before") if name == "relay" else ring(share, rule)
            found = trained(task, parts, seed, lr, name == "qg", average)
            lines.append({"algorithm": name, "rate": lr, "rule": rule, "lost": share, "seed": seed, **found})
            print(lines[-1], flush=True)
    pd.DataFrame(lines).to_csv(options.out, index=False, float_format="%.4g")


def trained(
    task: Task, parts: list[np.ndarray], seed: int, highest: float, quasi_global: bool, average: Average
) -> dict[str, float]:
    """What is there in the end. highest: the learning rate between warm-up and decay."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    starts = [torch.randn(shape, generator=generator) / shape[0] ** 0.5 * (shape[0] > 1) for shape in SHAPES]
    models = torch.cat([start.flatten() for start in starts]).repeat(NODES, 1)
    momenta, inputs = torch.zeros_like(models), task.inputs.flatten(1)
    for number in range(ROUNDS):
        lr = highest * 0.1 ** sum(number >= drop * ROUNDS for drop in DROPS)
        lr *= min(1.0, (number + 1) / (0.025 * ROUNDS))
        batch = torch.from_numpy(np.stack([rng.choice(part, BATCH) for part in parts]))
        slope = gradient(models, inputs[batch], task.targets[batch])
        heavy = MOMENTUM * momenta + slope
        after = average(models - lr * (slope + MOMENTUM * heavy), models, rng)
        momenta = MOMENTUM * momenta + (1 - MOMENTUM) * (models - after) / lr if quasi_global else heavy
        models = after
    assert task.test is not None
    with torch.no_grad():
        scores = outputs(models, task.test[0].flatten(1).expand(NODES, -1, -1))
        right = (scores.argmax(2) == task.test[1]).double().mean(1)
    size = float(models.square().mean().sqrt())
    finite = bool(models.isfinite().all())
    return {"finite": finite, "worst": float(right.min()), "mean": float(right.mean()), "size": size}


class Relays:
    """Sums along two binary trees, every other parameter along each."""

    def __init__(self, share: float, before: bool) -> None:
        """`before`: whether the model before the training stands for what is missing."""
        self.share, self.before = share, before
        self.trees = [Tree(graph) for graph in pair_of_trees(NODES)]

    def __call__(self, trained: Tensor, models: Tensor, rng: np.random.Generator) -> Tensor:
        found = torch.empty_like(models)
        for k, tree in enumerate(self.trees):
            other = (models if self.before else trained)[:, k::2]
            found[:, k::2] = tree.mean(trained[:, k::2], other, rng.random(len(tree.links)) >= self.share)
        return found


class Tree:
    """What travels along one tree, in both directions of every link."""

    def __init__(self, graph: Graph) -> None:
        self.links = [(v, int(w)) for v in range(NODES) for w in graph.neighbours(v)]
        behind = [[b == v and a != w for a, b in self.links] for v, w in self.links]
        self.behind = torch.tensor(behind, dtype=torch.float32)  # which sums go into which, a round later
        self.source = torch.tensor([v for v, _ in self.links])
        self.into = torch.tensor([[w == v for _, w in self.links] for v in range(NODES)], dtype=torch.float32)
        self.sums: Tensor | None = None
        self.counts = torch.zeros(len(self.links))

    def mean(self, trained: Tensor, other: Tensor, arrive: np.ndarray) -> Tensor:
        """Everybody's, as far as it is there; for what is not, `other`."""
        sums = torch.zeros(len(self.links), trained.shape[1]) if self.sums is None else self.sums
        came = torch.from_numpy(arrive).float()
        self.sums = (trained[self.source] + self.behind @ sums) * came[:, None]
        self.counts = (1 + self.behind @ self.counts) * came
        missing = NODES - 1 - self.into @ self.counts
        return (trained + self.into @ self.sums + missing[:, None] * other) / NODES


def ring(share: float, rule: str) -> Average:
    """The mean with both neighbours."""

    def average(trained: Tensor, models: Tensor, rng: np.random.Generator) -> Tensor:
        left, right = torch.from_numpy(rng.random((2, NODES, 1)) >= share).float()
        total = trained + left * trained.roll(1, 0) + right * trained.roll(-1, 0)
        if rule == "kept":
            return (total + (2 - left - right) * trained) / 3
        came = 1 + left + right  # thirds of a weight
        return total / came if rule == "divided" else total / 3 / (1 / 3 + came / 3).clamp(max=1.0)

    return average


def outputs(models: Tensor, x: Tensor) -> Tensor:
    sizes = [a * b for a, b in SHAPES]
    a, b, c, d = (part.view(NODES, *shape) for part, shape in zip(models.split(sizes, 1), SHAPES, strict=True))
    return torch.relu(x @ a + b) @ c + d


def gradient(models: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Every node's own."""
    leaf = models.detach().requires_grad_()
    loss = functional.cross_entropy(outputs(leaf, x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH
    return torch.autograd.grad(loss, leaf)[0]


if __name__ == "__main__":
    main()
