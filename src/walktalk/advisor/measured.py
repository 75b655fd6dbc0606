"""What the theorems bound, measured: (1/T) Σ E‖∇f(x)‖² at the models that are trained, iteration by iteration.

A trainer that looks at every model before it trains it stands between the executor and the real one; the trace says
which training was which iteration of which run. So any number of runs are measured in one engine, at full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from walktalk.errors import DataError
from walktalk.learning import Extras, OptimizerSpec, Task, Trainer
from walktalk.records import TraceRow
from walktalk.runtimes.simulator import RunSetup
from walktalk.runtimes.stacked import Engine, RowTrainer, parameters_of
from walktalk.theory import Problem

Floats = npt.NDArray[np.float64]
SquaredNorm: TypeAlias = Callable[[Tensor], Tensor]  # rows [W, P] -> ‖∇f‖² [W]
STRETCHES = 4  # of a measurement: few, so that waves are wide; more than one, so that traces do not pile up


class Watcher:
    """A trainer that notes ‖∇f‖² of every model it is given, by the key of the training."""

    def __init__(self, trainer: RowTrainer, norm: SquaredNorm) -> None:
        self.trainer = trainer
        self.norm = norm
        self.width, self.state_width, self.device = trainer.width, trainer.state_width, trainer.device
        self.parameters, self.local_steps = parameters_of(trainer), trainer.local_steps
        self.keys: list[Tensor] = []
        self.norms: list[Tensor] = []

    def train(
        self,
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None = None,
        extras: Extras | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        self.keys.append(keys)
        self.norms.append(self.norm(rows))
        return self.trainer.train(rows, parts, keys, lr, state, extras)

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.trainer.evaluate(rows)

    def take(self) -> dict[int, float]:
        """Key -> ‖∇f‖² of everything since the last time."""
        if not self.keys:
            return {}
        keys, norms = torch.cat(self.keys).tolist(), torch.cat(self.norms).double().cpu().tolist()
        self.keys, self.norms = [], []
        return dict(zip(keys, norms, strict=True))


def quadratic_norm(task: Task) -> SquaredNorm:
    """‖∇f(x)‖² of a `quadratic` task, exactly."""
    facts = task.details.get("quadratic")
    if facts is None:
        raise DataError(f"task {task.name}: its gradient is not known in closed form; use the task quadratic")
    scale = torch.tensor(facts.eigenvalues, dtype=torch.float64)
    optimum = torch.tensor(facts.centres.mean(0), dtype=torch.float64)
    return lambda rows: ((scale * (rows.double() - optimum)) ** 2).sum(1)


def quadratic_problem(task: Task) -> Problem:
    """The exact constants of a `quadratic` task that is trained with batches of one."""
    facts = task.facts
    constants = {name: facts[name] for name in ("F", "L", "sigma2", "zeta2")}
    return Problem(**constants, delta=0.0)  # all nodes have the same curvature


def plain_sgd(task: Task) -> Trainer:
    """As the theorems have it: one step, one sample, no momentum."""
    return Trainer(task, batch_size=1, local_steps=1, optimizer=OptimizerSpec(name="sgd", lr=1.0))


def squared_gradients(task: Task, setups: Sequence[RunSetup]) -> list[Floats]:
    """For every run: ‖∇f‖² at the model of each iteration, in the order in which iterations are completed."""
    trainer = plain_sgd(task)
    watcher = Watcher(trainer, quadratic_norm(task))
    # Trainings are told apart by their keys, so no two runs may draw the same ones.
    own = [replace(setup, seed=setup.seed.child("measured", run)) for run, setup in enumerate(setups)]
    engine = Engine(watcher, own, [trainer.initial_row(0)] * len(own))
    keys: list[dict[int, int]] = [{} for _ in setups]  # training -> its key
    order: list[list[int]] = [[] for _ in setups]  # keys, by iteration
    found: dict[int, float] = {}
    for stretch in range(1, STRETCHES + 1):
        advance = engine.advance(stretch / STRETCHES)
        found.update(watcher.take())
        for run, rows in advance.traces.items():
            note_order(rows, keys[run], order[run])
    return [np.array([found[key] for key in run]) for run in order]


def note_order(trace: list[TraceRow], keys: dict[int, int], order: list[int]) -> None:
    """Which training was which iteration."""
    for row in trace:
        if row.event == "train":
            keys[row.number] = row.key
        elif row.event == "trained":
            order.append(keys.pop(row.number))
