"""Which forms of training are possible for a model, an optimizer and data, and which of them is the fastest."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from walktalk.learning import kernels
from walktalk.learning.arithmetic import Arithmetic, keep_freed_memory
from walktalk.learning.optimizers import Chosen, RowOptimizer, RowSGD, Spread, to_vector
from walktalk.learning.samples import Column
from walktalk.learning.stacked import (
    ChainModel,
    RowByRowLoss,
    SequentialModel,
    SingleRowModel,
    StackedModel,
    TracedModel,
    active_dropouts,
)
from walktalk.learning.stacked.model import Gradients
from walktalk.learning.training.chain import ChainTraining
from walktalk.learning.training.rows import (
    SameBitsTraining,
    StackedTraining,
    TrainedRows,
    TrainingData,
    TrainingForm,
    TrainingRows,
    step_is_made,
)

# -- A whole training as one CUDA graph, so that launching thousands of kernels does not starve a GPU -----------------
# A graph is captured once for each width and replayed on static memory. Waves are padded to a few widths, with copies
# of their first row, whose results are dropped; a wider wave comes in pieces. All graphs share one pool of memory,
# because only one runs at a time: what a replay returns is therefore copied out before the next one.

# At most a quarter of a wave is padding.
SIZES = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
WARM_UPS = 3  # eager passes before a capture: libraries choose their kernels and allocate in them

Result = TypeVar("Result")


@dataclass
class Captured:
    """A graph, the memory that it reads, and the memory that it writes."""

    graph: torch.cuda.CUDAGraph
    reads: TrainingRows
    writes: TrainedRows

    def replay(self, given: TrainingRows) -> TrainedRows:
        """Copies these rows in, trains them, and copies the result out."""
        count = len(given.rows)
        fill_all(self.reads, given)
        self.graph.replay()
        trained, state = self.writes
        return TrainedRows(trained[:count].clone(), None if state is None else state[:count].clone())


def fill_all(static: TrainingRows, given: TrainingRows) -> None:
    """Copy all tensors of a wave into static memory."""
    for memory, fresh in zip(static.tensors(), given.tensors(), strict=True):
        fill(memory, fresh)


def fill(static: Tensor, fresh: Tensor) -> None:
    """Copy a wave into static memory; the first row again wherever the memory is longer."""
    count = len(fresh)
    static[:count].copy_(fresh)
    if count < len(static):
        static[count:].copy_(fresh[:1].expand_as(static[count:]))


class GraphedTraining:
    """Trains by graphs; directly, and with one warning, where a capture fails."""

    def __init__(self, train: TrainingForm, sizes: tuple[int, ...] = SIZES) -> None:
        self.train = train
        self.sizes = sizes
        self.captured: dict[tuple[Any, ...], Captured] = {}  # by width, and what else tells trainings apart
        self.pool: Any = None  # torch's handle of the memory that all graphs share
        self.failed: set[Any] = set()  # kinds of extras with which there are none; None: without extras

    @property
    def works(self) -> bool:
        """Whether no capture has failed."""
        return not self.failed

    def __call__(self, given: TrainingRows) -> TrainedRows:
        width = next((size for size in self.sizes if size >= len(given.rows)), None)
        kind = None if given.extras is None else given.extras.kind
        if width is None or kind in self.failed:
            return self.train(given)
        key = width, given.state is not None, kind
        if key not in self.captured:
            try:
                self.captured[key] = self.capture(width, given)
            except torch.OutOfMemoryError:
                raise  # the caller halves the wave: a narrower graph may fit
            except RuntimeError as error:
                self.failed.add(kind)
                say_that_none_works(error)
                return self.train(given)
        return self.captured[key].replay(given)

    def capture(self, width: int, given: TrainingRows) -> Captured:
        """Record a training of that many rows like these."""
        reads = given.mapped(lambda tensor: tensor.new_empty((width, *tensor.shape[1:])))
        fill_all(reads, given)
        graph, writes = recorded(lambda: self.train(reads), self.pool)
        self.pool = self.pool or graph.pool()
        return Captured(graph, reads, writes)


class GraphedInPlace:
    """Graphs of a work that reads and writes rows of matrices by their numbers, and returns nothing.

    A graph knows a matrix by its place in memory, so a matrix that has moved gets graphs of its own, and the others are
    let go.
    """

    def __init__(self, sizes: tuple[int, ...] = SIZES) -> None:
        self.sizes = sizes
        self.captured: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self.where: tuple[int, ...] = ()  # the matrices' places in memory
        self.pool: Any = None

    def __call__(self, kind: Any, matrices: list[Tensor], given: list[Tensor], work: Callable[..., None]) -> None:
        """`work(*given)` by a graph, a wave padded with its first row.

        kind: what else tells graphs apart. matrices: what the work reads and writes. given: a column [W] each.
        """
        where = tuple(matrix.data_ptr() for matrix in matrices)
        if where != self.where:
            self.captured.clear()
            self.where, self.pool = where, None  # the memory of all graphs goes with the last of them
        width = next(size for size in self.sizes if size >= len(given[0]))
        key = kind, width
        if key not in self.captured:
            inputs = [t.new_empty((width, *t.shape[1:])) for t in given]
            for static, fresh in zip(inputs, given, strict=True):
                fill(static, fresh)
            # Warm-ups write what the replay writes again: no row of a wave is both read and written.
            graph, _ = recorded(lambda: work(*inputs), self.pool)
            self.pool = self.pool or graph.pool()
            self.captured[key] = graph, inputs
        graph, inputs = self.captured[key]
        for static, fresh in zip(inputs, given, strict=True):
            fill(static, fresh)
        graph.replay()


def recorded(work: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Records work as a graph: warms up beside the main stream, as CUDA asks for, then records.

    What the work returned is what a replay writes.

    All that is changed in place is changed by the warm-ups, too.
    """
    before, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    beside.wait_stream(before)
    with torch.cuda.stream(beside):
        for _ in range(WARM_UPS):
            work()
    before.wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            result = work()
    except BaseException:
        torch.cuda.set_stream(before)  # a capture that cannot be ended leaves its own stream in place
        if torch.cuda.is_available():
            with suppress(AttributeError, RuntimeError):
                draw_again()
        raise
    return graph, result


