"""Model-steps/s of stacked ResNet-20 on a GPU: widths × precisions, eager against CUDA graphs, with a check of each.

    python benchmarks/executor_gpu.py [--seconds 2] [--widths 1,20,50,100] [--free] [--json FILE]

Random images stand in for CIFAR-10: the arithmetic is the same. Each line is one trainer: 5 local steps of batch 32
with Nesterov momentum, augmentation included. The baseline is one model in a plain PyTorch loop, in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, TrainingRows
from walktalk.learning.data import CropAndFlip
from walktalk.learning.models import resnet20

NODES, SAMPLES, STEPS, BATCH = 20, 10_000, 5, 32


def task() -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 3, 32, 32, generator=generator)
    targets = torch.randint(0, 10, (SAMPLES,), generator=generator)
    parts = np.array_split(np.arange(SAMPLES), NODES)
    return Task("random", resnet20(), functional.cross_entropy, inputs, targets, parts, augment=CropAndFlip())


def rate(work, seconds: float, device: str) -> float:
    """Calls per second, the device's queue emptied before and after."""
    for _ in range(3):
        work()
    wait(device)
    began, calls = time.perf_counter(), 0
    while True:
        work()
        calls += 1
        if calls % 5 == 0:
            wait(device)
            if time.perf_counter() - began > seconds:
                break
    return calls / (time.perf_counter() - began)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plain_rate(one: Task, seconds: float, device: str) -> float:
    model = one.initial(0).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    x, y = one.inputs[:BATCH].to(device), one.targets[:BATCH].to(device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return rate(step, seconds, device)


def wave(trainer: Trainer, width: int, device: str):
    rows = torch.stack([trainer.initial_row(k % 4) for k in range(width)])
    keys = torch.arange(width, device=device)
    return rows, keys % NODES, keys * 7919, torch.full((width,), 0.05, device=device)


def measure(one: Task, arithmetic: Arithmetic, width: int, seconds: float, device: str, reference) -> dict[str, object]:
    optimizer = OptimizerSpec("sgd", 0.05, 0.9, True, 1e-4)
    trainer = Trainer(
        one, batch_size=BATCH, local_steps=STEPS, optimizer=optimizer, device=device, arithmetic=arithmetic
    )
    given = wave(trainer, width, device)
    update = trainer.train(TrainingRows(*given))[0] - given[0]
    again = trainer.train(TrainingRows(*given))[0] - given[0]
    calls = rate(lambda: trainer.train(TrainingRows(*given)), seconds, device)
    expected = reference[: len(update)]
    graphed = trainer.forms.graphed is not None and trainer.forms.graphed.works
    return {
        "precision": arithmetic.precision,
        "graph": graphed,
        "channels_last": arithmetic.uses_channels_last(trainer.device),
        "deterministic": arithmetic.deterministic,
        "width": width,
        "steps_per_second": calls * width * STEPS,
        "same_bytes_again": bool(torch.equal(update, again)),
        "error": float((update - expected).norm() / expected.norm()),
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0,
    }


def line(found: dict, baseline: float) -> str:
    speed = found["steps_per_second"]
    return (
        f"{found['precision']:5} {'channels-last' if found['channels_last'] else 'contiguous':13} "
        f"{'graph' if found['graph'] else 'eager':5} {'' if found['deterministic'] else 'free':4} "
        f"width {found['width']:4}: {speed:9,.0f} steps/s, {speed / baseline:6.1f} × plain, "
        f"update off by {found['error']:.1e}, same bytes again: {found['same_bytes_again']}, "
        f"{found['memory_gib']:.1f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--widths", default="1,20,50,100")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--free", action="store_true", help="also with kernels whose bytes may differ from time to time"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    one, device = task(), options.device
    baseline = plain_rate(one, options.seconds, device)
    print(f"plain loop, one model: {baseline:,.0f} steps/s")
    fp32 = Trainer(
        one,
        batch_size=BATCH,
        local_steps=STEPS,
        optimizer=OptimizerSpec("sgd", 0.05, 0.9, True, 1e-4),
        device=device,
        arithmetic=Arithmetic(graphs=False),
    )
    given = wave(fp32, max(widths), device)
    reference = torch.cat(
        [
            fp32.train(TrainingRows(*(t[k : k + 20] for t in given)))[0] - given[0][k : k + 20]
            for k in range(0, max(widths), 20)
        ]
    )
    kinds = [("fp32", None), ("tf32", None), ("tf32", True), ("bf16", False), ("bf16", True)]
    results = []
    for precision, channels_last in kinds:
        for graphs in (False, True):
            for deterministic in (True, False) if options.free else (True,):
                for width in widths:
                    arithmetic = Arithmetic(precision, channels_last, graphs, deterministic)
                    if device == "cuda":
                        torch.cuda.reset_peak_memory_stats()
                    try:
                        found = measure(one, arithmetic, width, options.seconds, device, reference)
                    except RuntimeError as error:
                        print(f"{precision} channels_last={channels_last} graph={graphs} width={width}: {error}")
                        continue
                    results.append(found)
                    print(line(found, baseline), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"baseline": baseline, "results": results}, indent=1))


if __name__ == "__main__":
    main()
