"""What the advice is about: a task on a graph and how it is trained; of a study, or of things in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walktalk.graphs import Graph
from walktalk.learning import OptimizerSpec, Task, Trainer
from walktalk.protocols import Protocol
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.seeds import Seed
from walktalk.studies import Foundation, StudySpec, lay_foundation, prepare_on


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
        """Of every local training; candidates have their learning rates around its own."""
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
    """A study's; every mistake in it shows here.

    Args:
        spec: The study.
        device: auto, cpu or cuda, for the pilots.
    """
    return of_foundation(lay_foundation(spec), device)


def of_foundation(base: Foundation, device: str = "auto", in_python: InPython | None = None) -> Situation:
    """That of a study whose graph, and perhaps task, are there.

    Args:
        base: What the study stands on.
        device: auto, cpu or cuda, for the pilots.
        in_python: Where that was handed over in Python; then no algorithm was named.
    """
    ready = prepare_on(base, device)
    named = [] if in_python is not None else list(dict.fromkeys(run.setup.protocol for run in ready.runs))
    return Situation(ready.trainer, ready.runs[0].setup, named, base.spec, in_python)