def draw_again() -> None:
    """Lets random numbers be drawn again: torch's generator takes the capture to be still on, and would refuse."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def say_that_none_works(error: RuntimeError) -> None:
    """Warn after a capture that failed, with the first error: the capture itself ends with another."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    why = " ".join(str(first).split("\n")[0].split())
    if "capturing" in why:
        why += "; does its forward, or its loss, look at numbers, as `if x.max() > 1` or `.item()` do?"
    warnings.warn(f"no CUDA graphs for this model, so it trains more slowly: {why}", stacklevel=3)


# Rows of a matrix on a GPU, trained where they lie: of large models, copies would take as long as a step.

LARGE_ROW = 2**20  # numbers from which on it pays


class InPlaceTraining:
    """Gathers the rows of a wave, trains them, and writes each result into another row, all in one graph."""

    def __init__(self, stacked: StackedTraining, optimizer: RowSGD) -> None:
        self.stacked, self.optimizer = stacked, optimizer
        self.graphed = GraphedInPlace()

    def __call__(
        self,
        models: Tensor,
        columns: list[Tensor],
        corrections: Tensor | None,
        states: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        """As `Trainer.train_in_place`; fails as torch does, with no row changed that is read."""
        added = [] if corrections is None else [corrections]
        kept, moved = ([], []) if states is None else ([states[0]], [*states[1:]])

        def work(*given: Tensor) -> None:
            pair = None if states is None else (Chosen(states[0], given[-2]), Chosen(states[0], given[-1]))
            self.train(models, given[:5], given[5] if added else None, pair)

        kind = bool(added), states is not None
        self.graphed(kind, [models, *kept], [*columns, *added, *moved], work)

    def train(
        self,
        models: Tensor,
        columns: tuple[Tensor, ...],
        corrections: Tensor | None,
        states: tuple[Chosen, Chosen] | None,
    ) -> None:
        """Trains one wave. Nothing in it waits for a GPU, so that it can be captured as a graph."""
        sources, outs, parts, keys, lr = columns
        into, spread = Chosen(models, outs), self.stacked.spread(len(sources))
        width, local_steps = self.stacked.model.layout.parameter_width, self.stacked.local_steps
        weights, buffers = to_vector(Chosen(models, sources), spread), models[:, width:].index_select(0, sources)
        added = None if corrections is None else to_vector(Chosen(models, corrections), spread)
        if local_steps == 1 and (states is not None or not self.optimizer.momentum):
            step = partial(self.optimizer.step_between, lr=lr, spread=spread, into=into, states=states)
            self.stacked.steps(weights, buffers, step, parts, keys, 1, added)
        else:
            optimizer = self.optimizer.begin(lr, None if states is None else states[0], spread)
            self.stacked.steps(weights, buffers, optimizer.step, parts, keys, local_steps, added)
            into.write(weights, spread)
            if states is not None:
                optimizer.write(states[1])
        if models.shape[1] > width:
            models[:, width:].index_copy_(0, outs, buffers)


# -- Training of large models, one row at a time, in memory that is laid out once and used for every training ---------
# On a CPU a row of a hundred megabytes that is got anew, filled and given back costs a page fault for every four
# kilobytes. With Adam that was ten such rows a training: as long as forward and backward pass together. On a GPU what
# counts are the passes over that memory, and thousands of small kernels, so all steps are one CUDA graph.


class RowTraining:
    """Trains single rows of a `SequentialModel`; where `graphs` says so, by a CUDA graph."""

    def __init__(
        self,
        model: SequentialModel,
        optimizer: RowOptimizer,
        data: TrainingData,
        local_steps: int,
        graphs: bool = False,
    ) -> None:
        self.model, self.optimizer, self.data, self.local_steps = model, optimizer, data, local_steps
        self.graphs = graphs
        self.graph: torch.cuda.CUDAGraph | None = None
        self.gradients: Gradients | None = None
        self.busy = threading.Lock()

    def __call__(self, given: TrainingRows) -> TrainedRows:
        """Trains one row; on loan, what is returned is this memory itself, and good until the next training."""
        with self.busy:
            if self.gradients is None:
                self.gradients = self.lay_out()
            if self.graphs and self.graph is None:
                self.fill(given)
                self.capture(self.gradients)
            self.fill(given)
            if self.graphs and self.graph is not None:
                self.graph.replay()
            else:
                self.train(self.gradients)
            after = None if given.state is None else self.state
            if given.on_loan:
                return TrainedRows(self.row, after)
            return TrainedRows(self.row.clone(), None if after is None else after.clone())

    def lay_out(self) -> Gradients:
        """Lays out the memory: a row, its gradients, its optimizer's state.

        A single row is its own vector of parameters.
        """
        layout, device = self.model.layout, self.data.inputs.device
        if device.type == "cpu":
            keep_freed_memory()
        length, parameters = self.lengths(device)
        memory = torch.zeros(1, length, device=device)
        self.row, self.weights, buffers = memory[:, : layout.width], memory[0, :parameters], memory[:, parameters:]
        self.states = torch.zeros(1, self.optimizer.state_width(parameters), device=device)
        self.state = self.states[:, : self.optimizer.state_width(layout.parameter_width)]
        self.part, self.key = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.rate: float | Tensor = torch.zeros(1, device=device)
        return self.model.wave(self.weights, buffers, self.key)

    def lengths(self, device: torch.device) -> tuple[int, int]:
        """Numbers of a row, and of its parameters; with zeros behind them up to a whole line where SGD may go on into
        them, which else takes the rest by itself (`RowSGD.step_alone`)."""
        layout = self.model.layout
        if device.type != "cpu" or not isinstance(self.optimizer, RowSGD) or layout.width > layout.parameter_width:
            return layout.width, layout.parameter_width
        whole = Spread(1, (layout.width,)).length
        return whole, whole

    def fill(self, given: TrainingRows) -> None:
        """Copy a row, and what its training needs to know, into this memory."""
        self.row.copy_(given.rows)
        self.part.copy_(given.parts)
        self.key.copy_(given.keys)
        self.state.zero_() if given.state is None else self.state.copy_(given.state)
        if isinstance(self.rate, Tensor) and self.rate.is_cuda:
            self.rate.copy_(given.lr)
        else:
            self.rate = float(given.lr[0])

    def train(self, gradients: Gradients) -> None:
        """Makes all steps, in place. Nothing in it waits for a GPU, so that it can be captured."""
        drawn = self.data.sampler.batches(self.part, self.key, self.local_steps)
        for step in range(self.local_steps):
            found = gradients(*self.data.batch(drawn, self.key, step), step)
            with torch.no_grad():
                self.optimizer.step_alone(self.weights, found, self.states[0], self.rate)
            step_is_made()

    def capture(self, gradients: Gradients) -> None:
        try:
            self.graph, _ = recorded(lambda: self.train(gradients))
            torch.cuda.empty_cache()  # what the warm-up took: gigabytes that no later training asks for
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.graphs = False
            say_that_none_works(error)


# -- Which forms of training are possible for a model, an optimizer and data, and which of them is the fastest --------


@dataclass
class TrainingForms:
    """The forms of training that are possible here; None for one that is not."""

    stacked: StackedTraining  # any wave
    same_bits: SameBitsTraining | None = None  # the same, where a row alone may have other bits
    graphed: GraphedTraining | None = None  # whole trainings as CUDA graphs
    chain: ChainTraining | None = None  # small perceptrons on a CPU
    by_row: RowTraining | None = None  # one row after the other, in memory that is used again
    in_place: InPlaceTraining | None = None  # rows of a matrix on a GPU where they lie

    def fastest(self, given: TrainingRows) -> TrainingForm:
        """The fastest form that can do what these rows ask for."""
        if given.extras is not None:
            return self.graphed or self.same_bits or self.stacked
        return self.graphed or self.chain or self.by_row or self.same_bits or self.stacked


def possible_forms(
    stacked: StackedTraining, arithmetic: Arithmetic, device: torch.device, has_waves: bool
) -> TrainingForms:
    """All forms that are possible for what `stacked` trains.

    Args:
        stacked: the form that always is.
        arithmetic: how numbers are computed.
        device: where the rows are.
        has_waves: whether more rows than one are ever trained at once.
    """
    model, optimizer, data, steps = stacked.model, stacked.optimizer, stacked.data, stacked.local_steps
    on_cpu, graphs = device.type == "cpu", arithmetic.uses_graphs(device)
    if isinstance(model, SequentialModel):
        graphs = graphs and not model.draws and not waits(model, optimizer, data)
        return TrainingForms(stacked, by_row=RowTraining(model, optimizer, data, steps, graphs))
    if on_cpu and isinstance(model, ChainModel) and fits_chain(data, arithmetic):
        return TrainingForms(stacked, chain=ChainTraining(model, optimizer, data, steps))
    single = single_row_form(stacked) if on_cpu else None
    # What is read batch by batch is not read to try something out.
    forms = TrainingForms(stacked, SameBitsTraining(stacked, single, on_cpu and has_waves and not data.is_read))
    if graphs and not waits(model, optimizer, data):
        forms.graphed = GraphedTraining(stacked)
        if model.layout.parameter_width >= LARGE_ROW and kernels.is_possible() and isinstance(optimizer, RowSGD):
            forms.in_place = InPlaceTraining(stacked, optimizer)
    return forms


def waits(model: StackedModel, optimizer: RowOptimizer, data: TrainingData) -> bool:
    """Whether a training waits for the device, for all that is known."""
    return data.is_read or optimizer.waits or isinstance(model.loss, RowByRowLoss)


def fits_chain(data: TrainingData, arithmetic: Arithmetic) -> bool:
    """Whether a chain of layers may be trained by `ChainTraining`: in 32 bits, on plain samples in memory."""
    in_memory = not isinstance(data.inputs, Column) and not isinstance(data.targets, Column)
    return in_memory and data.augment is None and arithmetic.precision != "bf16" and data.inputs.dim() >= 2


def single_row_form(stacked: StackedTraining) -> RowTraining | None:
    """On a CPU, what trains a wave of one: torch's own layers have less to do than stacked ones.

    Not in transformers, where ours are faster than torch's even for one model, and not where something is dropped
    inside of another layer: a row has the same masks in every wave.
    """
    model = stacked.model
    if type(model) is not TracedModel or model.traced.attends:
        return None
    if any(type(part) is not nn.Dropout for part, _ in active_dropouts(model.module)):
        return None
    one = SingleRowModel(model.module, model.loss, model.with_buffers)
    one.arithmetic = model.arithmetic
    return RowTraining(one, stacked.optimizer, stacked.data, stacked.local_steps)
