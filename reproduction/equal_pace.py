"""What equal pace costs: where gossip ends on nodes of unequal speed, how much it scatters, and how long it takes.

    OMP_NUM_THREADS=1 python reproduction/equal_pace.py

Eight nodes hold a number each, ½ a (x − b)² with a from 0.3 to 1.5, and see its gradient with noise of size 1; half of
them are `slow` times slower. Gossip in pairs, one step a training, batches of one, sites counted alike, five seeds.
For each rate: `off`, how far the mean over time and seeds is from the optimum; `scatter`, the root mean square around
it, of the mean of all models over the last third of a run; `until`, the seconds (a fast training takes 1) after which
the mean over seeds has come nine tenths of the way to where it ends; `staleness`, the trainings of others that end
during one, mean over all trainings by the length of their steps.
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import walktalk as wt

NODES, SEEDS, SECONDS, EVERY = 8, 5, 900.0, 4.0
RATES = (0.05, 0.12)
START = 10.0


class Bowl(nn.Module):
    """A number, whose loss is a bowl of some width around each sample's own centre."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.full((1,), START))

    def forward(self, samples: Tensor) -> Tensor:
        """The distance to the samples' centres, in units of the bowl's width."""
        return (self.at - samples[:, :1]) * samples[:, 1:].sqrt()


def half_square(distances: Tensor, _: Tensor) -> Tensor:
    """Half of the squared distance, mean over samples."""
    return 0.5 * (distances**2).mean()


def bowls() -> tuple[wt.Task, float]:
    """The task, and its optimum."""
    rng = np.random.default_rng(5)
    curvatures, centres = rng.uniform(0.3, 1.5, NODES), rng.normal(0.0, 3.0, NODES)
    parts = []
    for a, b in zip(curvatures, centres, strict=True):
        noise = rng.normal(0.0, 1.0 / a, 400)
        samples = np.stack([b + noise - noise.mean(), np.full(400, a)], 1).astype(np.float32)
        parts.append((torch.from_numpy(samples), torch.zeros(400, 1)))
    probe = (torch.tensor([[0.0, 1.0]]), torch.zeros(1, 1))  # its distance is the number itself
    task = wt.tasks.torch(
        Bowl(), half_square, parts, test=probe, metrics={"at": lambda outputs, _: float(outputs.mean())}
    )
    return task, float((curvatures * centres).sum() / curvatures.sum())


class Ended(NamedTuple):
    """Where runs with one rate ended."""

    off: float
    scatter: float
    until: float
    staleness: float  # trainings of others during one, mean over all updates by how long their steps were


def run(slow: float, rate: float, equal_pace: bool) -> Ended:
    """Run all seeds and look at the mean of all models over time."""
    task, optimum = bowls()
    compared = wt.compare(
        task,
        {"name": "async_gossip", "label": "gossip"},
        wt.graphs.complete(NODES),
        repetitions=SEEDS,
        optimizer=wt.SGD(lr=rate, momentum=0.0, nesterov=False),
        batch_size=1,
        local_steps=1,
        timing=wt.NetworkTiming(compute=[1.0, slow] * (NODES // 2), spread=0.3, latency=0.001),
        stop=wt.Stop(time=SECONDS),
        evaluate={"seconds": EVERY, "samples": 8},
        objective={"weights": "sites", "equal_pace": equal_pace},
        progress=False,
    )
    paths = np.stack([run.history["at"].to_numpy()[: int(SECONDS / EVERY)] for run in compared.runs])
    late = paths[:, 2 * paths.shape[1] // 3 :]
    mean = paths.mean(0)
    end = float(late.mean())
    arrived = np.abs(mean - end) <= 0.1 * abs(START - end)
    trace = compared.runs[0].trace
    return Ended(
        end - optimum,
        float(np.sqrt(((late - late.mean(1, keepdims=True)) ** 2).mean())),
        EVERY * float(np.argmax(arrived)),
        staleness(trace[trace["event"].isin(["train", "trained"])]),
    )


def staleness(events: pd.DataFrame) -> float:
    """The mean number of others' trainings that end during one, each training counted by the length of its steps."""
    begun: dict[int, tuple[int, float]] = {}
    ended, total, weight = 0, 0.0, 0.0
    for event, node, detail in zip(events["event"], events["node"], events["detail"], strict=True):
        if event == "train":
            said = json.loads(detail) if isinstance(detail, str) and detail else detail or {}
            begun[node] = ended, float(said.get("factor", 1.0))
        else:
            before, factor = begun.pop(node)
            total, weight, ended = total + factor * (ended - before), weight + factor, ended + 1
    return total / weight


def main() -> None:
    """Print one line for each rate, without and with equal pace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", type=float, default=8.0)
    slow = parser.parse_args().slow
    print("| rate | equal pace | off | scatter | until, s | staleness |\n| --- | --- | --- | --- | --- | --- |")
    for rate in RATES:
        for equal_pace in (False, True):
            found = run(slow, rate, equal_pace)
            numbers = f"{found.off:+.3f} | {found.scatter:.3f} | {found.until:.0f} | {found.staleness:.1f}"
            print(f"| {rate:g} | {'yes' if equal_pace else 'no'} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
