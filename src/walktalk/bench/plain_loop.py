"""The baseline of the training benchmarks: one model, trained step by step in a plain PyTorch loop."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from walktalk.learning import Task, tasks


def plain_step(
    batch_size: int = 32, device: str = "cpu", task: Task | None = None, warm: int = 50
) -> Callable[[], None]:
    """One optimizer step of a task's model (the digits one by default), as anyone would write it."""
    task = task or tasks.digits(nodes=1, alpha=None, seed=0)
    model = copy.deepcopy(task.model).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    inputs, targets = task.inputs.to(device), task.targets.to(device)

    def step() -> None:
        batch = torch.randint(0, len(inputs), (batch_size,), device=device)
        loss = functional.cross_entropy(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(warm):
        step()
    return step


def plain_steps_per_second(
    seconds: float = 2.0, batch_size: int = 32, device: str = "cpu", task: Task | None = None
) -> float:
    """Steps/s of that loop with one thread or with all, whichever is faster here."""
    before = torch.get_num_threads()
    rates = []
    for threads in {1, os.cpu_count() or 1} if device == "cpu" else {before}:
        torch.set_num_threads(threads)
        rates.append(steps_per_second(plain_step(batch_size, device, task), seconds, device))
    torch.set_num_threads(before)
    return max(rates)


def steps_per_second(step: Callable[[], None], seconds: float, device: str = "cpu") -> float:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
        if steps % 100 == 0 and device.startswith("cuda"):
            torch.cuda.synchronize()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return steps / (time.perf_counter() - began)
