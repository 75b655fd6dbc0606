"""What weights that sum to one almost, and not exactly, do to D²: the numbers of 32 bits next to 1/3 on a ring of 16.

    python results/2026-11-16-published/d2_sums.py --out results/2026-11-16-published/d2_sums.csv

Three times that number is 1 + 3e-8, and the mean of D²'s models, which goes by 2 x(t) − x(t−1), grows as cosh(√3e-8 t)
wherever the loss does not hold it: by 14 in the 19,400 rounds of Table 1. Here as many rounds on digits in a plain loop
of its own: split as there, a perceptron of as many layers as VGG-11 has, batches of 16, a warm-up, rates that
fall by ten after 75 and 90 %, weight decay. `nearest`: all three weights are the number next to 1/3; `exact`: a node's
own weight is what the other two leave of 1, as in the published code, and in walktalk since. Worst and mean node's test
accuracy, the mean model's, its test loss, and the root mean square of its parameters.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.learning import Task, tasks
from walktalk.learning.partition import even_dirichlet

NODES, BATCH, HIDDEN, DECAY = 16, 16, 16, 1e-4
WARMUP, DROPS = 0.025, (0.75, 0.9)  # of the way: until there the rate grows, from there on it is a tenth
THIRD = float(torch.tensor(1 / 3))  # in 32 bits
OWN = {"nearest": THIRD, "exact": 1.0 - 2.0 * THIRD}
RATES = {0.9: 0.01}  # by momentum
KINDS = list(product(RATES, OWN))  # all are trained side by side, on the same batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=19_400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, nargs="+", default=[11])
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes; seeds in it are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for layers, seed in product(options.layers, options.seeds):
        task = tasks.build("digits", NODES, seed, alpha=1.0)
        parts = even_dirichlet(task.targets.numpy(), NODES, options.alpha, np.random.RandomState(101 + seed))
        found = pd.DataFrame(trained(task, parts, seed, layers, options.rounds)).assign(layers=layers, seed=seed)
        print(found.to_string(), flush=True)
        before = [pd.read_csv(options.out)] if options.out.is_file() else []
        pd.concat([*before, found]).to_csv(options.out, index=False, float_format="%.4g")


def trained(task: Task, parts: list[np.ndarray], seed: int, layers: int, rounds: int) -> list[dict[str, float | str]]:
    """What is there after every tenth of the way, of every kind. Models are numbers [kind, node, parameter]."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    widths = [64, *[HIDDEN] * (layers - 1), 10]
    matrices = [torch.randn(a, b, generator=generator) * (2.0 / a) ** 0.5 for a, b in pairwise(widths)]
    start = torch.cat([torch.cat((matrix.flatten(), torch.zeros(matrix.shape[1]))) for matrix in matrices])
    models = start.repeat(len(KINDS), NODES, 1)
    drift, pace = torch.zeros_like(models), torch.zeros_like(models)
    own, rates, momenta = (
        torch.tensor(of).view(-1, 1, 1)
        for of in ([OWN[kind] for _, kind in KINDS], [RATES[m] for m, _ in KINDS], [m for m, _ in KINDS])
    )
    sizes = np.array([[len(part)] for part in parts])
    own_data = np.stack([np.resize(part, sizes.max()) for part in parts])
    inputs, found = task.inputs.flatten(1), []
    for t in range(rounds):
        lr = rates * (min(1.0, t / (WARMUP * rounds)) * 0.1 ** sum(t >= drop * rounds for drop in DROPS))
        batch = torch.from_numpy(np.take_along_axis(own_data, rng.integers(0, sizes, (NODES, BATCH)), 1))
        slope = gradient(models, widths, inputs[batch], task.targets[batch]) + DECAY * models
        pace = momenta * pace + slope
        after = models - lr * (slope + momenta * pace)  # Nesterov's
        half = after + drift
        models = own * half + THIRD * half.roll(1, 1) + THIRD * half.roll(-1, 1)
        drift = models - after  # what the averaging did
        if (t + 1) % (rounds // 10) == 0:
            for place, (momentum, kind) in enumerate(KINDS):
                ends = measured(models[place], widths, task)
                found.append({"momentum": momentum, "weights": kind, "round": t + 1, **ends})
    return found


def gradient(models: Tensor, widths: list[int], x: Tensor, y: Tensor) -> Tensor:
    """Of every node of every kind by itself."""
    leaf = models.detach().requires_grad_()
    scores = outputs(leaf, widths, x).flatten(0, 2)
    loss = functional.cross_entropy(scores, y.flatten().repeat(len(KINDS)), reduction="sum") / BATCH
    return torch.autograd.grad(loss, leaf)[0]


def outputs(models: Tensor, widths: list[int], x: Tensor) -> Tensor:
    """Scores of the perceptrons in the last dimension of `models`."""
    pieces = models.split([n for a, b in pairwise(widths) for n in (a * b, b)], -1)
    for place, (above, below) in enumerate(pairwise(widths)):
        x = x if place == 0 else torch.relu(x)
        matrix = pieces[2 * place].unflatten(-1, (above, below))
        x = x @ matrix + pieces[2 * place + 1].unsqueeze(-2)
    return x


def measured(models: Tensor, widths: list[int], task: Task) -> dict[str, float]:
    assert task.test is not None
    x, y = task.test[0].flatten(1), task.test[1]
    with torch.no_grad():
        right = (outputs(models, widths, x.expand(NODES, -1, -1)).argmax(2) == y).double().mean(1)
        middle = outputs(models.mean(0), widths, x)
    ends = {"worst": right.min(), "mean": right.mean(), "mean_model": (middle.argmax(1) == y).double().mean()}
    ends |= {"loss": functional.cross_entropy(middle, y), "rms": models.mean(0).square().mean().sqrt()}
    return {name: float(value) for name, value in ends.items()}


if __name__ == "__main__":
    main()
