"""Whether it matters for D-PSGD and D² on a ring that batches are drawn with replacement, as here, or epoch by epoch.

    python results/2026-11-16-published/replacement.py --data FOLDER --out results/2026-11-16-published/replacement.csv

MNIST, 16 nodes on a ring with weights of 1/3, split as in Table 1 with α = 0.01, a perceptron 784-64-10, batches of 32,
learning rate 0.5 falling twice by ten, 8 epochs: a plain loop of its own. Worst and mean node's test accuracy, and the
mean squared distance of the models to their mean.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.learning import Task, tasks
from walktalk.learning.partition import even_dirichlet

NODES, BATCH, EPOCHS, LR, HIDDEN = 16, 32, 8, 0.5, 64
DROPS = (0.75, 0.9)  # of the way, where the learning rate falls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with MNIST's four files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for seed in range(options.seeds):
        task = tasks.build("mnist", NODES, seed, split="iid", folder=options.data)
        parts = even_dirichlet(task.targets.numpy(), NODES, 0.01, np.random.RandomState(101 + seed))
        for algorithm, replaced in product(("dpsgd", "d2"), (True, False)):
            found = trained(task, parts, seed, algorithm == "d2", replaced)
            lines.append({"algorithm": algorithm, "seed": seed, "drawn": "with" if replaced else "without", **found})
            print(lines[-1], flush=True)
    pd.DataFrame(lines).to_csv(options.out, index=False, float_format="%.4g")


def trained(task: Task, parts: list[np.ndarray], seed: int, corrected: bool, replaced: bool) -> dict[str, float]:
    """What is there in the end. corrected: D² in place of D-PSGD; replaced: how batches are drawn."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(784, HIDDEN, generator=generator) / 28
    second = torch.randn(HIDDEN, 10, generator=generator) / HIDDEN**0.5
    weights = [w.repeat(NODES, 1, 1) for w in (first, torch.zeros(1, HIDDEN), second, torch.zeros(1, 10))]
    drift = [torch.zeros_like(w) for w in weights]
    inputs = task.inputs.flatten(1)
    steps = min(map(len, parts)) // BATCH
    for epoch in range(EPOCHS):
        lr = LR * 0.1 ** sum(epoch >= drop * EPOCHS for drop in DROPS)
        count = steps * BATCH
        chosen = np.stack([rng.choice(part, count) if replaced else rng.permutation(part)[:count] for part in parts])
        for batch in torch.from_numpy(chosen).split(BATCH, 1):
            after = stepped(weights, inputs[batch], task.targets[batch], lr)
            mixed = averaged([a + d for a, d in zip(after, drift, strict=True)])
            if corrected:  # x(t + 1) − x(t) + η g(t), what the averaging did
                drift = [m - a for m, a in zip(mixed, after, strict=True)]
            weights = mixed
    assert task.test is not None
    with torch.no_grad():
        scores = outputs(weights, task.test[0].flatten(1).expand(NODES, -1, -1))
        right = (scores.argmax(2) == task.test[1]).double().mean(1)
        apart = sum(float((w - w.mean(0)).square().sum()) for w in weights) / NODES
    return {"worst": float(right.min()), "mean": float(right.mean()), "apart": apart}


def outputs(weights: list[Tensor], x: Tensor) -> Tensor:
    a, b, c, d = weights
    return torch.relu(x @ a + b) @ c + d


def stepped(weights: list[Tensor], x: Tensor, y: Tensor, lr: float) -> list[Tensor]:
    """Every node by itself."""
    leaves = [w.requires_grad_() for w in weights]
    loss = functional.cross_entropy(outputs(leaves, x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH
    gradients = torch.autograd.grad(loss, leaves)
    return [(w - lr * g).detach() for w, g in zip(leaves, gradients, strict=True)]


def averaged(weights: list[Tensor]) -> list[Tensor]:
    """With both neighbours."""
    return [(w + w.roll(1, 0) + w.roll(-1, 0)) / 3 for w in weights]


if __name__ == "__main__":
    main()
