"""Models that are to be measured, and what is measured of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor

from walktalk.core.errors import SpecError
from walktalk.learning import TrainingRows
from walktalk.protocols import Protocol
from walktalk.runtimes.simulator import EvaluateOp
from walktalk.runtimes.stacked.waves import EvaluateStep

# What the arithmetic asks of whoever trains rows: `learning.Trainer`, or anything like it.


class RowTrainer(Interface):
    """What the executor asks of `learning.Trainer`."""

    local_steps: int
    device: torch.device

    @property
    def width(self) -> int: ...

    @property
    def state_width(self) -> int: ...

    def train(self, given: TrainingRows, /) -> tuple[Tensor, Tensor | None]: ...

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]: ...


def parameters_of(trainer: RowTrainer) -> int:
    """How many of a row's numbers are parameters; what comes behind them are statistics."""
    count: int = getattr(trainer, "parameters", trainer.width)
    return count


def steps_of(trainer: RowTrainer) -> tuple[int, ...]:
    """Local steps by part of the data, where not all have the same number; else nothing."""
    found: tuple[int, ...] = getattr(trainer, "steps_of", ())
    return found


class Averaging(Interface):
    """How means of models are made, where that is more than a sum of their numbers."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Σ_k weights[k] · model k, as one row, of rows [K, width]."""

    @property
    def has_distances(self) -> bool:
        """Whether rows that are near each other are models that are."""

    def refusal(self, label: str) -> str:
        """What is said of an algorithm that adds up other things than models."""


def averaging_of(trainer: RowTrainer, protocol: Protocol | None = None) -> Averaging | None:
    """That of the trainer's models; a `SpecError` where the protocol adds up other things than models as means."""
    found: Averaging | None = getattr(trainer, "averaging", None)
    if found is not None and protocol is not None and not protocol.means_of_models:
        raise SpecError(found.refusal(protocol.label))
    return found


LOSSES = ("train_loss", "test_loss")  # of which the largest is the worst


class Candidate(NamedTuple):
    """A model that is the best of a run so far, or the best of those that were measured together."""

    model: Tensor
    measure: str  # by which it is
    value: float  # of that measure
    is_mean: bool  # whether it is the mean over members, not the algorithm's output


def is_better(measure: str, value: float, other: float) -> bool:
    """Whether one value of a measure is better than another: of an accuracy the larger, of a loss the smaller."""
    return value > other if measure.endswith("accuracy") else value < other


@dataclass(frozen=True)
class Measurement:
    """One run at one moment."""

    run: int
    op: EvaluateOp
    train_loss: float  # of the aggregated model
    test_accuracy: float
    consensus: float  # mean over members of the squared distance to their mean
    mean_train_loss: float  # of the mean of the members
    mean_test_accuracy: float
    model: Tensor | None = field(default=None, compare=False, repr=False)  # the aggregated one, where it met its target
    order: int = field(default=0, compare=False, repr=False)  # in the schedule of this stretch
    further: Mapping[str, float] = field(default_factory=dict)  # what else was measured, by name
    states: Tensor | None = field(
        default=None, compare=False, repr=False
    )  # of all nodes, where they have private parts
    best: Candidate | None = field(default=None, compare=False, repr=False)  # the best of its run that came with it


class Kept(NamedTuple):
    """Which of the models that are measured are kept: those with which a run may end."""

    targets: Mapping[int, float]  # run -> the loss that ends it
    watched: frozenset[int]  # runs that any evaluation may end
    best_by: str | None = None  # the measure by which the best model of every run is kept, too

    def wanted(self, run: int, loss: float) -> bool:
        return run in self.watched or loss <= self.targets.get(run, -math.inf)


