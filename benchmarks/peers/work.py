"""The work that every peer does: 20 nodes, the digits MLP, batch 32, five local steps a round. No walktalk in here.

Copied beside each peer's script so that its environment needs only torch and scikit-learn.
"""

from __future__ import annotations

import json
import os
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

NODES, BATCH, LOCAL_STEPS = 20, 32, 5
OPTIMIZER = {"lr": 0.05, "momentum": 0.9, "nesterov": True}


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def data() -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Training samples and their even split over the nodes."""
    digits = load_digits()
    inputs = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    targets = torch.tensor(digits.target, dtype=torch.int64)
    order = np.random.default_rng(0).permutation(len(targets))[: len(targets) * 4 // 5]
    return inputs, targets, np.array_split(order, NODES)


def local_training(net: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Five steps from a fresh optimizer, as anyone would write them."""
    optimizer = torch.optim.SGD(net.parameters(), **OPTIMIZER)
    for _ in range(LOCAL_STEPS):
        batch = torch.randint(0, len(inputs), (BATCH,))
        loss = functional.cross_entropy(net(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def report(name: str, steps: int, seconds: float, **details: object) -> None:
    """One JSON object, with the plain loop measured in the same process for scale."""
    torch.set_num_threads(1)
    inputs, targets, _ = data()
    net = model()
    local_training(net, inputs, targets)  # torch loads half of itself at the first optimizer
    began, trainings = time.perf_counter(), 0
    while time.perf_counter() - began < 2.0:
        local_training(net, inputs, targets)
        trainings += 1
    loop = trainings * LOCAL_STEPS / (time.perf_counter() - began)
    rate = steps / seconds
    print(
        json.dumps(
            {
                "name": name,
                "value": rate,
                "baseline": loop,
                "ratio": rate / loop,
                "unit": "model-steps/s",
                "model_steps": steps,
                "seconds": seconds,
                "cores": os.cpu_count(),
                **details,
            }
        )
    )
