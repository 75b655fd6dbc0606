"""Local training of many rows at once: what the executor calls; how they are measured is in `measuring`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.errors import ModelError
from walktalk.learning.adapters import mixing_of
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.chain_training import ChainTraining
from walktalk.learning.cuda_graph import GraphedTraining, Train, say_that_none_works
from walktalk.learning.extras import Beside, Extras, taken_apart
from walktalk.learning.frozen import copy_on, keep_at_home, still_parts, to_training
from walktalk.learning.given import inner
from walktalk.learning.in_place_training import LARGE_ROW, InPlaceTraining
from walktalk.learning.measuring import Looked, Measuring
from walktalk.learning.memory import activation_bytes, fewer_rows, is_out_of_memory, rows_that_fit
from walktalk.learning.optimizers import (
    Clipped,
    OptimizerSpec,
    RowSGD,
    RowTorch,
    Spread,
    row_optimizer,
    to_rows,
    to_vector,
)
from walktalk.learning.row_training import RowTraining
from walktalk.learning.samples import Column, bytes_in_memory, chosen, only, pieces, some
from walktalk.learning.sampling import Sampler
from walktalk.learning.stacked import (
    ChainModel,
    EachByItself,
    LoneModel,
    RowByRow,
    SequentialModel,
    TracedModel,
    active_dropouts,
    fused,
    one_thread,
    stack,
    use,
)
from walktalk.learning.task import Task

NUMBERS_TRIED = 2048  # of models that are trained alone and in a wave, to see whether that is the same
BYTES_IN_CACHE = 2**24  # of what a wave's forward pass keeps on a CPU
ANY = 2**31

Buffers: TypeAlias = Literal["travel", "batch"]
BUFFERS: tuple[Buffers, ...] = ("travel", "batch")


class Trainer:
    """Trains and measures the rows of a study on one device."""

    def __init__(
        self,
        task: Task,
        *,
        batch_size: int = 32,
        local_steps: int = 5,
        optimizer: OptimizerSpec | None = None,
        device: str | torch.device = "cpu",
        evaluation_samples: int | None = None,
        evaluation_nodes: Sequence[int] | None = None,
        arithmetic: Arithmetic | None = None,
        buffers: Buffers = "travel",
        clip_norm: float | None = None,
    ) -> None:
        if buffers not in BUFFERS:
            raise ModelError(f"training.buffers: {buffers!r} is unknown; allowed: {', '.join(BUFFERS)}")
        for name, value in (("batch_size", batch_size), ("local_steps", local_steps)):
            if value < 1:
                raise ModelError(f"training.{name}: {value} is not possible; at least 1 is needed")
        self.task = task
        self.device = torch.device(device)
        self.local_steps = local_steps
        plain = row_optimizer(optimizer or OptimizerSpec())
        self.optimizer = plain if clip_norm is None else Clipped(plain, clip_norm)
        # A copy: the task's own stays as and where it is, so that initial weights are the same whatever the device.
        self.template = copy_on(task.model, self.device)
        self.constants = keep_at_home(self.template)
        self.inputs, self.targets = task.inputs.to(self.device), task.targets.to(self.device)
        self.arithmetic = arithmetic or Arithmetic()
        loss = task.loss
        if self.is_read and not self.targets.is_floating_point():
            loss = EachByItself(loss)  # some of the labels that nobody has seen may be ones to be ignored
        tried = some(self.inputs), some(self.targets)
        self.model = stack(self.template, loss, *tried, buffers == "travel")
        use(self.model, self.arithmetic, *tried)
        layout = self.model.layout
        self.averaging = mixing_of(self.template, layout)
        self.width = layout.width
        self.parameters = layout.parameter_width
        self.state_width = self.optimizer.state_width(self.parameters)
        self.sampler = Sampler(task.parts, batch_size, self.device)
        self.chain = self._chain()
        looked_at = Looked(evaluation_samples, evaluation_nodes)
        self.measuring = Measuring(task, self.model, (self.inputs, self.targets), self.sampler, looked_at, self.chain)
        self.rows_at_once = self._rows_at_once(batch_size)
        self.graphed = self._graphed()
        self.with_extras: dict[tuple[int, bool, bool, bool], Train] = {}  # by `Extras.kind`, made when first asked for
        self.in_place = self._in_place()
        self.alone = self._alone()
        self.single = self._single()

    def _rows_at_once(self, batch_size: int) -> int | None:
        """The widest wave that fits into memory; a wider one is trained in pieces."""
        return rows_that_fit(self.model, *self._example(batch_size))

    @property
    def is_read(self) -> bool:
        """Whether samples are read batch by batch: then a training waits for them, and cannot be one CUDA graph."""
        return isinstance(self.inputs, Column)

    @property
    def data_bytes(self) -> int:
        """What the samples take in memory."""
        return bytes_in_memory(self.inputs) + bytes_in_memory(self.targets)

    @cached_property
    def activations(self) -> int:
        """Bytes that one model's forward pass keeps."""
        return activation_bytes(self.model, *self._example(self.sampler.batch_size))

    def _example(self, batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """A model and a batch."""
        batch = torch.arange(batch_size, device=self.device) % len(self.inputs)
        return self.model.layout.row(self.template).to(self.device), self.inputs[batch], self.targets[batch]

    def _graphed(self) -> GraphedTraining | None:
        """Trainings as CUDA graphs, where nothing in them waits for the device."""
        if isinstance(self.model, SequentialModel) or self._waits():
            return None
        return GraphedTraining(self._train) if self.arithmetic.uses_graphs(self.device) else None

    def _in_place(self) -> InPlaceTraining | None:
        """The way of large rows on a GPU."""
        large = self.graphed is not None and self.parameters >= LARGE_ROW and fused.is_possible()
        if not large or not isinstance(self.optimizer, RowSGD):
            return None
        return InPlaceTraining(self.optimizer, self.parameters, self.local_steps, self._spread, self._steps)

    def _waits(self) -> bool:
        """Whether a training waits for the device, for all that is known."""
        optimizer = self.optimizer.inner if isinstance(self.optimizer, Clipped) else self.optimizer
        return self.is_read or isinstance(optimizer, RowTorch) or isinstance(self.model.loss, RowByRow)

    def _chain(self) -> ChainTraining | None:
        """The fast way for small perceptrons on a CPU."""
        if self.device.type != "cpu" or not isinstance(self.model, ChainModel) or self.task.augment is not None:
            return None
        if self.arithmetic.precision == "bf16" or self.inputs.dim() < 2:
            return None
        if isinstance(self.inputs, Column) or isinstance(self.targets, Column):
            return None
        return ChainTraining(self.model, self.optimizer, self.sampler, (self.inputs, self.targets), self.local_steps)

    def _alone(self) -> RowTraining | None:
        """The way of large models; as a CUDA graph where nothing in it waits for the device."""
        if not isinstance(self.model, SequentialModel):
            return None
        data = (self.inputs, self.targets)
        graphs = self.arithmetic.uses_graphs(self.device) and not self.model.draws and not self._waits()
        return RowTraining(self.model, self.optimizer, self.sampler, data, self.local_steps, self.task.augment, graphs)

    def _single(self) -> RowTraining | None:
        """On a CPU, what trains a wave of one: torch's own layers have less to do than stacked ones.

        Not in transformers, where ours are faster than torch's even for one model, and not where something is dropped
        inside of another layer: a row has the same masks in every wave.
        """
        if self.device.type != "cpu" or type(self.model) is not TracedModel or self.model.traced.attends:
            return None
        if any(type(part) is not nn.Dropout for part, _ in active_dropouts(self.template)):
            return None
        one = LoneModel(self.template, self.model.loss, self.model.with_buffers)
        one.arithmetic = self.arithmetic
        data = self.inputs, self.targets
        return RowTraining(one, self.optimizer, self.sampler, data, self.local_steps, self.task.augment)

    @property
    def wave_sizes(self) -> tuple[int, ...]:
        """Widths that cost nothing extra; () if all are equal."""
        if self.graphed is None:
            return ()
        return tuple(size for size in self.graphed.sizes if size <= (self.rows_at_once or size))

    @property
    def best_width(self) -> int | None:
        """A wider wave is better trained in pieces; None if width is all that counts."""
        if self.alone is not None:
            return 1
        if self.chain is not None:
            return self.chain.rows_at_once
        return None if self.device.type != "cpu" else max(1, BYTES_IN_CACHE // max(1, self.activations))

    @property
    def samples(self) -> list[int]:
        """How many samples each part has."""
        sizes: list[int] = self.sampler.sizes.tolist()[:-1]
        return sizes

    @property
    def payload_bytes(self) -> int:
        """Bytes of one model on the wire, in float32."""
        return 4 * self.width

    @property
    def statistics_bytes(self) -> int:
        """Of those the running statistics', which codecs leave as they are."""
        return 4 * (self.width - self.parameters)

    @property
    def state_bytes(self) -> int:
        """Bytes of one optimizer state on the wire, in float32."""
        return 4 * self.state_width

    def initial_row(self, seed: int) -> Tensor:
        """The initial model of a run."""
        return self.model.layout.row(self.task.initial(seed)).to(self.device)

    def module(self, row: Tensor) -> nn.Module:
        """A plain torch module with a row's weights, ready for use."""
        module = self.model.layout.module(self.template, row.to(self.device))
        for place, name in self.constants:
            module.get_submodule(place)._non_persistent_buffers_set.discard(name)
        if not self.model.with_buffers:
            self._measure_statistics(module)
        return copy.deepcopy(inner(module)).eval()  # of its own: a person may do with it whatever they like

    def _measure_statistics(self, module: nn.Module) -> None:
        """Running statistics that did not travel, as the mean over batches of the training data."""
        still = {id(part) for part in still_parts(module).values()}
        norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        layers = [part for part in norms if id(part) not in still]
        kept = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
        if layers:
            with torch.no_grad():
                for x in pieces(only(self.inputs, self.measuring.sample), self.model.samples_at_once):
                    to_training(module)(x)
        for layer, momentum in zip(layers, kept, strict=True):
            layer.momentum = momentum

    def train(
        self,
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None = None,
        extras: Extras | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """`local_steps` optimizer steps for every row; without a state, each starts from a fresh one."""
        if extras is not None:
            return self._train_with_extras(rows, parts, keys, lr, state, extras)
        return self._train_in_pieces(rows, parts, keys, lr, state, self._plainly(on_loan=False))

    def train_on_loan(
        self,
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None = None,
        extras: Extras | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The same for who is done with the result before the next training, which may overwrite it."""
        if extras is not None:
            return self._train_with_extras(rows, parts, keys, lr, state, extras)
        return self._train_in_pieces(rows, parts, keys, lr, state, self._plainly(on_loan=len(rows) == 1))

    def train_in_place(
        self,
        models: Tensor,
        columns: list[Tensor],
        corrections: Tensor | None = None,
        states: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> bool:
        """Train rows of a matrix where they lie; False, with nothing done, where this is not possible.

        models: the matrix. columns: of a wave [W], numbers of the rows to start from and to write to, parts, keys and
        learning rates; no row is both. corrections: numbers of rows that are added to every gradient. states: the
        matrix of the optimizer's states, and the numbers of the rows to read and to write.
        """
        wide = len(columns[0]) > min(max(self.wave_sizes, default=0), self.rows_at_once or ANY)
        if self.in_place is None or wide:
            return False
        try:
            with self.arithmetic.products(self.device):
                self.in_place(models, columns, corrections, states)
        except RuntimeError as error:  # nothing that is read was written: the same can be done by copies
            if is_out_of_memory(error):
                self.rows_at_once = fewer_rows(len(columns[0]), self.task.name, self.device, error)
            else:
                self.in_place = None
                say_that_none_works(error)
            return False
        return True

    def _plainly(self, on_loan: bool) -> Train:
        """The fastest way for a training as the study describes it."""
        alone = None if self.alone is None else partial(self.alone, on_loan=on_loan)
        return self.graphed or self.chain or alone or self._in_a_wave

    def _in_a_wave(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Stacked layers; a row alone by torch's own, where that is faster and the same."""
        if len(rows) > 1:
            return self._train(rows, parts, keys, lr, state)
        if self.single is not None and self.lone_way == "single":
            return self.single(rows, parts, keys, lr, state)
        return self._lonely(self._train, rows, parts, keys, lr, state)

    def _lonely(
        self, train: Train, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """One row, which has other bits alone than in a wave in some models: then it is computed twice."""
        if self.lone_way != "twin":
            return train(rows, parts, keys, lr, state)
        rows, parts, keys, lr = (tensor.expand(2, *tensor.shape[1:]) for tensor in (rows, parts, keys, lr))
        trained, after = train(rows, parts, keys, lr, None if state is None else state.expand(2, -1))
        return trained[:1], None if after is None else after[:1]

    @cached_property
    def lone_way(self) -> Literal["single", "plain", "twin"]:
        """How a row alone is trained to have the bits of a wave; tried when first needed, with the threads of the run.

        How wide a wave is depends on how a run is cut, and that on the clock: nothing of it may show in the records.
        """
        if self.best_width == 1:  # there is no other wave
            return "plain" if self.single is None else "single"
        if self.device.type != "cpu" or self.is_read:  # what is read batch by batch is not read to try something out
            return "plain" if self.single is None else "single"
        row = self.model.layout.row(self.template).to(self.device)
        count = max(4, min(64, NUMBERS_TRIED // len(row)))  # few numbers may agree by luck
        noise = torch.rand(count, len(row), generator=torch.Generator().manual_seed(0)) - 0.5
        rows, parts, keys = row + noise / 16, torch.zeros(count, dtype=torch.int64), torch.arange(count)
        rates = torch.full((count,), 0.01)
        wave, _ = self._train(rows, parts, keys, rates, None)
        ways: dict[Literal["single", "plain"], Train | None] = {"single": self.single, "plain": self._train}
        for name, train in ways.items():
            if train is not None:
                each = [train(rows[k : k + 1], parts[:1], keys[k : k + 1], rates[:1], None)[0] for k in range(count)]
                if torch.equal(wave, torch.cat(each)):
                    return name
        return "twin"

    def _train_with_extras(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None, extras: Extras
    ) -> tuple[Tensor, Tensor | None]:
        """The way of all others: tensors that go along with the rows stand behind them, so that graphs know them."""
        if extras.kind not in self.with_extras:
            eager = partial(self._train_apart, extras.kind)
            self.with_extras[extras.kind] = eager if self.graphed is None else GraphedTraining(eager)
        train = self.with_extras[extras.kind]
        return self._train_in_pieces(extras.beside(rows), parts, keys, lr, state, train)

    def _train_apart(
        self,
        kind: tuple[int, bool, bool, bool],
        rows: Tensor,
        parts: Tensor,
        keys: Tensor,
        lr: Tensor,
        state: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        def train(
            rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
        ) -> tuple[Tensor, Tensor | None]:
            models, extras = taken_apart(kind, rows, self.width)
            return self._train(models, parts, keys, lr, state, extras)

        if len(rows) > 1 or self.chain is not None or self.alone is not None:
            return train(rows, parts, keys, lr, state)
        return self._lonely(train, rows, parts, keys, lr, state)

    def _train_in_pieces(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None, train: Train
    ) -> tuple[Tensor, Tensor | None]:
        pieces: list[tuple[Tensor, Tensor | None]] = []
        with self.arithmetic.products(self.device), one_thread():
            while (start := sum(len(new) for new, _ in pieces)) < len(rows):
                given, most = (rows, parts, keys, lr, state), self._at_once(len(rows))
                if most < len(rows):
                    piece = slice(start, start + most)
                    given = rows[piece], parts[piece], keys[piece], lr[piece], None if state is None else state[piece]
                try:
                    pieces.append(train(*given))
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    self.rows_at_once = fewer_rows(len(given[0]), self.task.name, self.device, error)
        if len(pieces) == 1:
            return pieces[0]
        states = [state for _, state in pieces if state is not None]
        return torch.cat([new for new, _ in pieces]), torch.cat(states) if states else None

    def _at_once(self, rows: int) -> int:
        """How many of a wave to train at once: what fits, in pieces of a width that costs nothing extra, or even."""
        most = min(self.rows_at_once or rows, self.best_width or rows)
        if self.wave_sizes:
            return min(most, max(self.wave_sizes))
        return -(-rows // max(1, -(-rows // most)))

    def _train(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None, extras: Extras | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One wave. Nothing in it waits for a GPU, so that it can be captured as a graph."""
        width, spread = self.parameters, self._spread(len(rows))
        weights, buffers = to_vector(rows[:, :width], spread), rows[:, width:].clone()
        optimizer = self.optimizer.begin(lr, state, spread)
        steps = self.local_steps if extras is None else extras.steps
        beside = None if extras is None else Beside(extras, spread, width, self.device)
        self._steps(weights, buffers, optimizer.step, parts, keys, steps, beside)
        trained = to_rows(weights if beside is None or not beside.gradient else beside.total / steps, spread)
        if self.width > width:
            trained = torch.cat((trained, buffers), dim=1)
        return trained, None if state is None else optimizer.state()

    def _spread(self, rows: int) -> Spread:
        return Spread(rows, tuple(e.end - e.start for e in self.model.layout.parameters))

    def _steps(
        self,
        weights: Tensor,
        buffers: Tensor,
        make_step: Callable[[Tensor, Tensor], None],
        parts: Tensor,
        keys: Tensor,
        steps: int,
        beside: Beside | Tensor | None,
    ) -> None:
        """The steps themselves, on weights as a vector and buffers, both changed in place.

        make_step: the optimizer's, of weights and gradients. beside: what is added to gradients: a vector, or all that
        `Extras` may ask for.
        """
        gradients = self.model.wave(weights, buffers, keys)
        batches = self.sampler.batches(parts, keys, steps)
        for step in range(steps):
            inputs, targets = (chosen(each, batches[step], keys, step) for each in (self.inputs, self.targets))
            if self.task.augment is not None:
                inputs = self.task.augment(inputs, keys, step)
            found = gradients(inputs, targets, step)
            if len(found) < len(weights):  # from a model that knows nothing of the zeros at the end
                found = functional.pad(found, (0, len(weights) - len(found)))
            with torch.no_grad():
                if isinstance(beside, Tensor):
                    found = found.add_(beside)
                elif beside is not None:
                    found = beside.corrected(found, weights)
                if isinstance(beside, Tensor) or beside is None or not beside.gradient:
                    make_step(weights, found)

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Training loss and test accuracy of every row."""
        measured = self.measure(rows)
        return measured["train_loss"], measured["test_accuracy"]

    def measure(self, rows: Tensor) -> dict[str, Tensor]:
        """Of every row: training loss and test accuracy; with test samples also their loss and the task's metrics."""
        return self.measuring.all_of(rows)

    def by_node(self, row: Tensor) -> list[dict[str, Any]]:
        """One model on every node's own data: its name or number, samples, loss, and what its own test samples say."""
        return self.measuring.by_node(row)
