"""A study of convolutional models in two worker processes, against a plain loop on one core.

    OMP_NUM_THREADS=1 python benchmarks/two_cores.py [--models lenet5,gn-lenet] [--seconds 15] [--csv FILE]

The study is what `walktalk run --workers 2` does, evaluations and records included: one, four and eight walks among
20 nodes, two repetitions of each. Its rate is all model-steps by the seconds of the busier process; the plain loop is
measured before and after it, and the better counts. Seconds are CPU seconds, since others may use the machine; on a
machine of one's own the wall clock, which is said as well, is what the busier process takes. The limit is what two
plain loops side by side get over one: below 2 where two cores share caches, memory or a physical core.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.studies import build_foundation, make_spec, run_foundation
from walktalk.testing.bench.models import MODELS, NODES
from walktalk.testing.bench.training import plain_step

LOCAL_STEPS, REPETITIONS, WORKERS = 5, 2, 2
ALGORITHMS = [{"name": "multi_walk", "walks": [1, 4, 8]}]
RUNS = 3 * REPETITIONS


class Watch:
    """Looks at what the worker processes have used of a CPU whenever they say how far they are."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def __call__(self, progress: object) -> None:
        for process in multiprocessing.active_children():
            if process.pid is not None:
                self.seconds[process.pid] = max(cpu_seconds(process.pid), self.seconds.get(process.pid, 0.0))


def cpu_seconds(process: int) -> float:
    """Of a process so far; none if it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plain_rate(name: str, seconds: float = 4.0) -> float:
    """Steps of the plain loop a CPU second."""
    step, steps, began = plain_step(task=MODELS[name].task(), warm=5), 0, time.process_time()
    while time.process_time() - began < seconds:
        step()
        steps += 1
    return steps / (time.process_time() - began)


def limit(name: str, alone: float) -> float:
    """Two plain loops at the same time, in two processes, over one that runs alone at this rate."""
    with multiprocessing.get_context("spawn").Pool(WORKERS, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return sum(pool.map(plain_rate, [name] * WORKERS, chunksize=1)) / alone


def study(name: str, steps: int) -> dict[str, object]:
    """What the study and the plain loop take, and their ratio."""
    trainings = max(1, steps // (RUNS * LOCAL_STEPS))
    keys = {
        "name": "two-cores",
        "repetitions": REPETITIONS,
        "network": {"topology": "cycle", "nodes": NODES},
        "task": {"name": "digits"},  # stands for the one that is given below
        "training": {"batch_size": 32, "local_steps": LOCAL_STEPS},
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
        "algorithms": ALGORITHMS,
        "stop": {"iterations": trainings},
        "evaluate": {"every": trainings, "samples": 200},
    }
    base = replace(build_foundation(make_spec(keys)), given=MODELS[name].task())
    before, watch = plain_rate(name), Watch()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run_foundation(base, Path(folder) / "study", device="cpu", workers=WORKERS, progress=watch)
    wall = time.perf_counter() - began
    plain = max(before, plain_rate(name))
    done, busiest = RUNS * trainings * LOCAL_STEPS, max(watch.seconds.values())
    rate = done / busiest
    most = limit(name, plain)
    found = {"model": name, "steps": done, "plain": plain, "study": rate, "ratio": rate / plain, "limit": most}
    return found | {"wall_s": wall} | {f"worker_{k}_s": seconds for k, seconds in enumerate(watch.seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="lenet5,gn-lenet,resnet20,resnet20-gn")
    parser.add_argument("--seconds", type=float, default=15.0, help="that the study is to take, about")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name in options.models.split(","):
        results.append(study(name, int(plain_rate(name, 2.0) * WORKERS * options.seconds)))
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in results[-1].items()}, flush=True)
        if options.csv:
            with options.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(results[0]))
                writer.writeheader()
                writer.writerows(
                    [{k: f"{v:.2f}" if isinstance(v, float) else v for k, v in row.items()} for row in results]
                )


if __name__ == "__main__":
    main()
