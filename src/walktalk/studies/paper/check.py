"""What is looked at before any training or tuning: data, splits and settings, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from walktalk.learning import Trainer
from walktalk.studies.build import build_graph, build_protocols, build_task, check_links
from walktalk.studies.run import pick_device, planned_runs, prepare
from walktalk.studies.runner import estimated_trainings
from walktalk.studies.spec import StudySpec

UNITS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0}


def check_study(spec: StudySpec, device: str = "auto") -> None:
    """Build what the specification names, but for the trainer: every mistake in it shows here.

    Data is read, and a split that leaves nodes without samples is refused.
    """
    pick_device(device)
    graph = build_graph(spec)
    check_links(spec, graph)
    build_protocols(spec, graph.nodes)
    spec.optimizer.build()
    build_task(spec, graph.nodes)


def warning(specs: Sequence[StudySpec], device: str) -> str | None:
    """A word for who starts the paper's scale on a CPU; None where there is nothing to warn of."""
    if not specs or pick_device(device) != "cpu":
        return None
    seconds = trainings = 0.0
    for spec in specs:
        one = spec.model_copy(update={"repetitions": 1})
        trainer = prepare(one, "cpu").trainer
        count = estimated_trainings(planned_runs(one, trainer)) * spec.repetitions
        trainings += count
        seconds += count * seconds_a_training(trainer, spec.optimizer.lr)
    return (
        f"--scale paper is made for a GPU: {trainings:,.0f} iterations are left, "
        f"about {in_words(seconds)} on this CPU; --scale smoke takes minutes"
    )


def seconds_a_training(trainer: Trainer, lr: float) -> float:
    """How long one local training of one model takes here; the first one, which sets things up, does not count."""
    rows, zero = trainer.initial_row(0)[None].to(trainer.device), torch.zeros(1, dtype=torch.int64)
    began = 0.0
    for _ in range(2):
        began = time.perf_counter()
        trainer.train(rows, zero, zero, torch.tensor([lr]))
    return time.perf_counter() - began


def in_words(seconds: float) -> str:
    """A length of time that nobody should take to the minute: "3 days"."""
    unit, size = next(((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size), ("minutes", 60.0))
    return f"{max(1, round(seconds / size)):,} {unit}"