class Measurements:
    """Models to be measured, kept until enough are together to measure them as one stack.

    What is measured is let go, but for models that may end their run: those are what the run puts out.
    """

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.steps: list[EvaluateStep] = []
        self.models: list[Tensor] = []
        self.where: list[tuple[int, int]] = []  # for each step: which model is its aggregate, which its mean
        self.spreads: list[Tensor] = []
        self.states: dict[int, Tensor] = {}  # place of a step -> the states of all nodes
        self.members: dict[int, Tensor] = {}  # place of a step -> its members, where each is measured by itself

    @property
    def size(self) -> int:
        """How many models are in it."""
        return len(self.models) + sum(map(len, self.members.values()))

    def add_members(self, step: EvaluateStep, rows: Tensor) -> None:
        """To be measured one by one, beside the step that was added last."""
        self.members[len(self.steps) - 1] = rows

    def add(
        self, step: EvaluateStep, aggregate: Tensor, mean: Tensor, spread: Tensor, states: Tensor | None = None
    ) -> None:
        """To be measured; `states`: of all nodes, where parts of models are private."""
        if states is not None:
            self.states[len(self.steps)] = states
        self.steps.append(step)
        self.spreads.append(spread)
        self.models.append(aggregate)
        first = len(self.models) - 1
        same = same_model(step)
        if not same:
            self.models.append(mean)
        self.where.append((first, first if same else first + 1))

    def measured(self, trainer: RowTrainer) -> dict[str, list[float]]:
        """All models, measured as one stack, or step by step where nodes have states of their own."""
        if not self.states:
            return measured_by(trainer, torch.stack(self.models))
        found: dict[str, list[float]] = {}
        for place, (aggregate, mean) in enumerate(self.where):
            rows = torch.stack(self.models[aggregate : mean + 1])
            for name, values in measured_by(trainer, rows, self.states.get(place)).items():
                found.setdefault(name, []).extend(values)
        return found

    def each_of(self, trainer: RowTrainer, place: int) -> dict[str, float]:
        """What is told of the members of a step, each measured by itself."""
        return of_members(measured_by(trainer, self.members[place], self.states.get(place)))

    def develop(self, trainer: RowTrainer) -> list[Measurement]:
        if not self.steps:
            return []
        measured = self.measured(trainer)
        losses, accuracies = measured.pop("train_loss"), measured.pop("test_accuracy")
        spreads = torch.stack(self.spreads).double().cpu().tolist()
        best = self.best_of_each({"train_loss": losses, "test_accuracy": accuracies, **measured})
        return [
            Measurement(
                step.run,
                step.op,
                losses[a],
                accuracies[a],
                spread,
                losses[m],
                accuracies[m],
                self.models[a] if self.kept.wanted(step.run, losses[a]) else None,
                step.order,
                {
                    **{name: values[a] for name, values in measured.items()},
                    **{f"mean_{name}": values[m] for name, values in measured.items()},
                    **(self.each_of(trainer, place) if place in self.members else {}),
                },
                self.states.get(place),
                best.get(place),
            )
            for place, (step, (a, m), spread) in enumerate(zip(self.steps, self.where, spreads, strict=True))
        ]

    def best_of_each(self, measured: Mapping[str, list[float]]) -> dict[int, Candidate]:
        """Models that are better than all of their run among these before them, by the place of the step.

        Each of them, not the last alone: a run may end on the way. None where nobody asked for the best.
        """
        by, seen, found = self.kept.best_by, dict[int, Candidate](), dict[int, Candidate]()
        if by is None or by not in measured:
            return {}
        for place, (step, models) in enumerate(zip(self.steps, self.where, strict=True)):
            for number in dict.fromkeys(models):
                value = measured[by][number]
                before = seen.get(step.run)
                if math.isfinite(value) and (before is None or is_better(by, value, before.value)):
                    best = Candidate(self.models[number], by, value, number != models[0])
                    seen[step.run] = found[place] = best
        return found


def measured_by(trainer: RowTrainer, rows: Tensor, states: Tensor | None = None) -> dict[str, list[float]]:
    """Measures every row; by name: training loss and test accuracy at least.

    states: of all nodes, where parts of models are private.
    """
    if states is not None:
        measure_with: Callable[[Tensor, Tensor], dict[str, Tensor]] = trainer.measure  # type: ignore[attr-defined]
        return {name: values.double().cpu().tolist() for name, values in measure_with(rows, states).items()}
    measure: Callable[[Tensor], dict[str, Tensor]] | None = getattr(trainer, "measure", None)
    found = (
        dict(zip(("train_loss", "test_accuracy"), trainer.evaluate(rows), strict=True))
        if measure is None
        else measure(rows)
    )
    return {name: values.double().cpu().tolist() for name, values in found.items()}


def of_members(measured: Mapping[str, list[float]]) -> dict[str, float]:
    """Worst, mean and standard deviation over the members; where nobody knows what is worse, both ends."""
    found: dict[str, float] = {}
    for name, values in measured.items():
        column = np.array(values)
        low, high = float(column.min()), float(column.max())
        ends = (
            {"worst": low}
            if name == "test_accuracy"
            else {"worst": high}
            if name in LOSSES
            else {"min": low, "max": high}
        )
        spread = {"mean": float(column.mean()), "std": float(column.std())}
        found |= {f"each_{name}_{kind}": value for kind, value in (ends | spread).items()}
    return found


def same_model(step: EvaluateStep) -> bool:
    """Whether the aggregate is the mean of the members, as in gossip, so that one evaluation serves both."""
    if not step.members:
        return True
    total: dict[int, float] = {}
    for terms in step.members:
        for row, weight in terms:
            total[row] = total.get(row, 0.0) + weight / len(step.members)
    return total == dict(step.aggregate)
