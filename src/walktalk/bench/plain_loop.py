"""The baseline of the training benchmarks: one model, trained step by step in a plain PyTorch loop."""

from __future__ import annotations

import time

import torch
from torch.nn import functional

from walktalk.learning import tasks


def plain_steps_per_second(seconds: float = 2.0, batch_size: int = 32) -> float:
    """Steps/s of the digits model as anyone would write the loop, on all threads."""
    task = tasks.digits(nodes=1, alpha=None, seed=0)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    inputs, targets = task.inputs, task.targets

    def step() -> None:
        batch = torch.randint(0, len(inputs), (batch_size,))
        loss = functional.cross_entropy(task.model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(50):
        step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    return steps / (time.perf_counter() - began)
