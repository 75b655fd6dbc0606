"""What the advice is about: a task on a graph and how it is trained; of a study, or of things in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, get_args

import torch

from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.learning import OptimizerSpec, Task, Trainer
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.studies import Foundation, StudySpec, build_foundation, prepare_on


@dataclass(frozen=True)
class InPython:
    """Where the task and the graph are things in Python: what runs them, and what else was said."""

    train: Callable[..., Any]  # (task, protocol, graph, **arguments) -> a run
    task: Any  # as it was given
    graph: Any  # as it was given
    arguments: Mapping[str, Any]  # of `train`, those that are not the usual ones


@dataclass(frozen=True)
class Situation:
    """A task on a graph, how it is trained, and what of that a person said."""

    trainer: Trainer  # of the task
    setup: RunSetup  # of any run in it: graph, timing, stop, evaluations; protocol, seed and rate are a candidate's
    named: Sequence[Protocol]  # algorithms that the person names
    spec: StudySpec  # what it says of all else
    in_python: InPython | None = field(default=None)  # where it is not from a study

    @property
    def task(self) -> Task:
        return self.trainer.task

    @property
    def graph(self) -> Graph:
        return self.setup.graph

    @property
    def optimizer(self) -> OptimizerSpec:
        """The optimizer of every local training; candidates have their learning rates around its own."""
        return self.spec.optimizer.build()

    @property
    def seed(self) -> Seed:
        """The root of all randomness."""
        return Seed(self.spec.seed)

    @property
    def stop(self) -> Stop:
        """When a run ends that reaches no target."""
        return self.setup.stop

    @property
    def constant_rate(self) -> bool:
        """Whether the learning rate is the same all the way: then a run may be as long as one likes."""
        return self.spec.schedule == type(self.spec.schedule)()


def of_study(spec: StudySpec, device: str = "auto") -> Situation:
    """The situation of a study; every mistake in it shows here.

    Args:
        spec: The study.
        device: auto, cpu or cuda, for the pilots.
    """
    return of_foundation(build_foundation(spec), device)


def of_foundation(base: Foundation, device: str = "auto", in_python: InPython | None = None) -> Situation:
    """The situation of a study whose graph, and perhaps task, are there.

    Args:
        base: What the study stands on.
        device: auto, cpu or cuda, for the pilots.
        in_python: Where that was handed over in Python; then no algorithm was named.
    """
    ready = prepare_on(base, device)
    named = [] if in_python is not None else list(dict.fromkeys(run.setup.protocol for run in ready.runs))
    return Situation(ready.trainer, ready.runs[0].setup, named, base.spec, in_python)


# What the person wants: the cheapest way to a loss, or the lowest loss for a budget.

Objective = Literal["iterations", "time", "bits"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True)
class Goal:
    """Reach `target_loss` at the least cost; or, with a budget, the lowest loss within it."""

    objective: Objective = "time"  # what to save: iterations, time or bits
    target_loss: float | None = None  # None: chosen from the task, see `advise`
    budget: float | None = None  # iterations, seconds or bits

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise SpecError(f"objective: {self.objective!r} is unknown; allowed: {', '.join(OBJECTIVES)}")
        if self.budget is not None and not (isfinite(self.budget) and self.budget > 0):
            raise SpecError(f"budget: {self.budget} is not possible; a number above 0 is needed")
        if self.target_loss is not None and not isfinite(self.target_loss):
            raise SpecError(f"target_loss: {self.target_loss} is not possible; a finite number is needed")


def amount(objective: str, value: float) -> str:
    """A cost with its unit; bits as bytes, which people compare with a data plan."""
    if not isfinite(value):
        return "unknown"
    if objective == "iterations":
        return f"{value:,.0f} iterations"
    units = (
        (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
        if objective == "time"
        else (("TB", 8e12), ("GB", 8e9), ("MB", 8e6), ("kB", 8e3), ("bytes", 8.0))
    )
    unit, size = next((u for u in units if abs(value) >= u[1]), units[-1])
    return f"{value / size:,.3g} {unit}"


# Columns of very different size: the commonest reason why own data trains badly, and one that no advice can mend.

ODD_SIZE = 30.0  # from 1: a column's curvature is the square of its size, and rates and initial weights are made for 1


def unscaled(task: Task) -> str:
    """What to do about it, to be put at the end of a sentence; nothing where columns are of about the same size."""
    sizes = sizes_of(task.inputs, task.inputs.dim() == 2 if isinstance(task.inputs, torch.Tensor) else False)
    if sizes is not None:
        return (
            f"; the input columns are of size {sizes[0]:.2g} to {sizes[1]:.2g}: bring each to mean 0 and deviation 1, "
            "by numbers that all sites share, and ask again"
        )
    sizes = sizes_of(task.targets, True)
    if sizes is not None:
        return f"; the targets are of size {sizes[1]:.2g}: divide them by a number that all sites share, and ask again"
    return ""


def sizes_of(samples: object, in_columns: bool) -> tuple[float, float] | None:
    """The least and the largest size of a column, where the largest is far from 1; None where it is not."""
    if not in_columns or not isinstance(samples, torch.Tensor) or not samples.is_floating_point():
        return None
    sizes = samples.reshape(len(samples), -1).double().square().mean(0).sqrt()
    sizes = sizes[sizes > 0]
    if len(sizes) == 0 or not bool(torch.isfinite(sizes).all()):
        return None
    least, largest = float(sizes.min()), float(sizes.max())
    # Smaller ones beside them are common, as rare words or the corners of pictures are.
    return None if 1 / ODD_SIZE <= largest <= ODD_SIZE else (least, largest)
