"""Does the arithmetic of a plan: gathers rows, trains or combines them at once, writes them back.

The same code serves CPU and CUDA. Everything a stretch needs to know, row numbers, batch keys, learning rates, goes to
the device before its first wave; inside, nothing waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from walktalk.learning import Extras, TrainingRows, kernels
from walktalk.runtimes.stacked.measurements import (
    Averaging,
    Kept,
    Measurement,
    Measurements,
    RowTrainer,
    averaging_of,
    parameters_of,
)
from walktalk.runtimes.stacked.rows import WIDEST_BAG, Matrix
from walktalk.runtimes.stacked.waves import CombineStep, EncodeStep, EvaluateStep, MixStep, ScreenStep, Step, TrainStep
from walktalk.transforms.codecs import Part, codec_named, seen_models
from walktalk.transforms.rules import rule_named

# What the steps of a plan need to know, on the device before the first of them.


class Wave(NamedTuple):
    """The tables of one wave, on the device."""

    sources: Tensor
    outs: Tensor
    parts: Tensor
    keys: Tensor
    lrs: Tensor
    states_in: Tensor
    states_out: Tensor
    corrections: Tensor  # empty, where there are none


class Combination(NamedTuple):
    """The tables of one level of combinations, on the device."""

    outs: Tensor
    sources: Tensor
    weights: Tensor
    starts: Tensor
    statistics: Tensor
    parts: Tensor


class Tables:
    """The row numbers, keys and weights of a whole plan, sent to the device once and read off in order."""

    def __init__(self, steps: list[Step], device: torch.device) -> None:
        self.device = device
        training = [step for step in steps if isinstance(step, TrainStep)]
        combining = [step for step in steps if isinstance(step, CombineStep)]
        self.waves = map(Wave._make, zip(*(self.table(training, name) for name in Wave._fields), strict=True))
        self.combinations = map(
            Combination._make, zip(*(self.table(combining, name) for name in Combination._fields), strict=True)
        )

    def table(self, steps: Sequence[Step], name: str) -> Sequence[Tensor]:
        """One column of all these steps, cut into steps again once it is on the device."""
        lists = [getattr(step, name) for step in steps]
        kind = np.float32 if name in ("lrs", "weights", "statistics") else np.int64
        column = torch.from_numpy(np.fromiter(chain.from_iterable(lists), kind)).to(self.device)
        parts: Sequence[Tensor] = column.split([len(numbers) for numbers in lists])
        return parts


ANY_WIDTH = 2**31
NUMBERS_AT_ONCE = 2**22  # of members in an evaluation: 16 MB at a time
NUMBERS_IN_ALBUM = 2**28  # of models that wait to be measured: 1 GB; ten million parameters and more are measured early


TrainInPlace: TypeAlias = Callable[
    [Tensor, list[Tensor], Tensor | None, tuple[Tensor, Tensor, Tensor] | None], bool
]  # the models, a wave's columns, rows beside it, states -> whether it was done


class Executor:
    """The matrices of a study, and the arithmetic on them."""

    def __init__(
        self,
        trainer: RowTrainer,
        mixing: Callable[[int], Tensor],
        targets: Mapping[int, float] | None = None,
        watched: Collection[int] = (),
    ) -> None:
        self.trainer = trainer
        self.kept = Kept(targets or {}, frozenset(watched), getattr(trainer, "best_by", None))
        self.overflows: dict[int, int] = {}  # run -> the node whose training first gave what is not a number
        self._sums: list[tuple[TrainStep, int, Tensor]] = []  # of the models of every wave of this stretch
        self.device = torch.device(trainer.device)
        self.models = Matrix(trainer.width, self.device)
        self.states = Matrix(max(trainer.state_width, 1), self.device)
        self.parameters = parameters_of(trainer)
        self.averaging = averaging_of(trainer)
        self.widest: int = getattr(trainer, "best_width", None) or ANY_WIDTH  # a wider wave is trained in pieces
        self.train_in_place: TrainInPlace | None = getattr(trainer, "train_in_place", None)
        wide = self.trainer.width > WIDEST_BAG
        self.has_wide_kernels = wide and self.device.type == "cuda" and kernels.is_possible()
        self.mixing = mixing  # run -> its matrix P, for `MixStep`
        self.model_steps = 0

    def carry_out(self, steps: list[Step], after_step: Callable[[Step], None] | None = None) -> list[Measurement]:
        """All of a plan; what was measured on the way, each run's in the run's own order.

        An evaluation is done as soon as its models are there, which may be before an earlier one's: with an aggregator
        that is dead, nothing new is waited for. Which comes first must not show in the records.
        """
        tables = Tables(steps, self.device)
        measurements = Measurements(self.kept)
        measured: list[Measurement] = []
        for step in steps:
            if isinstance(step, TrainStep):
                self.train(step, tables)
            elif isinstance(step, CombineStep):
                self.combine(step, tables)
            elif isinstance(step, MixStep):
                self.mix(step)
            elif isinstance(step, EncodeStep):
                self.encode(step)
            elif isinstance(step, ScreenStep):
                self.screen(step)
            else:
                self.photograph(step, measurements)
                if measurements.size * self.trainer.width > NUMBERS_IN_ALBUM:
                    measured += measurements.develop(self.trainer)
                    measurements = Measurements(self.kept)
            if after_step is not None:
                after_step(step)
        measured += measurements.develop(self.trainer)
        self.look_for_overflows(measured)
        return sorted(measured, key=lambda m: m.order)

    def look_for_overflows(self, measured: Sequence[Measurement]) -> None:
        """Where a loss is not a number, find out whose training it began with."""
        sums, self._sums = self._sums, []
        struck = {m.run for m in measured if not math.isfinite(m.train_loss)} - self.overflows.keys()
        for step, start, total in sums if struck else ():
            for place in (~total.isfinite()).nonzero().flatten().tolist():
                run = step.runs[start + place] if step.runs else -1
                if run in struck:
                    self.overflows.setdefault(run, step.parts[start + place])

    def train(self, step: TrainStep, tables: Tables) -> None:
        """One wave, in pieces of a width that suits the trainer: none of them reads what another writes."""
        wave, count = next(tables.waves), len(step.outs)
        at_once = -(-count // -(-count // self.widest))
        if at_once == count:
            self.train_piece(step, wave, 0, count)
            return
        for start in range(0, count, at_once):
            end = min(start + at_once, count)
            self.train_piece(step, Wave._make(column[start:end] for column in wave), start, end)

    def train_piece(self, step: TrainStep, wave: Wave, start: int, end: int) -> None:
        outs = step.states_out[start:end]
        kept = [k for k, row in enumerate(outs) if row >= 0] if self.trainer.state_width else []
        if self.trained_in_place(step, wave, slice(start, end), len(kept)):
            return
        state = self.read_states(step.states_in[start:end]) if kept else None
        models = self.models.look_at(wave.sources, step.sources[start:end])
        extras = self.extras_of(step, slice(start, end))
        # What a wave gives is written down before the next one, so a trainer may lend its own memory.
        given = TrainingRows(models, wave.parts, wave.keys, wave.lrs, state, extras, on_loan=True)
        new, new_state = self.trainer.train(given)
        self.models.write(wave.outs, new)
        self._sums.append((step, start, new.sum(1)))  # looked at only where a loss is not a number: nothing waits
        if new_state is not None and kept:
            if len(kept) < len(outs):  # some runs keep their state and others begin anew at every visit
                new_state = new_state[self.numbers(kept)]
            self.states.write(self.numbers([outs[k] for k in kept]), new_state)

    def trained_in_place(self, step: TrainStep, wave: Wave, piece: slice, kept: int) -> bool:
        """Whether the trainer could do without copies of the rows: an ordinary training, states all or none there."""
        ordinary = step.steps in (0, self.trainer.local_steps) and not step.gradient and not step.anchors
        read, written = step.states_in[piece], step.states_out[piece]
        if self.train_in_place is None or not ordinary or (kept and (kept < len(written) or min(read) < 0)):
            return False
        states = (self.states.data, wave.states_in, wave.states_out) if kept else None
        corrections = wave.corrections if step.corrections else None
        columns = [wave.sources, wave.outs, wave.parts, wave.keys, wave.lrs]
        return self.train_in_place(self.models.data, columns, corrections, states)

    def extras_of(self, step: TrainStep, piece: slice) -> Extras | None:
        """What is out of the ordinary in a piece of a wave; None where nothing is."""
        ordinary = step.steps in (0, self.trainer.local_steps) and not step.gradient
        if ordinary and not step.corrections and not step.anchors:
            return None
        beside = [
            self.models.read(self.numbers(rows[piece])) if rows else None for rows in (step.corrections, step.anchors)
        ]
        pulls = torch.tensor(step.pulls[piece], device=self.device) if step.anchors else None
        return Extras(step.steps or self.trainer.local_steps, step.gradient, beside[0], beside[1], pulls)

    def read_states(self, numbers: list[int]) -> Tensor:
        """The optimizer states of a wave; a fresh one is all zeros."""
        rows = torch.tensor(numbers)
        fresh = rows < 0
        if not bool(fresh.any()):
            return self.states.look_at(rows.to(self.device), numbers)
        state = self.states.read(rows.clamp(min=0).to(self.device))
        state[fresh.to(self.device)] = 0.0
        return state

    def combine(self, step: CombineStep, tables: Tables) -> None:
        combination = next(tables.combinations)
        sources, starts, outs = combination.sources, combination.starts, combination.outs
        calmer = None  # what comes behind the parameters is mixed with weights of its own
        if step.statistics and self.parameters < self.trainer.width:
            calmer = self.models.combined_from(self.parameters, sources, combination.statistics, starts)
        if self.has_wide_kernels:
            parts = combination.parts if step.parts else None
            kernels.combine_rows(self.models.data, outs, sources, combination.weights, starts, parts, step.of)
        elif self.trainer.width > WIDEST_BAG:
            self.models.combine_one_by_one(step.outs, step.sources, step.weights, step.starts)
        else:
            self.models.write(outs, self.models.combined(sources, combination.weights, starts))
        if self.averaging is not None:
            self.average(step, self.averaging)
        if calmer is not None:
            self.models.data[outs, self.parameters :] = calmer

    def average(self, step: CombineStep, averaging: Averaging) -> None:
        """Those of the combinations that are means of models, once more: no row that is read was written."""
        ends = [*step.starts[1:], len(step.sources)]
        for place in step.averaged:
            piece = slice(step.starts[place], ends[place])
            weights = torch.tensor(step.weights[piece], device=self.device)
            rows = self.models.read(self.numbers(step.sources[piece]))
            self.models.data[step.outs[place]] = averaging.combined(rows, weights)

    def encode(self, step: EncodeStep) -> None:
        """What receivers see of models, running statistics among it."""
        codec = codec_named(step.codec)
        if isinstance(codec, Part) and self.has_wide_kernels:
            places = codec.places
            outs, sources = self.numbers(step.outs), self.numbers(step.sources)
            kernels.keep_part(self.models.data, outs, sources, places.start, places.step)
            return
        before = self.models.read(self.numbers(step.sources))
        seen = seen_models(step.codec, before, self.parameters, self.numbers(step.keys))
        self.models.write(self.numbers(step.outs), seen)

    def screen(self, step: ScreenStep) -> None:
        """All at once as far as their models fit."""
        rule, others = rule_named(step.rule), len(step.others[0])
        at_once = max(1, NUMBERS_IN_ALBUM // ((others + 1) * self.trainer.width))
        for start in range(0, len(step.outs), at_once):
            piece = slice(start, start + at_once)
            own = self.models.read(self.numbers(step.owns[piece]))
            rows = [row for each in step.others[piece] for row in each]
            around = self.models.read(self.numbers(rows)) if rows else own.new_empty(0, own.shape[1])
            weights = torch.tensor(step.weights[piece], device=self.device, dtype=own.dtype)
            mixed = rule.mixed(
                own,
                around.view(len(own), others, own.shape[1]),
                weights.view(len(own), others),
                self.numbers(step.keys[piece]),
                self.parameters,
            )
            self.models.write(self.numbers(step.outs[piece]), mixed)

    def mix(self, step: MixStep) -> None:
        before = self.models.read(self.numbers(step.sources))
        matrix = self.mixing(step.run)
        if self.averaging is None:
            self.models.write(self.numbers(step.outs), matrix @ before)
            return
        chosen = [(weights != 0, weights) for weights in matrix]
        mixed = [self.averaging.combined(before[there], weights[there]) for there, weights in chosen]
        self.models.write(self.numbers(step.outs), torch.stack(mixed))

    def photograph(self, step: EvaluateStep, measurements: Measurements) -> None:
        """Keep what an evaluation needs; the rows themselves will be overwritten."""
        aggregate = self.blend(step.aggregate)
        mean, spread = (
            self.mean_and_spread(step.members) if step.members else (aggregate, self.models.data.new_zeros(()))
        )
        measurements.add(step, aggregate, mean, spread, self.read_states(step.states) if step.states else None)
        if step.op.each and step.members:
            measurements.add_members(step, self.blend_each(step.members))

    def mean_and_spread(self, members: Sequence[Sequence[tuple[int, float]]]) -> tuple[Tensor, Tensor]:
        """The mean of the members, and their mean squared distance to it; ten thousand members do not fit at once.

        The distance is nan where rows have none, as those of states that are bytes.
        """
        if self.averaging is not None and not self.averaging.has_distances:
            rows = self.blend_each(members)
            each = torch.full((len(rows),), 1.0 / len(rows), device=self.device)
            return self.averaging.combined(rows, each), rows.new_full((), math.nan)
        at_once = max(1, NUMBERS_AT_ONCE // self.trainer.width)
        if len(members) <= at_once:
            rows = self.blend_each(members)
            mean = rows.mean(0)
            spread = ((rows - mean) ** 2).sum(1).mean()
            if self.averaging is not None and len(rows) > 1:
                mean = self.averaging.combined(rows, torch.full((len(rows),), 1.0 / len(rows), device=self.device))
            return mean, spread
        first = self.blend(members[0])  # all are measured from here, so that little is lost in the difference below
        shift = torch.zeros_like(first, dtype=torch.float64)
        squares = torch.zeros((), device=self.device, dtype=torch.float64)
        for start in range(0, len(members), at_once):
            rows = self.blend_each(members[start : start + at_once]).sub_(first)
            shift += rows.sum(0)
            squares += rows.square_().sum(1).sum(dtype=torch.float64)
        shift /= len(members)
        return (first + shift).to(first.dtype), (squares / len(members) - shift.square().sum()).clamp(min=0.0).float()

    def blend_each(self, members: Sequence[Sequence[tuple[int, float]]]) -> Tensor:
        """Each combination as a row of a new matrix."""
        if all(len(terms) == 1 and terms[0][1] == 1.0 for terms in members):
            return self.models.read(self.numbers([terms[0][0] for terms in members]))
        return torch.stack([self.blend(terms) for terms in members])

    def blend(self, terms: Sequence[tuple[int, float]]) -> Tensor:
        """A combination of rows as one new row."""
        if len(terms) == 1 and terms[0][1] == 1.0:
            return self.models.data[terms[0][0]].clone()
        if len(terms) * self.trainer.width > NUMBERS_IN_ALBUM:  # one after another: a copy of all would not fit
            total = torch.zeros(self.trainer.width, device=self.device, dtype=self.models.data.dtype)
            for row, weight in terms:
                total.add_(self.models.data[row], alpha=weight)
            return total
        rows = self.models.read(self.numbers([row for row, _ in terms]))
        weights = torch.tensor([weight for _, weight in terms], device=self.device, dtype=rows.dtype)
        return weights @ rows if self.averaging is None else self.averaging.combined(rows, weights)

    def numbers(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self.device)
