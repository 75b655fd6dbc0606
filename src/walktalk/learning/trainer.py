"""Trains and measures the rows of a study on one device: what the executor calls."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from walktalk.core.errors import ModelError
from walktalk.learning.adapters import ProductMixing, mixing_of
from walktalk.learning.arithmetic import Arithmetic, activation_allowance, fewer_rows, is_out_of_memory
from walktalk.learning.evaluation import EvaluationSamples, Evaluator
from walktalk.learning.optimizers import OptimizerSpec, RowOptimizer, optimizer_by_part, row_optimizer
from walktalk.learning.private import PrivatePart
from walktalk.learning.samples import Sampler, bytes_in_memory, only, pieces, some
from walktalk.learning.stacked import OpaqueLoss, SequentialModel, one_thread, stack, use
from walktalk.learning.task import Task, copy_on, keep_at_home, matches, still_parts, to_training
from walktalk.learning.training import (
    StackedTraining,
    TrainedRows,
    TrainingData,
    TrainingForm,
    TrainingForms,
    TrainingRows,
    possible_forms,
    say_that_none_works,
)
from walktalk.learning.user_data import own_name, persons_module

BYTES_IN_CACHE = 2**24  # of what a wave's forward pass keeps on a CPU
ANY = 2**31

Buffers: TypeAlias = Literal["travel", "batch"]
BUFFERS: tuple[Buffers, ...] = ("travel", "batch")


def _of_each_part(name: str, given: int | Sequence[int], parts: int) -> list[int]:
    """A number for each part of the data, from one for all or one for each."""
    each = list(given) if isinstance(given, Sequence) else [given] * parts
    if len(each) != parts:
        raise ModelError(
            f"training.{name}: {len(each)} values for {parts} nodes; give one number, or one for each node"
        )
    for value in each:
        if value < 1:
            raise ModelError(f"training.{name}: {value} is not possible; at least 1 is needed")
    return each


class StudyOptimizer(NamedTuple):
    """A study's optimizer, with what a task with parts of its own must know."""

    on_rows: RowOptimizer
    lr: float  # the study's learning rate, of which those of a task's own optimizers are shares
    keeps_memory: bool = True  # whether its memory stays at the nodes, together with private parts of models

    @classmethod
    def of(cls, given: OptimizerSpec | RowOptimizer | None) -> StudyOptimizer:
        """An optimizer by itself; SGD if there is none."""
        if isinstance(given, RowOptimizer):
            return cls(given, OptimizerSpec().lr)
        spec = given or OptimizerSpec()
        return cls(row_optimizer(spec), spec.lr)


@dataclass(frozen=True)
class TrainerSettings:
    """How a study has its models trained and measured, whoever trains them.

    Args:
        batch_size: of every local training; or one for each part of the data.
        local_steps: of every local training; or one for each part.
        optimizer: as `row_optimizer` takes or makes it; SGD if left out.
        device: where rows are trained.
        evaluation: which training samples the training loss is measured on, and how much each node counts.
        arithmetic: how numbers are computed.
        buffers: whether running statistics travel with a model, or each batch has its own.
        validation: of each node, samples that no part has, to be measured on as test samples are.
        best_by: the measure by which the best model is kept; None: none is.
    """

    batch_size: int | Sequence[int] = 32
    local_steps: int | Sequence[int] = 5
    optimizer: OptimizerSpec | RowOptimizer | StudyOptimizer | None = None
    device: str | torch.device = "cpu"
    evaluation: EvaluationSamples | None = None
    arithmetic: Arithmetic | None = None
    buffers: Buffers = "travel"
    validation: Sequence[np.ndarray] | None = None
    best_by: str | None = None

    @property
    def for_study(self) -> StudyOptimizer:
        """The optimizer, with what a task with parts of its own must know."""
        return self.optimizer if isinstance(self.optimizer, StudyOptimizer) else StudyOptimizer.of(self.optimizer)


class TrainerKeywords(TypedDict, total=False):
    """Single settings of `TrainerSettings`, as keyword arguments."""

    batch_size: int | Sequence[int]
    local_steps: int | Sequence[int]
    optimizer: OptimizerSpec | RowOptimizer | StudyOptimizer | None
    device: str | torch.device
    evaluation: EvaluationSamples | None
    arithmetic: Arithmetic | None
    buffers: Buffers
    validation: Sequence[np.ndarray] | None
    best_by: str | None


