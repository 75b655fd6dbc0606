"""What each special case for CPUs brings (`learning/stacked/cpu.py`): the same training with it and without, by turns.

    OMP_NUM_THREADS=1 python benchmarks/cpu_cases.py [--seconds 2]

One thread, SGD with momentum; CPU seconds, the best of many turns in one process. A ratio above 1 is what the case
saves: 1.50 means that training takes one and a half times as long without it. `MKL_CBWR` is measured in processes of
its own, since MKL reads it once; it is there for equal bits, so what counts is that it costs nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.core.cpu import MKL_VARIABLE, cpu_says
from walktalk.learning import Trainer
from walktalk.learning.stacked import ChainModel, TracedModel, attention, choice, cpu
from walktalk.learning.stacked.compiled import attention as compiled
from walktalk.testing.bench.models import MODELS
from walktalk.testing.bench.training import StackedWave, make_trainer

TURN = 0.02  # CPU seconds of a turn, at least
LOCAL_STEPS = 5
Switch = Callable[[Trainer, bool], None]  # turns a case on or off
NUMPY_IS_FASTER = cpu.numpy_is_faster
LAYER_NORM, FEW_TOKENS, ON_A_CPU = compiled.layer_norm, attention.FEW_TOKENS, choice.ON_A_CPU


def by_numpy(trainer: Trainer, on: bool) -> None:
    cpu.numpy_is_faster = NUMPY_IS_FASTER if on else lambda: False  # type: ignore[assignment]


def channels_last(trainer: Trainer, on: bool) -> None:
    order(trainer).heavy_up_to = 0 if on else 2**40


def small_convolutions(trainer: Trainer, on: bool) -> None:
    images = order(trainer)
    kept = vars(images).setdefault("kept_small", images.small_up_to)
    images.small_up_to = kept if on else 0


def heavy_convolutions(trainer: Trainer, on: bool) -> None:
    images = order(trainer)
    kept = vars(images).setdefault("kept_heavy", images.heavy_up_to)
    images.heavy_up_to = kept if on else 0


def folded_norms(on: bool) -> None:
    compiled.layer_norm = LAYER_NORM if on else lambda *given: LAYER_NORM(*given[:-1], False)  # type: ignore[assignment]


def attention_step_by_step(on: bool) -> None:
    choice.ON_A_CPU = (ChainModel, TracedModel)  # where a model cannot be compiled
    attention.FEW_TOKENS = FEW_TOKENS if on else 0


def as_it_is(trainer: Trainer, on: bool) -> None:
    """What counts was switched when the trainer was made."""


def order(trainer: Trainer) -> cpu.ImageOrder:
    assert trainer.model.images is not None
    return trainer.model.images  # type: ignore[attr-defined,no-any-return]


CASES: list[tuple[str, Switch, str, int, int]] = [  # the case, its switch, a model, samples in a batch, rows at once
    ("products by numpy", by_numpy, "logistic", 32, 20),
    ("products by numpy", by_numpy, "perceptron", 32, 20),
    ("products by numpy", by_numpy, "perceptron", 8, 20),
    ("products by numpy", by_numpy, "tiny-vit", 32, 4),
    ("channels last", channels_last, "lenet5", 32, 1),
    ("channels last", channels_last, "resnet20", 32, 1),
    ("channels last", channels_last, "gn-lenet", 32, 1),
    ("channels last", channels_last, "resnet20-gn", 32, 1),
    ("small convolutions", small_convolutions, "small-cnn", 2, 1),
    ("small convolutions", small_convolutions, "lenet5", 2, 1),
    ("heavy convolutions", heavy_convolutions, "vgg11", 4, 1),
    ("heavy convolutions", heavy_convolutions, "vgg11", 32, 1),
    ("norms in the next product", as_it_is, "tiny-vit", 32, 4),
    ("norms in the next product", as_it_is, "tiny-vit", 8, 1),
    ("attention step by step", as_it_is, "tiny-vit", 32, 4),
    ("attention step by step", as_it_is, "tiny-vit", 8, 1),
]
WHEN_MADE: dict[str, Callable[[bool], None]] = {  # of a trainer: what is decided then
    "norms in the next product": folded_norms,
    "attention step by step": attention_step_by_step,
}

MKL = """
import os, sys, time
import walktalk, torch
if sys.argv[1] == "off":
    os.environ.pop("{variable}", None)
torch.set_num_threads(1)
a, b = torch.randn(20, 32, 64), torch.randn(20, 64, 64)
best = 1e9
for _ in range(60):
    began = time.process_time()
    for _ in range(200):
        torch.bmm(a, b)
    best = min(best, time.process_time() - began)
print(best)
"""


def ratio(case: str, switch: Switch, name: str, batch: int, width: int, seconds: float) -> float:
    """How many times as long a training takes without the case."""
    prepare, ways = WHEN_MADE.get(case, lambda on: None), (True, False)
    waves: dict[bool, StackedWave] = {}
    for on in ways:
        prepare(on)
        waves[on] = StackedWave(width, make_trainer(MODELS[name].task(), "cpu", batch, LOCAL_STEPS))
    best, times = dict.fromkeys(ways, 1e9), 1

    def cpu_seconds(on: bool, trainings: int) -> float:
        prepare(on)
        switch(waves[on].trainer, on)
        began = time.process_time()
        for _ in range(trainings):
            waves[on].train()
        return time.process_time() - began

    until = time.process_time() + seconds
    for on in ways:
        cpu_seconds(on, 1)  # memory is laid out, programs are made
        times = max(times, round(TURN / max(1e-6, cpu_seconds(on, 1))))
    while time.process_time() < until:
        for on in ways:
            best[on] = min(best[on], cpu_seconds(on, times))
    prepare(True)
    switch(waves[True].trainer, True)
    return best[False] / best[True]


def mkl_ratio() -> float:
    """How many times as long products of a wave take without `MKL_CBWR`, in the better of three processes each."""
    environment = {key: value for key, value in os.environ.items() if key != MKL_VARIABLE}
    best = {"on": 1e9, "off": 1e9}
    for _ in range(3):
        for way in best:
            command = [sys.executable, "-c", MKL.format(variable=MKL_VARIABLE), way]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            best[way] = min(best[way], float(done.stdout))
    return best["off"] / best["on"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of each measurement")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{cpu_says('model name') or platform.processor()}, {os.cpu_count()} cores, torch {torch.__version__}\n")
    print("| case | model | samples | rows at once | without over with |\n| --- | --- | --- | --- | --- |")
    for case, switch, name, batch, width in CASES:
        found = ratio(case, switch, name, batch, width, options.seconds)
        print(f"| {case} | {name} | {batch} | {width} | {found:.2f} |", flush=True)
    print(f"| `{MKL_VARIABLE}` | 20 products of [32, 64] and [64, 64] | | 20 | {mkl_ratio():.2f} |")


if __name__ == "__main__":
    main()
