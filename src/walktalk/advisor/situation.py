"""What the advice is about: a task on a graph and how it is trained; from a study, or from things in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from walktalk.graphs import Graph, GraphLike
from walktalk.learning import OptimizerSpec, Schedule, Task, Trainer
from walktalk.protocols import MultiWalk, Protocol
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.simulator import PoissonTiming, RunSetup, Timing
from walktalk.seeds import Seed, as_seed
from walktalk.studies import SGD, AlgorithmPlan, Conditions, StudySpec, matched, pick_device, prepare

USUAL = Stop(iterations=3000)  # where nobody says how long a run may be


@dataclass(frozen=True)
class Situation:
    """A task on a graph, how it is trained, and what of that a person said."""

    trainer: Trainer  # of the task
    setup: RunSetup  # of any run in it: graph, timing, stop, evaluations; protocol, seed and rate are a candidate's
    named: Sequence[Protocol]  # algorithms that the person names
    lr: float  # the learning rate around which candidates have theirs
    momentum: float  # of the optimizer
    batch_size: int  # samples of a batch
    seed: Seed  # the root of all randomness
    constant_rate: bool  # whether the learning rate is the same all the way: then a run may be as long as one likes
    study: StudySpec | None = None  # where it comes from a study
    given: dict[str, Any] = field(default_factory=dict)  # what else was said in Python, for `train`

    @property
    def task(self) -> Task:
        return self.trainer.task

    @property
    def graph(self) -> Graph:
        return self.setup.graph

    @property
    def stop(self) -> Stop:
        """When a run ends that reaches no target."""
        return self.setup.stop


def of_study(spec: StudySpec, device: str = "auto") -> Situation:
    """A study's; every mistake in it shows here.

    Args:
        spec: The study.
        device: auto, cpu or cuda, for the pilots.
    """
    ready = prepare(spec, device)
    named = list(dict.fromkeys(run.setup.protocol for run in ready.runs))
    return Situation(
        trainer=ready.trainer,
        setup=ready.runs[0].setup,
        named=named,
        lr=spec.optimizer.lr,
        momentum=spec.optimizer.momentum or 0.0,
        batch_size=spec.training.batch_size,
        seed=Seed(spec.seed),
        constant_rate=not spec.schedule.decay_at and not spec.schedule.warmup,
        study=spec,
    )


def of_task(
    task: Task,
    graph: GraphLike,
    *,
    optimizer: OptimizerSpec | None = None,
    batch_size: int = 32,
    local_steps: int = 5,
    schedule: Schedule | None = None,
    timing: Timing | None = None,
    stop: Stop | None = None,
    evaluate: Evaluate | None = None,
    seed: int | Seed = 0,
    device: str = "auto",
) -> Situation:
    """A task's on a graph, with the arguments of `train` and their defaults.

    Args:
        task: What is learned, and who has which samples.
        graph: Who may talk to whom; a networkx graph is one, too.
        optimizer: Of every local training; its learning rate is where candidates begin.
        batch_size: Samples of a batch.
        local_steps: Optimizer steps of one local training.
        schedule: The learning rate over the run; constant if left out.
        timing: How long things take in virtual time.
        stop: The longest that a run may be; 3,000 iterations if left out.
        evaluate: When the model is measured: a target is reached at an evaluation.
        seed: The root of all randomness.
        device: auto, cpu or cuda, for the pilots.
    """
    said: dict[str, Any] = {"optimizer": optimizer, "batch_size": batch_size, "local_steps": local_steps}
    said |= {"schedule": schedule, "timing": timing, "evaluate": evaluate}
    usual = {"batch_size": 32, "local_steps": 5}
    task, graph = matched(task, graph)
    optimizer, schedule, root = optimizer or SGD(), schedule or Schedule(), as_seed(seed)
    trainer = Trainer(
        task, batch_size=batch_size, local_steps=local_steps, optimizer=optimizer, device=pick_device(device)
    )
    conditions = Conditions(
        graph,
        trainer.payload_bytes,
        trainer.state_bytes,
        "visit",
        stop or USUAL,
        timing or PoissonTiming(),
        evaluate or Evaluate(),
        schedule.factor_at,
    )
    return Situation(
        trainer=trainer,
        # Any protocol will do: every candidate puts its own in its place.
        setup=conditions.setup(AlgorithmPlan("", MultiWalk(), optimizer.lr), root),
        named=(),
        lr=optimizer.lr,
        momentum=optimizer.momentum,
        batch_size=batch_size,
        seed=root,
        constant_rate=not schedule.decay_at and not schedule.warmup,
        given={name: value for name, value in said.items() if value is not None and value != usual.get(name)},
    )
