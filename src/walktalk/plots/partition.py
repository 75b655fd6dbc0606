"""Who holds which data: a bubble per node and class, its area the number of samples (the paper's Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from walktalk.errors import DataError
from walktalk.learning import Task
from walktalk.plots.style import new_figure, styled

LARGEST = 150.0  # area of the largest bubble, in square points: it just fills its cell


def partition(
    counts: npt.ArrayLike | Task,
    classes: Sequence[str] | None = None,
    *,
    nodes: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Bubbles that say who holds what.

    Args:
        counts: A task, or a table of samples with a row per node and a column per class.
        classes: Their names; the task's, or numbers, unless given.
        nodes: The nodes' names; likewise.
        title: Above the drawing.
    """
    if isinstance(counts, Task):
        found, held = class_counts(counts)
        return partition(held, classes or [str(name) for name in found], nodes=nodes or counts.names, title=title)
    table = np.asarray(counts, dtype=float)
    if table.ndim != 2 or table.size == 0 or table.max() <= 0:
        raise DataError("a partition needs a table of samples, one row per node and one column per class")
    count, kinds = table.shape
    names = [str(k) for k in range(kinds)] if classes is None else [str(name) for name in classes]
    cell = 0.24 if count <= 50 else 12.0 / count
    with styled():
        figure = new_figure(max(3.4, cell * count + 1.6), max(2.0, 0.24 * kinds + 0.9))
        panel = figure.subplots()
        node, kind = np.nonzero(table)
        area = table[node, kind] / table.max() * LARGEST * (min(cell, 0.24) / 0.24) ** 2
        panel.scatter(node, kind, s=area, c="#0072B2", alpha=0.85, linewidths=0)
        panel.set(xlim=(-0.7, count - 0.3), ylim=(-0.7, kinds - 0.3), xlabel="Node", ylabel="Class")
        shown = _ticks(count)
        if nodes:
            panel.set_xticks(shown, [nodes[k] for k in shown], rotation=90)
        else:
            panel.set_xticks(shown)
        panel.set_yticks(range(kinds), names)
        panel.tick_params(length=0)
        panel.set_title(title or "", loc="left")
        _legend(panel, table.max())
    return figure


def class_counts(task: Task) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """A task's classes, and the samples of each: a row per node, a column per class."""
    if task.labels is None:
        raise DataError("the task has no classes, so there is no partition to draw")
    classes, codes = np.unique(np.asarray(task.labels), return_inverse=True)
    return classes, np.stack([np.bincount(codes[part], minlength=len(classes)) for part in task.parts])


def _ticks(nodes: int) -> list[int]:
    step = 1 if nodes <= 25 else 5 * max(1, round(nodes / 100))
    return list(range(0, nodes, step))


def _legend(panel: object, largest: float) -> None:
    """Three sizes of bubble, with the number of samples each stands for."""
    sizes = sorted({_rounded(largest * share) for share in (0.1, 0.4, 1.0)})
    handles = [
        panel.scatter([], [], s=size / largest * LARGEST, c="#0072B2", alpha=0.85, linewidths=0, label=f"{size:,.0f}")  # type: ignore[attr-defined]
        for size in sizes
    ]
    panel.legend(  # type: ignore[attr-defined]
        handles=handles,
        title="Samples",
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        labelspacing=0.9,
        title_fontsize=8.5,
    )


def _rounded(value: float) -> float:
    """One significant digit, but never more than there is."""
    step = 10.0 ** np.floor(np.log10(max(value, 1.0)))
    return float(max(1.0, np.floor(value / step) * step))
