"""Stacked training alone, at several widths, against the plain loop; on a GPU where there is one."""

from __future__ import annotations

import time

import torch

from walktalk.bench.plain_loop import plain_steps_per_second
from walktalk.bench.result import BenchResult, Say
from walktalk.learning import OptimizerSpec, Trainer, tasks

WIDTHS = (1, 4, 16, 64, 256)
GPU_WIDTHS = (1, 32, 256, 1024, 4096)
LOCAL_STEPS = 5


def executor(say: Say) -> BenchResult:
    """Model-steps/s of the digits model, batch 32, at the best width."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    say(f"the plain loop on {device}")
    baseline = plain_steps_per_second(device=device)
    if device == "cpu":
        torch.set_num_threads(1)  # as a study does: small models leave a second thread nothing to do
    rates = {}
    for width in GPU_WIDTHS if device == "cuda" else WIDTHS:
        say(f"{width} models stacked")
        rates[width] = stacked_steps_per_second(width, device)
    torch.set_num_threads(threads)
    best = max(rates, key=lambda width: rates[width])
    details = {f"{width} stacked": rate for width, rate in rates.items()}
    return BenchResult(
        "executor", rates[best], baseline, "model-steps/s", f"{best} digits models stacked, batch 32, on {device}",
        "one model in a plain PyTorch loop on the same device", details=details,
    )  # fmt: skip


def stacked_steps_per_second(width: int, device: str = "cpu", seconds: float = 2.0) -> float:
    wave = StackedWave(width, device)
    began, waves = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        wave.train()
        waves += 1
    if device == "cuda":
        torch.cuda.synchronize()
    return waves * width * LOCAL_STEPS / (time.perf_counter() - began)


class StackedWave:
    """A wave of that many digits models, trained again and again."""

    def __init__(self, width: int, device: str = "cpu") -> None:
        optimizer = OptimizerSpec(name="sgd", lr=0.05, momentum=0.9, nesterov=True)
        task = tasks.digits(nodes=20, alpha=1.0, seed=0)
        self.trainer = Trainer(task, batch_size=32, local_steps=LOCAL_STEPS, optimizer=optimizer, device=device)
        self.rows = self.trainer.initial_row(0).repeat(width, 1)
        numbers = torch.arange(width, device=device)
        self.parts, self.keys = numbers % task.nodes, numbers * 7919
        self.lr = torch.full((width,), 0.05, device=device)
        for _ in range(3):
            self.train()

    def train(self) -> None:
        self.trainer.train(self.rows, self.parts, self.keys, self.lr)
