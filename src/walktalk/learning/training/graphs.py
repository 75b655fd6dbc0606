"""A whole training as one CUDA graph: some thousand kernels are launched as one, so small models do not starve a GPU.

A graph is captured once for each width and replayed on static memory. Waves are padded to a few widths, with copies of
their first row, whose results are dropped; a wave wider than the widest comes in pieces. All graphs share one pool of
memory, because only one runs at a time: what a replay returns is therefore copied out before the next one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from walktalk.learning.optimizers import Chosen, RowSGD, to_vector
from walktalk.learning.training.rows import StackedTraining, TrainedRows, TrainingForm, TrainingRows

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
