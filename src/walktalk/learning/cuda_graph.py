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
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

# At most a quarter of a wave is padding.
SIZES = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
WARM_UPS = 3  # eager passes before a capture: libraries choose their kernels and allocate in them

Result = TypeVar("Result")


class Train(Protocol):
    """One wave of training, without a single wait for the device."""

    def __call__(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]: ...


@dataclass
class Captured:
    """A graph, the memory that it reads, and the memory that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: tuple[Tensor, Tensor | None]

    def replay(self, given: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        count = len(given[0])
        for static, fresh in zip(self.inputs, given, strict=True):
            fill(static, fresh)
        self.graph.replay()
        trained, state = self.outputs
        return trained[:count].clone(), None if state is None else state[:count].clone()


def fill(static: Tensor, fresh: Tensor) -> None:
    """Copy a wave into static memory; the first row again wherever the memory is longer."""
    count = len(fresh)
    static[:count].copy_(fresh)
    if count < len(static):
        static[count:].copy_(fresh[:1].expand_as(static[count:]))


class GraphedTraining:
    """Calls `train` by graphs; directly, and with one warning, where a capture fails."""

    def __init__(self, train: Train, sizes: tuple[int, ...] = SIZES) -> None:
        self.train = train
        self.sizes = sizes
        self.captured: dict[tuple[int, bool], Captured] = {}
        self.pool: Any = None  # torch's handle of the memory that all graphs share
        self.works = True

    def __call__(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        width = next((size for size in self.sizes if size >= len(rows)), None)
        if width is None or not self.works:
            return self.train(rows, parts, keys, lr, state)
        given = [rows, parts, keys, lr] if state is None else [rows, parts, keys, lr, state]
        kind = (width, state is not None)
        if kind not in self.captured:
            try:
                self.captured[kind] = self.capture(width, given)
            except torch.OutOfMemoryError:
                raise  # the caller halves the wave: a narrower graph may fit
            except RuntimeError as error:
                self.works = False
                say_that_none_works(error)
                return self.train(rows, parts, keys, lr, state)
        return self.captured[kind].replay(given)

    def capture(self, width: int, given: list[Tensor]) -> Captured:
        inputs = [t.new_empty((width, *t.shape[1:])) for t in given]
        for static, fresh in zip(inputs, given, strict=True):
            fill(static, fresh)
        state = inputs[4] if len(inputs) == 5 else None
        graph, outputs = recorded(lambda: self.train(inputs[0], inputs[1], inputs[2], inputs[3], state), self.pool)
        self.pool = self.pool or graph.pool()
        return Captured(graph, inputs, outputs)


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
    """Warms up beside the main stream, as CUDA asks for, then records; what the work returned is what a replay writes.

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
    """Torch's random numbers of this device think that the capture is still on, and would refuse to be drawn."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def say_that_none_works(error: RuntimeError) -> None:
    """After a capture that failed. The first error is the one that tells: the capture ends with another."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    why = " ".join(str(first).split("\n")[0].split())
    if "capturing" in why:
        why += "; does its forward, or its loss, look at numbers, as `if x.max() > 1` or `.item()` do?"
    warnings.warn(f"no CUDA graphs for this model, so it trains more slowly: {why}", stacklevel=3)