class Trainer:
    """Trains and measures the rows of a study on one device."""

    def __init__(
        self, task: Task, settings: TrainerSettings | None = None, **keywords: Unpack[TrainerKeywords]
    ) -> None:
        """
        - `task`: its model, loss and samples.
        - `settings`, `keywords`: how it is trained and measured; single settings may be given by name.
        """
        given = replace(settings or TrainerSettings(), **keywords)
        if given.buffers not in BUFFERS:
            raise ModelError(f"training.buffers: {given.buffers!r} is unknown; allowed: {', '.join(BUFFERS)}")
        self.task, self.best_by = task, given.best_by
        self.device = torch.device(given.device)
        batches, _ = self.count_work(given)
        self.batch_of = (*batches, max(batches)) if len(set(batches)) > 1 else ()  # the last: of everybody's data
        self.arithmetic, study = given.arithmetic or Arithmetic(), given.for_study
        self.optimizer = study.on_rows
        # A copy: the task's own stays as and where it is, so that initial weights are the same whatever the device.
        self.template = copy_on(task.model, self.device)
        self.constants = keep_at_home(self.template)
        sampler = Sampler(task.parts, max(batches), self.device)
        self.data = TrainingData(task.inputs.to(self.device), task.targets.to(self.device), sampler, task.augment)
        loss = task.loss
        if self.data.is_read and not self.data.targets.is_floating_point():
            loss = OpaqueLoss(loss)  # some of the labels that nobody has seen may be ones to be ignored
        tried = some(self.data.inputs), some(self.data.targets)
        self.model = stack(self.template, loss, *tried, given.buffers == "travel")
        use(self.model, self.arithmetic, *tried)
        self.rows_at_once = self.model.rows_at_once
        if self.rows_at_once is None and self.activations > 0:
            self.rows_at_once = max(1, int(activation_allowance(self.device) / self.activations))
        self.private: PrivatePart | None = None
        if task.private:
            self.private = PrivatePart(task.private, self.template, self.model.layout, study.keeps_memory)
        if self.private is not None and self.averaging is not None:
            raise ModelError(
                "private: not with adapters that are averaged as products; take mixing: factors or freeze-a"
            )
        if task.optimizers:
            entries = self.model.layout.parameters
            parameters = [(own_name(self.template, entry.name), tuple(entry.shape)) for entry in entries]
            self.optimizer = optimizer_by_part(task.optimizers, self.optimizer, parameters, matches, study.lr)
        self.forms = self._forms(self.data)
        self.evaluator = Evaluator(
            task, self.model, self.data, given.evaluation or EvaluationSamples(), self.forms.chain
        )
        self.evaluator.validate_on(given.validation)

    def count_work(self, given: TrainerSettings) -> tuple[list[int], list[int]]:
        """Batch size and local steps of each part, and what follows for how long trainings take."""
        parts = len(self.task.parts)
        batches = _of_each_part("batch_size", given.batch_size, parts)
        steps = _of_each_part("local_steps", given.local_steps, parts)
        self.local_steps = round(sum(steps) / len(steps))
        self.steps_of = tuple(steps) if len(set(steps)) > 1 else ()
        each = [batch * count for batch, count in zip(batches, steps, strict=True)]
        self.work_of = tuple(len(each) * work / sum(each) for work in each) if len(set(each)) > 1 else ()
        return batches, steps

    def _forms(self, data: TrainingData) -> TrainingForms:
        stacked = StackedTraining(self.model, self.optimizer, data, self.local_steps)
        return possible_forms(stacked, self.arithmetic, self.device, self._rows_in_cache != 1)

    @cached_property
    def _forms_of(self) -> dict[int, TrainingForms]:
        """The forms of training by size of batch; at first those with the largest."""
        return {self.data.sampler.batch_size: self.forms}

    def forms_of(self, batch: int) -> TrainingForms:
        """The forms of training with batches of this size, made when they are first needed."""
        if batch not in self._forms_of:
            sampler = Sampler(self.task.parts, batch, self.device)
            data = TrainingData(self.data.inputs, self.data.targets, sampler, self.task.augment)
            self._forms_of[batch] = self._forms(data)
        return self._forms_of[batch]

    @property
    def width(self) -> int:
        """How many numbers a row has: parameters, then statistics; without what is private."""
        return self.model.layout.width if self.private is None else self.private.shared_width

    @property
    def parameters(self) -> int:
        """How many of a row's numbers are parameters."""
        return self.model.layout.parameter_width if self.private is None else self.private.shared_parameters

    @property
    def state_width(self) -> int:
        """How many numbers an optimizer's state has, or a node's, where parts of models are private."""
        memory = self.optimizer.state_width(self.model.layout.parameter_width)
        return memory if self.private is None else 1 + self.private.size + memory * self.private.keeps_memory

    @cached_property
    def averaging(self) -> ProductMixing | None:
        """How means of models are made, where that is more than a sum of their numbers."""
        return mixing_of(self.template, self.model.layout)

    @property
    def data_bytes(self) -> int:
        """How many bytes the samples take in memory."""
        return bytes_in_memory(self.data.inputs) + bytes_in_memory(self.data.targets)

    @cached_property
    def activations(self) -> int:
        """Bytes that one model's forward pass keeps; measured on a batch."""
        inputs, targets = self.data.inputs, self.data.targets
        batch = torch.arange(self.data.sampler.batch_size, device=self.device) % len(inputs)
        row = self.model.layout.row(self.template).to(self.device)
        return self.model.activation_bytes(row, inputs[batch], targets[batch])

    @property
    def _rows_in_cache(self) -> int | None:
        """How many models a CPU's caches hold at once; None on other devices, or where rows are trained one by one."""
        if self.device.type != "cpu" or isinstance(self.model, SequentialModel):
            return None
        return max(1, BYTES_IN_CACHE // max(1, self.activations))

    @property
    def wave_sizes(self) -> tuple[int, ...]:
        """Widths of waves that cost nothing extra; () if all are equal."""
        if self.forms.graphed is None:
            return ()
        return tuple(size for size in self.forms.graphed.sizes if size <= (self.rows_at_once or size))

    @property
    def best_width(self) -> int | None:
        """The width beyond which a wave is better trained in pieces; None if there is none."""
        if self.forms.by_row is not None:
            return 1
        return self._rows_in_cache if self.forms.chain is None else self.forms.chain.rows_at_once

    @property
    def samples(self) -> list[int]:
        """How many samples each part has."""
        sizes: list[int] = self.data.sampler.sizes.tolist()[:-1]
        return sizes

    @property
    def payload_bytes(self) -> int:
        """Bytes of one model on the wire, in float32."""
        return 4 * self.width

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the running statistics among them, which codecs leave as they are."""
        return 4 * (self.width - self.parameters)

    @property
    def state_bytes(self) -> int:
        """Bytes of one optimizer state on the wire, in float32."""
        return 4 * self.state_width

    def initial_row(self, seed: int) -> Tensor:
        """The initial model of a run, as a row."""
        row = self.model.layout.row(self.task.initial(seed)).to(self.device)
        return row if self.private is None else row[self.private.shared]

    def module(self, row: Tensor, private: Tensor | None = None) -> nn.Module:
        """A plain torch module with a row's weights, ready for use.

        private: a node's own numbers; None: those that all nodes began with, where some are private.
        """
        row = row.to(self.device)
        if self.private is not None:
            row = self.private.whole(row[None], private)[0]
        module = self.model.layout.module(self.template, row)
        for place, name in self.constants:
            module.get_submodule(place)._non_persistent_buffers_set.discard(name)
        if not self.model.with_buffers:
            self._measure_statistics(module)
        return copy.deepcopy(persons_module(module)).eval()  # of its own: a person may do with it whatever they like

    def _measure_statistics(self, module: nn.Module) -> None:
        """Sets running statistics that did not travel to the mean over batches of the training data."""
        still = {id(part) for part in still_parts(module).values()}
        norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        layers = [part for part in norms if id(part) not in still]
        kept = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
        if layers:
            with torch.no_grad():
                for x in pieces(only(self.data.inputs, self.evaluator.sample), self.model.samples_at_once):
                    to_training(module)(x)
        for layer, momentum in zip(layers, kept, strict=True):
            layer.momentum = momentum

    def train(self, given: TrainingRows) -> TrainedRows:
        """Make `local_steps` optimizer steps for every row, by the fastest form, in as many pieces as fit.

        Only a row alone is lent: what a wave gives is always memory of its own.
        """
        if self.private is not None:
            return self.private.train(given, self._train_whole)
        return self._train_whole(given)

    def _train_whole(self, given: TrainingRows) -> TrainedRows:
        """Trains rows that have everything."""
        if given.on_loan and len(given.rows) > 1:
            given = given._replace(on_loan=False)
        if not self.batch_of:
            return self._train(given, self.forms)
        sizes = [self.batch_of[part] for part in given.parts.tolist()]
        places = {size: [k for k, one in enumerate(sizes) if one == size] for size in sorted(set(sizes))}
        if len(places) == 1:
            return self._train(given, self.forms_of(sizes[0]))
        return self._train_by_size(given, places)

    def _train_by_size(self, given: TrainingRows, places: Mapping[int, list[int]]) -> TrainedRows:
        """Trains the rows of each size of batch together, and puts them back in their order."""
        rows, states = torch.empty_like(given.rows), None if given.state is None else torch.empty_like(given.state)
        for size, numbers in places.items():
            chosen = torch.tensor(numbers, device=given.rows.device)
            piece = given.mapped(itemgetter(chosen))
            new, state = self._train(piece._replace(on_loan=False), self.forms_of(size))
            rows[chosen] = new
            if states is not None and state is not None:
                states[chosen] = state
        return TrainedRows(rows, states)

    def _train(self, given: TrainingRows, forms: TrainingForms) -> TrainedRows:
        train, pieces = forms.fastest(given), list[TrainedRows]()
        with self.arithmetic.products(self.device), one_thread():
            while (start := sum(len(piece.rows) for piece in pieces)) < len(given.rows):
                most = self._at_once(len(given.rows))
                wanted = slice(start, start + most)
                piece = given if most >= len(given.rows) else given.mapped(itemgetter(wanted))
                self._train_piece(train, piece, pieces)
        if len(pieces) == 1:
            return pieces[0]
        states = [state for _, state in pieces if state is not None]
        return TrainedRows(torch.cat([new for new, _ in pieces]), torch.cat(states) if states else None)

    def _train_piece(self, train: TrainingForm, piece: TrainingRows, done: list[TrainedRows]) -> None:
        """Trains a piece, or, where it does not fit into memory, have smaller ones from now on."""
        try:
            done.append(train(piece))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self.rows_at_once = fewer_rows(len(piece.rows), self.task.name, self.device, error)

    def _at_once(self, rows: int) -> int:
        """How many of a wave to train at once: what fits, in pieces of a width that costs nothing extra, or even."""
        most = min(self.rows_at_once or rows, self.best_width or rows)
        if self.wave_sizes:
            return min(most, max(self.wave_sizes))
        return -(-rows // max(1, -(-rows // most)))

    def train_in_place(
        self,
        models: Tensor,
        columns: list[Tensor],
        corrections: Tensor | None = None,
        states: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> bool:
        """Trains rows of a matrix where they lie; False, with nothing done, where this is not possible.

        models: the matrix. columns: of a wave [W], numbers of the rows to start from and to write to, parts, keys and
        learning rates; no row is both. corrections: numbers of rows that are added to every gradient. states: the
        matrix of the optimizer's states, and the numbers of the rows to read and to write.
        """
        wide = len(columns[0]) > min(max(self.wave_sizes, default=0), self.rows_at_once or ANY)
        if self.forms.in_place is None or wide or self.batch_of or self.private is not None:
            return False
        try:
            with self.arithmetic.products(self.device):
                self.forms.in_place(models, columns, corrections, states)
        except RuntimeError as error:  # nothing that is read was written: the same can be done by copies
            if is_out_of_memory(error):
                self.rows_at_once = fewer_rows(len(columns[0]), self.task.name, self.device, error)
            else:
                self.forms.in_place = None
                say_that_none_works(error)
            return False
        return True

    def private_parts(self, states: Tensor) -> dict[str | int, dict[str, Tensor]]:
        """The private parts of all nodes by their names, each by the names of the person's own module; {} without any.

        states: of the nodes, in their order.
        """
        if self.private is None:
            return {}
        names: Sequence[str | int] = self.task.names or range(self.task.nodes)
        numbers = self.private.numbers(states.to(self.device)).cpu()
        return {name: self.private.by_name(own) for name, own in zip(names, numbers, strict=True)}

    def evaluate(self, rows: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Training loss and test accuracy of every row."""
        measured = self.measure(rows, states)
        return measured["train_loss"], measured["test_accuracy"]

    def measure(self, rows: Tensor, states: Tensor | None = None) -> dict[str, Tensor]:
        """Training loss and test accuracy of every row; with test samples also their loss and the task's metrics.

        states: of all nodes, where parts of models are private: every node's samples are measured with its own part.
        None: with the initial ones.
        """
        if self.private is None:
            return self.evaluator.all_of(rows)
        if states is None:
            return self.evaluator.all_of(self.private.whole(rows))
        numbers = self.private.numbers(states.to(rows.device))
        return self.evaluator.with_own([self.private.whole(rows, own) for own in numbers])

    def every_model_by_node(self, rows: Tensor) -> list[dict[str, Any]]:
        """Models on every node's own data, as `by_node` has them; a list with one number for each model.

        Of a node's samples an even choice is measured on, as many as its share of those of an evaluation.
        """
        return self.evaluator.every_model_by_node(rows.to(self.device))

    def by_node(self, row: Tensor, states: Tensor | None = None) -> list[dict[str, Any]]:
        """One model on every node's own data: its name or number, samples, loss, and what its own test samples say.

        states: of all nodes, where parts of models are private.
        """
        rows = row[None].to(self.device)
        if self.private is not None:
            own = None if states is None else self.private.numbers(states.to(self.device))
            rows = self.private.whole(rows.expand(self.task.nodes, -1), own)
        return self.evaluator.by_node(rows)
