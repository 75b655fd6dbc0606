"""What is looked at before any training or tuning: data, splits and settings, and how long it will take."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from walktalk.learning import Trainer
from walktalk.studies.building import build_task, build_trainer, lay_foundation, pick_device
from walktalk.studies.spec import StudySpec

TRIES = 4
UNITS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0}


def check_study(spec: StudySpec, device: str = "auto") -> None:
    """Build what the specification names, but for the trainer: every mistake in it shows here.

    Data is read, and a split that leaves nodes without samples is refused.
    """
    pick_device(device)
    foundation = lay_foundation(spec)
    spec.optimizer.build()
    foundation.task()


def warning(specs: Sequence[StudySpec], device: str) -> str | None:
    """A word for who starts the paper's scale on a CPU; None where there is nothing to warn of."""
    if not specs or pick_device(device) != "cpu":
        return None
    trainer = build_trainer(specs[0], build_task(specs[0]), "cpu")  # all panels train the same model
    count = sum(trainings(spec) for spec in specs)
    each = seconds_a_training(trainer, specs[0].optimizer.lr)
    if math.isinf(count):  # runs that end by bits alone
        return (
            f"--scale paper is made for a GPU: an iteration takes {each:.2g} s on this CPU; --scale smoke takes minutes"
        )
    return (
        f"--scale paper is made for a GPU: {count:,.0f} iterations are left, "
        f"about {in_words(count * each)} on this CPU; --scale smoke takes minutes"
    )


def trainings(spec: StudySpec) -> float:
    """How many local trainings a study has: exact where runs end by iterations, an estimate where they end by time."""
    foundation, total = lay_foundation(spec), 0.0
    nodes = foundation.graph.nodes
    pace = spec.timing.d if spec.timing.model == "poisson" else spec.timing.compute
    for plan in foundation.algorithms:
        by_time = math.inf if spec.stop.time is None else plan.protocol.active_models(nodes) * spec.stop.time / pace
        total += min(by_time, math.inf if spec.stop.iterations is None else spec.stop.iterations)
    return total * spec.repetitions


def seconds_a_training(trainer: Trainer, lr: float) -> float:
    """How long one local training of one model takes here: the best of a few, as the first ones set things up."""
    rows, zero = trainer.initial_row(0)[None].to(trainer.device), torch.zeros(1, dtype=torch.int64)
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        trainer.train(rows, zero, zero, torch.tensor([lr]))
        took.append(time.perf_counter() - began)
    return min(took)


def in_words(seconds: float) -> str:
    """A length of time that nobody should take to the minute: "3 days"."""
    unit, size = next(((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size), ("minutes", 60.0))
    return f"{max(1, round(seconds / size)):,} {unit}"
