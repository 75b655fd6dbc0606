"""What a log-softmax over the batch does to a network: table5's, with it and without, where averaging is exact.

    python results/2026-11-16-published/batch_softmax.py --data FOLDER > results/2026-11-16-published/softmax.csv

D-SGD on the complete graph with 24 nodes of sorted labels, learning rate 0.01, batches of 8: since all nodes have the
same model, a step is one gradient of the mean loss over the 24 batches. After a warm-up of 2,000 steps on everybody's
data (the published one is 6,000); test accuracy every 100 iterations, images evaluated 64 at a time as there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.learning import Task, tasks

NODES, BATCH, ITERATIONS, EVERY, WARM_UP, LR = 24, 8, 800, 100, 2_000, 0.01


def trained(kind: str, folder: str) -> list[float]:
    task = tasks.build("mnist", NODES, 0, softmax=kind, warm_up=WARM_UP, folder=folder)
    model, rng, found = task.initial(0), np.random.default_rng(0), []
    parameters = list(model.parameters())
    model.over_batch = False  # type: ignore[assignment]  # done below, node by node
    for iteration in range(1, ITERATIONS + 1):
        places = np.concatenate([rng.choice(part, BATCH) for part in task.parts])
        scores = model.train()(task.inputs[places])
        if kind == "batch":
            scores = functional.log_softmax(scores.view(NODES, BATCH, 10), 1).flatten(0, 1)
        gradients = torch.autograd.grad(functional.cross_entropy(scores, task.targets[places]), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=LR)
        if iteration % EVERY == 0:
            found.append(accuracy(model, task, kind == "batch"))
    return found


def accuracy(model: torch.nn.Module, task: Task, over_batch: bool) -> float:
    assert task.test is not None
    batches = zip(task.test[0].split(1024), task.test[1].split(1024), strict=True)
    model.eval().over_batch = over_batch  # type: ignore[assignment]
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).sum() for x, y in batches]
    model.over_batch = False  # type: ignore[assignment]
    return float(sum(right)) / len(task.test[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with MNIST's four files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {kind: trained(kind, options.data) for kind in ("batch", "classes")}
    print("iteration,batch,classes")
    for k, (one, other) in enumerate(zip(found["batch"], found["classes"], strict=True), 1):
        print(f"{k * EVERY},{one:.4f},{other:.4f}")


if __name__ == "__main__":
    main()
