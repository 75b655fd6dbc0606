"""A study's figures: reads what they need from its folder, has `figures` draw them, and writes the files there."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from walktalk.core.errors import StudyError, UserError
from walktalk.records import read_history, read_trace
from walktalk.report import figures as plots
from walktalk.report.study import Study, open_study

FORMATS = ("png", "svg", "pdf")  # for a page, for the web, for print


class TimelineWindow(NamedTuple):
    """The run and the stretch of time that a time line shows."""

    algorithm: str | None = None  # a label; None: the first
    repetition: int = 0
    start: float = 0.0  # seconds
    end: float | None = None  # None: a few iterations


def draw(
    folder: str | PathLike[str], kind: str, x: str = "iteration", window: TimelineWindow | None = None
) -> list[Path]:
    """Draw one figure (curves, timeline, network, partition, failures) into the study's folder; the files written."""
    study = open_study(folder)
    if kind == "curves":
        return draw_curves(study, x)
    if kind == "timeline":
        return draw_timeline(study, window or TimelineWindow())
    drawings = {"network": draw_network, "failures": draw_failures, "partition": draw_partition}
    return drawings[kind](study)


def draw_all(study: Study) -> None:
    """Draw every figure that this study can have."""
    for axis in plots.AXES:
        draw_curves(study, axis)
    drawings: tuple[Callable[[Study], list[Path]], ...] = (draw_failures, draw_network, draw_partition, _draw_telling)
    for drawing in drawings:
        try:
            drawing(study)
        except UserError:  # nothing went wrong, no classes, no trace, a graph too large to see: it does without
            continue


def _draw_telling(study: Study) -> list[Path]:
    return draw_timeline(study, TimelineWindow(_telling(study)))


def _telling(study: Study) -> str:
    """The algorithm whose time line shows most: the first with a few walks at once."""
    walks = {label: int(one.settings.get("walks", 0)) for label, one in study.algorithms.items()}
    return next((label for label, count in walks.items() if 2 <= count <= 4), next(iter(walks)))


def draw_curves(study: Study, x: str) -> list[Path]:
    """Draw loss and accuracy against one axis."""
    named: Any = {"time": study.time.capitalize(), "algorithms": study.algorithms}
    figure = plots.curves(read_history(study.folder.history), cast(plots.Axis, x), **named)
    return plots.save(figure, study.folder.figures / f"curves-{x}", FORMATS)


def draw_timeline(study: Study, window: TimelineWindow) -> list[Path]:
    """Draw the time line of one run: who trains what, and what is sent when."""
    spec = study.spec
    labels = [algorithm.title for algorithm in spec.algorithms]
    label = labels[0] if window.algorithm is None else window.algorithm
    if label not in labels:
        raise StudyError(f"--algorithm {label}: is not in this study; allowed: {', '.join(labels)}")
    if window.repetition >= spec.repetitions:
        raise StudyError(
            f"--repetition {window.repetition}: is not in this study; allowed: 0 to {spec.repetitions - 1}"
        )
    if window.end is not None and not window.start < window.end < np.inf:
        raise StudyError(f"--to {window.end:g}: must be a number after --from {window.start:g}")
    run = study.folder.run(label, window.repetition)
    title = f"{plots.title_of(label, study.algorithms)}, repetition {window.repetition}"
    trace = read_trace(run.trace)
    last = float(trace["time"].max()) if len(trace) else 0.0
    if window.start > last:
        raise StudyError(f"--from {window.start:g}: the run was over by then; allowed: 0 to {last:.4g} seconds")
    figure = plots.timeline(trace, start=window.start, end=window.end, names=study.node_names, title=title)
    name = f"timeline-{run.path.parent.name}-{window.repetition}"
    return plots.save(figure, study.folder.figures / name, FORMATS)


def draw_failures(study: Study) -> list[Path]:
    """Draw loss and accuracy against time, with the failures of the first repetitions marked."""
    runs = [study.folder.run(algorithm.title, 0) for algorithm in study.spec.algorithms]
    marks = [mark for run in runs if run.trace.exists() for mark in plots.marks_of(read_trace(run.trace))]
    if not marks:
        said = "nothing went wrong in this study; `faults` in a specification make it so"
        raise StudyError(f"{study.folder.path}: {said}")
    named: Any = {"time": study.time.capitalize(), "algorithms": study.algorithms}
    figure = plots.failures(read_history(study.folder.history), marks, **named)
    return plots.save(figure, study.folder.figures / "failures", FORMATS)


def draw_network(study: Study) -> list[Path]:
    """Draw the graph, with the aggregator marked where the study's walks have one."""
    figure = plots.network(study.graph, aggregator=study.aggregator)
    return plots.save(figure, study.folder.figures / "network", FORMATS)


def draw_partition(study: Study) -> list[Path]:
    """Draw how much of each class every node holds, where the task has classes."""
    spec = study.spec
    if study.task.labels is None:
        raise StudyError(f"the task {spec.task.name} has no classes, so there is no partition to draw")
    alpha = spec.task.settings.get("alpha")
    split = "" if spec.task.name == "given" else ", iid" if alpha is None else f", α = {alpha:g}"
    figure = plots.partition(study.task, title=f"{spec.task.title}{split}")
    return plots.save(figure, study.folder.figures / "partition", FORMATS)
