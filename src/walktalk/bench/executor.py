"""Stacked training alone, at several widths, against the plain loop: the digits model on a CPU, ResNet-20 on a GPU."""

from __future__ import annotations

import time

import torch

from walktalk.bench.plain_loop import plain_steps_per_second
from walktalk.bench.result import BenchResult, Say
from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, tasks

WIDTHS = (1, 4, 16, 64, 256)
GPU_WIDTHS = (1, 8, 20, 64, 100, 128)
LOCAL_STEPS = 5


def executor(say: Say) -> BenchResult:
    """Model-steps/s with batch 32 at the best width."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    task = tasks.random_images() if device == "cuda" else digits()
    threads = torch.get_num_threads()
    say(f"the plain loop on {device}")
    baseline = plain_steps_per_second(device=device, task=task)
    if device == "cpu":
        torch.set_num_threads(1)  # as a study does: small models leave a second thread nothing to do
    trainer = make_trainer(task, device)
    rates = {}
    for width in GPU_WIDTHS if device == "cuda" else WIDTHS:
        say(f"{width} models stacked")
        rates[width] = StackedWave(width, trainer).steps_per_second()
    torch.set_num_threads(threads)
    best = max(rates, key=lambda width: rates[width])
    details = {f"{width} stacked": rate for width, rate in rates.items()}
    what = "ResNet-20 in bf16, augmented," if device == "cuda" else "digits models"
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return BenchResult(
        "executor",
        rates[best],
        baseline,
        "model-steps/s",
        f"{best} × {what} stacked, batch 32, on {where}",
        "one model in a plain PyTorch loop on the same device",
        details=details,
    )


def digits() -> Task:
    return tasks.digits(nodes=20, alpha=1.0, seed=0)


def make_trainer(task: Task, device: str) -> Trainer:
    optimizer = OptimizerSpec(name="sgd", lr=0.05, momentum=0.9, nesterov=True)
    arithmetic = Arithmetic("bf16" if device == "cuda" else "fp32")
    return Trainer(
        task, batch_size=32, local_steps=LOCAL_STEPS, optimizer=optimizer, device=device, arithmetic=arithmetic
    )


class StackedWave:
    """A wave of that many models, trained again and again."""

    def __init__(self, width: int, trainer: Trainer) -> None:
        self.trainer, self.width = trainer, width
        self.rows = trainer.initial_row(0).repeat(width, 1)
        numbers = torch.arange(width, device=trainer.device)
        self.parts, self.keys = numbers % trainer.task.nodes, numbers * 7919
        self.lr = torch.full((width,), 0.05, device=trainer.device)
        for _ in range(3):
            self.train()

    def train(self) -> None:
        self.trainer.train(self.rows, self.parts, self.keys, self.lr)

    def steps_per_second(self, seconds: float = 2.0) -> float:
        self.wait()
        began, waves = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self.train()
            waves += 1
            if waves % 8 == 0:
                self.wait()  # else this would only say how fast waves are queued
        self.wait()
        return waves * self.width * LOCAL_STEPS / (time.perf_counter() - began)

    def wait(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
