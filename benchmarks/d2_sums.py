"""What weights that sum to one almost, and not exactly, do to D²: the numbers of 32 bits next to 1/3 on a ring of 16.

    python benchmarks/d2_sums.py --out results/2026-11-16-published/d2_sums.csv

Three times that number is 1 + 3e-8, and the mean of D²'s models, which goes by 2 x(t) − x(t−1), grows as cosh(√3e-8 t)
wherever the loss does not hold it: by 14 in the 19,400 rounds of Table 1. Here as many rounds on digits in a plain loop
of its own: split as there, a perceptron 64-64-10, batches of 32, a warm-up, rates that fall by ten after 75 and 90 %,
weight decay. `nearest`: all three weights are the number next to 1/3; `exact`: a node's own weight is what the other
two leave of 1, as in the published code, and in walktalk since. Worst and mean node's test accuracy, the mean model's,
and the root mean square of its parameters.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning import Task, tasks
from walktalk.learning.partition import even_dirichlet

NODES, BATCH, HIDDEN, DECAY = 16, 32, 64, 1e-4
WARMUP, DROPS = 0.025, (0.75, 0.9)  # of the way: until there the rate grows, from there on it is a tenth
THIRD = float(torch.tensor(1 / 3))  # in 32 bits
OWN = {"nearest": THIRD, "exact": 1.0 - 2.0 * THIRD}
RATES = {0.0: 0.2, 0.9: 0.05}  # of Table 1, by momentum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=19_400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[dict[str, float | str]] = []
    for momentum, seed, own in product(RATES, range(options.seeds), OWN):
        task = tasks.build("digits", NODES, seed, alpha=1.0)
        parts = even_dirichlet(task.targets.numpy(), NODES, options.alpha, np.random.RandomState(101 + seed))
        for found in trained(task, parts, seed, OWN[own], momentum, options.rounds):
            lines.append({"momentum": momentum, "weights": own, "seed": seed, **found})
            print(lines[-1], flush=True)
        pd.DataFrame(lines).to_csv(options.out, index=False, float_format="%.4g")


def trained(
    task: Task, parts: list[np.ndarray], seed: int, own: float, momentum: float, rounds: int
) -> list[dict[str, float]]:
    """What is there after every tenth of the way."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    first = torch.randn(64, HIDDEN, generator=generator) / 8
    second = torch.randn(HIDDEN, 10, generator=generator) / HIDDEN**0.5
    weights = [w.repeat(NODES, 1, 1) for w in (first, torch.zeros(1, HIDDEN), second, torch.zeros(1, 10))]
    drift, pace = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    inputs, found = task.inputs.flatten(1), []
    for t in range(rounds):
        lr = RATES[momentum] * min(1.0, t / (WARMUP * rounds)) * 0.1 ** sum(t >= drop * rounds for drop in DROPS)
        batch = torch.from_numpy(np.stack([rng.choice(part, BATCH) for part in parts]))
        slopes = gradients(weights, inputs[batch], task.targets[batch])
        pace = [momentum * p + g + DECAY * w for p, g, w in zip(pace, slopes, weights, strict=True)]
        steps = [g + DECAY * w + momentum * p for p, g, w in zip(pace, slopes, weights, strict=True)]  # Nesterov's
        after = [w - lr * step for w, step in zip(weights, steps, strict=True)]
        mixed = averaged([a + d for a, d in zip(after, drift, strict=True)], own)
        drift = [m - a for m, a in zip(mixed, after, strict=True)]  # what the averaging did
        weights = mixed
        if (t + 1) % (rounds // 10) == 0:
            found.append({"round": t + 1, **measured(weights, task)})
    return found


def gradients(weights: list[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Of every node by itself."""
    leaves = [w.detach().requires_grad_() for w in weights]
    loss = functional.cross_entropy(outputs(leaves, x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH
    return torch.autograd.grad(loss, leaves)


def averaged(models: list[Tensor], own: float) -> list[Tensor]:
    """With both neighbours."""
    return [own * w + THIRD * w.roll(1, 0) + THIRD * w.roll(-1, 0) for w in models]


def outputs(weights: list[Tensor], x: Tensor) -> Tensor:
    a, b, c, d = weights
    return torch.relu(x @ a + b) @ c + d


def measured(weights: list[Tensor], task: Task) -> dict[str, float]:
    assert task.test is not None
    mean = [w.mean(0, keepdim=True) for w in weights]
    with torch.no_grad():
        x, y = task.test[0].flatten(1), task.test[1]
        right = (outputs(weights, x.expand(NODES, -1, -1)).argmax(2) == y).double().mean(1)
        middle = (outputs(mean, x[None]).argmax(2) == y).double().mean()
    size = torch.cat([w.flatten() for w in mean]).square().mean().sqrt()
    ends = {"worst": right.min(), "mean": right.mean(), "mean_model": middle, "rms": size}
    return {name: float(value) for name, value in ends.items()}


if __name__ == "__main__":
    main()
