"""Model-steps/s of every model of `walktalk bench executor --model`, at several widths, as one table.

    OMP_NUM_THREADS=1 python benchmarks/executor_models.py [--models lenet5,vit] [--widths 1,4,20] [--batches 8,32] \
        [--steps 1,5] [--seconds 1.5] [--csv FILE]

Batch 32 and five local steps unless others are named, Nesterov momentum; bf16 on a GPU, float32 on one thread of a CPU.
The plain loop and the widths are measured by turns, and the best of each counts: what else runs on a machine makes
either slower, never faster. On a CPU, seconds are CPU seconds for the same reason. The plain loop does not augment; the
trainings do.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.testing.bench.models import MODELS
from walktalk.testing.bench.training import (
    LOCAL_STEPS,
    StackedWave,
    make_trainer,
    operations_per_step,
    peak_rate,
    plain_step,
)

TURN = 0.02  # seconds
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def best_rates(works: dict[str, tuple[Callable[[], object], int]], seconds: float) -> dict[str, float]:
    """Of each piece of work the most per second, in rounds by turns: what else runs here changes all the time."""
    best, clock = dict.fromkeys(works, 0.0), time.perf_counter if DEVICE == "cuda" else time.process_time
    until = clock() + seconds * len(works)
    while min(best.values()) == 0.0 or clock() < until:
        for name, (work, amount) in works.items():
            wait()
            began = clock()
            work()
            wait()
            best[name] = max(best[name], amount / (clock() - began))
    return best


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measured(name: str, widths: list[int], batch: int, steps: int, seconds: float, peak: float) -> dict[str, object]:
    task = MODELS[name].task()
    step = plain_step(batch, DEVICE, task, warm=5)
    trainer = make_trainer(task, DEVICE, batch, steps)
    works = {"plain": repeated(step, 1)}
    for width in widths:
        try:
            works[str(width)] = repeated(StackedWave(width, trainer).train, width * steps)
        except Exception as error:  # one that does not fit must not end the others' measurement
            print(f"{name}, width {width}: {error}", file=sys.stderr)
    rates = best_rates(works, seconds)
    form = type(trainer.model).__name__ + (" fused" if trainer.model.fused is not None else "")
    limit = peak / operations_per_step(task, batch)
    return {"model": name, "batch": batch, "steps": steps, "form": form, "limit": limit, **rates}


def repeated(work: Callable[[], object], amount: int) -> tuple[Callable[[], object], int]:
    """A piece of work as often as takes `TURN` or more, and how many steps that is: a turn of microseconds is luck."""
    wait()
    began = time.process_time()
    work()
    wait()
    times = max(1, round(TURN / max(1e-6, time.process_time() - began)))
    return lambda: [work() for _ in range(times)], times * amount


def line(found: dict[str, object], widths: list[int]) -> str:
    plain = float(found["plain"])  # type: ignore[arg-type]
    rates = {w: float(found[str(w)]) for w in widths if str(w) in found}  # type: ignore[arg-type]
    each = "  ".join(f"{w}: {rate:,.0f} ({rate / plain:.2f})" for w, rate in rates.items())
    kind = f"{found['model']:12} {found['form']:16} {found['batch']} samples, {found['steps']} steps"
    return f"{kind}  plain {plain:,.1f}  {each}  limit {found['limit']:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--widths", default="1,20,64,128,256" if DEVICE == "cuda" else "1,4,20,100")
    parser.add_argument("--batches", default="32", help="samples in a batch")
    parser.add_argument("--steps", default=str(LOCAL_STEPS), help="local steps")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if DEVICE == "cpu":
        torch.set_num_threads(1)
    widths = [int(width) for width in options.widths.split(",")]
    peak, results = peak_rate(DEVICE), []
    print(f"{DEVICE}: {peak / 1e9:,.0f} Gflop/s in a large product")
    batches, local_steps = ([int(one) for one in given.split(",")] for given in (options.batches, options.steps))
    for name, batch, steps in itertools.product(options.models.split(","), batches, local_steps):
        results.append(measured(name, widths, batch, steps, options.seconds, peak))
        print(line(results[-1], widths), flush=True)
        if options.csv:
            with options.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["model", "batch", "steps", "form", "plain", "limit", *map(str, widths)])
                writer.writeheader()
                writer.writerows(
                    [{k: f"{v:.1f}" if isinstance(v, float) else v for k, v in row.items()} for row in results]
                )


if __name__ == "__main__":
    main()
