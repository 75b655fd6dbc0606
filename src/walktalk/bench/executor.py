"""Stacked training alone, at several widths, against the plain loop.

The digits model on a CPU, ResNet-20 on a GPU, or any of `models.MODELS`.
"""

from __future__ import annotations

import time

import torch

from walktalk.bench.limit import operations_per_step, peak_rate
from walktalk.bench.models import MODELS
from walktalk.bench.plain_loop import plain_step, plain_steps_per_second, steps_per_second
from walktalk.bench.result import BenchResult, Say
from walktalk.errors import UserError
from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, tasks

WIDTHS = (1, 4, 16, 64, 256)
MODEL_WIDTHS, MODEL_GPU_WIDTHS = (1, 4, 20, 100), (1, 20, 64, 128, 256)
GPU_WIDTHS = (1, 8, 20, 64, 128, 256)
LOCAL_STEPS = 5


def executor(say: Say, model: str | None = None) -> BenchResult:
    """Model-steps/s with batch 32 at the best width; of one of `MODELS`, or of the device's usual one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if model is not None:
        return of_model(say, model, device)
    task = tasks.random_images() if device == "cuda" else digits()
    say(f"the plain loop on {device}")
    baseline = plain_steps_per_second(device=device, task=task)
    rates = stacked_rates(say, task, device, GPU_WIDTHS if device == "cuda" else WIDTHS)
    what = "ResNet-20 in bf16, augmented," if device == "cuda" else "digits models"
    return result_of("executor", what, rates, baseline, device, {})


def of_model(say: Say, name: str, device: str) -> BenchResult:
    """One of `MODELS` against a plain loop on one thread, or on the GPU, and beside the device's limit."""
    if name not in MODELS:
        raise UserError(f"there is no model {name!r}; allowed: {', '.join(MODELS)}")
    task = MODELS[name].task()
    say(f"{MODELS[name].title}: the plain loop on {device}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = plain_step(device=device, task=task, warm=10)
        before = steps_per_second(step, 2.0, device)
        rates = stacked_rates(say, task, device, MODEL_GPU_WIDTHS if device == "cuda" else MODEL_WIDTHS)
        baseline = max(before, steps_per_second(step, 2.0, device))  # again: others may have used the machine
        operations = operations_per_step(task)
        limit = peak_rate(device) / operations
    finally:
        torch.set_num_threads(threads)
    more = {"limit": limit, "of the limit": max(rates.values()) / limit, "operations a step": operations}
    return result_of(f"executor {name}", MODELS[name].title, rates, baseline, device, more)


def stacked_rates(say: Say, task: Task, device: str, widths: tuple[int, ...]) -> dict[int, float]:
    """Model-steps/s by width; on a CPU with one thread, as a study does."""
    threads = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)  # small models leave a second thread nothing to do
    trainer = make_trainer(task, device)
    rates = {}
    for width in worthwhile(widths, trainer):
        say(f"{width} models at once")
        rates[width] = StackedWave(width, trainer).steps_per_second()
    torch.set_num_threads(threads)
    return rates


def worthwhile(widths: tuple[int, ...], trainer: Trainer) -> tuple[int, ...]:
    """Of models that are trained one after the other only two: all are the same, and a hundred models take minutes."""
    return widths[:2] if trainer.best_width == 1 else widths


def result_of(
    name: str, what: str, rates: dict[int, float], baseline: float, device: str, more: dict[str, float]
) -> BenchResult:
    best = max(rates, key=lambda width: rates[width])
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return BenchResult(
        name,
        rates[best],
        baseline,
        "model-steps/s",
        f"{best} × {what} stacked, batch 32, on {where}",
        "one model in a plain PyTorch loop on the same device",
        details={f"{width} stacked": rate for width, rate in rates.items()} | more,
    )


def digits() -> Task:
    return tasks.digits(nodes=20, alpha=1.0, seed=0)


def make_trainer(task: Task, device: str, batch_size: int = 32, local_steps: int = LOCAL_STEPS) -> Trainer:
    optimizer = OptimizerSpec(name="sgd", lr=0.05, momentum=0.9, nesterov=True)
    arithmetic = Arithmetic("bf16" if device == "cuda" else "fp32")
    return Trainer(
        task, batch_size=batch_size, local_steps=local_steps, optimizer=optimizer, device=device, arithmetic=arithmetic
    )


class StackedWave:
    """A wave of that many models, trained again and again.

    On a CPU as a study's executor does it: in pieces of the width that suits the trainer, which may lend its memory,
    and into rows that are there. What is given anew for twenty large models costs a page fault every four kilobytes.
    """

    def __init__(self, width: int, trainer: Trainer) -> None:
        self.trainer, self.width = trainer, width
        self.rows = trainer.initial_row(0).repeat(width, 1)
        self.after = self.rows.clone()
        numbers = torch.arange(width, device=trainer.device)
        self.parts, self.keys = numbers % trainer.task.nodes, numbers * 7919
        self.lr = torch.full((width,), 0.05, device=trainer.device)
        pieces = -(-width // (trainer.best_width or width))
        self.at_once = -(-width // pieces)
        for _ in range(2):
            self.train()

    def train(self) -> None:
        rows, parts, keys, lr = self.rows, self.parts, self.keys, self.lr
        if self.trainer.device.type != "cpu":
            self.trainer.train(rows, parts, keys, lr)
            return
        for start in range(0, self.width, self.at_once):
            piece = slice(start, start + self.at_once)
            self.after[piece], _ = self.trainer.train_on_loan(rows[piece], parts[piece], keys[piece], lr[piece])

    def steps_per_second(self, seconds: float = 2.0) -> float:
        self.wait()
        began, waves = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self.train()
            waves += 1
            if waves % 8 == 0:
                self.wait()  # else this would only say how fast waves are queued
        self.wait()
        return waves * self.width * self.trainer.local_steps / (time.perf_counter() - began)

    def wait(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
