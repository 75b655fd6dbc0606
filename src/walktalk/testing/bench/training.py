"""Stacked training and whole studies, against a plain PyTorch loop that trains one model step by step."""

from __future__ import annotations

import copy
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from walktalk.core.errors import UserError
from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, TrainingRows, tasks
from walktalk.studies import load_spec, run_study
from walktalk.testing.bench.models import MODELS
from walktalk.testing.bench.suites import BenchResult, Say

# -- the baseline: one model, trained step by step in a plain PyTorch loop --------------------------------------------


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


def clock_of(device: str) -> Callable[[], float]:
    """CPU seconds where one thread does all of the work: what else runs on the machine hardly changes those."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def steps_per_second(step: Callable[[], None], seconds: float, device: str = "cpu") -> float:
    clock = clock_of(device)
    began, steps = clock(), 0
    while clock() - began < seconds:
        step()
        steps += 1
        if steps % 100 == 0 and device.startswith("cuda"):
            torch.cuda.synchronize()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return steps / (clock() - began)


# -- whole studies, against the plain loop with the same number of steps ----------------------------------------------

GOSSIP = ("algorithms=[{name: async_gossip, mixing: pairwise}]", "repetitions=1")


def simulator(say: Say) -> BenchResult:
    """Model-steps/s of the quickstart study, records and evaluation included."""
    return study_against_loop("simulator", (), "the quickstart study, records and evaluation included", say)


def gossip(say: Say) -> BenchResult:
    """Model-steps/s of a single run, where only its own 20 nodes can be stacked."""
    return study_against_loop("gossip", GOSSIP, "one run of pairwise gossip on 20 nodes, all included", say)


def cpu_seconds() -> float:
    """CPU seconds that this process and its ended children have used."""
    for child in multiprocessing.active_children():
        child.join()
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def loop_per_cpu_second(steps: int = 3000) -> float:
    """Steps of the plain loop for each second of one core: hardly depends on who else uses the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    step = plain_step()
    began = time.process_time()
    for _ in range(steps):
        step()
    torch.set_num_threads(threads)
    return steps / (time.process_time() - began)


def study_against_loop(name: str, changes: Sequence[str], what: str, say: Say) -> BenchResult:
    spec = load_spec("quickstart", list(changes))
    assert spec.stop.iterations is not None
    say("the plain loop, with one thread and with all")
    before = plain_steps_per_second()
    say(what)
    with tempfile.TemporaryDirectory() as folder:
        began, cpu_began = time.perf_counter(), cpu_seconds()
        result = run_study(spec, Path(folder) / "study", device="cpu")
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    say("the plain loop again: the machine may have become busier")
    baseline = BenchResult.of_steady(before, after := plain_steps_per_second(), "steps/s")
    steps = len(result.runs) * spec.stop.iterations * (spec.training.usual_steps or 1)
    details = {
        "seconds": seconds,
        "model_steps": steps,
        "runs": len(result.runs),
        "loop_before": before,
        "loop_after": after,
        "ratio per CPU second": steps / cpu / loop_per_cpu_second(),
    }
    return BenchResult(
        name, steps / seconds, baseline, "model-steps/s", what, "one model in a plain PyTorch loop", details=details
    )


# -- the device's limit: the rate of a large matrix product, over the operations of a step ----------------------------

MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices


def operations_per_step(task: Task, batch_size: int = 32) -> int:
    """Floating-point operations of one step's products and convolutions, forwards and backwards."""
    model = copy.deepcopy(task.model).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of Intel's GPUs here
        # Without oneDNN: its recurrent layers are one operation, whose products nobody counts.
        with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
            loss = task.loss(model(task.inputs[:batch_size]), task.targets[:batch_size])
            loss.backward()
    return int(counter.get_total_flops())


def peak_rate(device: str, repeats: int = 10) -> float:
    """Operations/s of a product of two large matrices: in bf16 on a GPU, in float32 with torch's threads on a CPU."""
    side = MATRIX_SIDE[device]
    a, b = torch.randn(2, side, side, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    best = float("inf")
    clock = clock_of(device)
    for _ in range(repeats):
        began = clock()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - began)
    return float(2 * side**3 / best)


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
    before = plain_steps_per_second(device=device, task=task)
    rates = stacked_rates(say, task, device, GPU_WIDTHS if device == "cuda" else WIDTHS)
    baseline = BenchResult.of_steady(before, plain_steps_per_second(device=device, task=task), "steps/s")
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
        baseline = BenchResult.of_steady(before, steps_per_second(step, 2.0, device), "steps/s")
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
    """The widths worth measuring: only two where models are trained one by one, as all are then alike."""
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
            self.trainer.train(TrainingRows(rows, parts, keys, lr))
            return
        for start in range(0, self.width, self.at_once):
            piece = slice(start, start + self.at_once)
            self.after[piece], _ = self.trainer.train(
                TrainingRows(rows[piece], parts[piece], keys[piece], lr[piece], on_loan=True)
            )

    def steps_per_second(self, seconds: float = 2.0) -> float:
        self.wait()
        clock = clock_of(self.trainer.device.type)
        began, waves = clock(), 0
        while clock() - began < seconds:
            self.train()
            waves += 1
            if waves % 8 == 0:
                self.wait()  # else this would only say how fast waves are queued
        self.wait()
        return waves * self.width * self.trainer.local_steps / (clock() - began)

    def wait(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize()
