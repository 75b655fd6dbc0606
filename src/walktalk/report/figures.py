"""The figures of a study, drawn from its folder alone."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from walktalk import plots
from walktalk.errors import StudyError
from walktalk.learning import tasks
from walktalk.records import StudyFolder, existing_folder, read_history, read_trace
from walktalk.seeds import Seed
from walktalk.studies import StudySpec, build_graph, load_spec


class Window(NamedTuple):
    """Which part of which run a time line shows."""

    algorithm: str | None = None  # a label; None: the first
    repetition: int = 0
    start: float = 0.0  # seconds
    end: float | None = None  # None: a few iterations


def draw(folder: str | PathLike[str], kind: str, x: str = "iteration", window: Window | None = None) -> list[Path]:
    """Draw one figure (curves, timeline, network, partition, failures) into the study's folder; the files written."""
    study = existing_folder(folder)
    spec = load_spec(study.spec)
    if kind == "curves":
        return draw_curves(study, x)
    if kind == "timeline":
        return draw_timeline(study, spec, window or Window())
    if kind == "network":
        return draw_network(study, spec)
    if kind == "failures":
        return draw_failures(study, spec)
    return draw_partition(study, spec)


def draw_curves(study: StudyFolder, x: str) -> list[Path]:
    """Loss and accuracy against one axis."""
    figure = plots.curves(read_history(study.history), cast(plots.Axis, x))
    return plots.save(figure, study.figures / f"curves-{x}")


def draw_timeline(study: StudyFolder, spec: StudySpec, window: Window) -> list[Path]:
    """What happened when in one run."""
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
    run = study.run(label, window.repetition)
    title = f"{plots.title_of(label)}, repetition {window.repetition}"
    trace = read_trace(run.trace)
    last = float(trace["time"].max()) if len(trace) else 0.0
    if window.start > last:
        raise StudyError(f"--from {window.start:g}: the run was over by then; allowed: 0 to {last:.4g} seconds")
    names = build_graph(spec).names
    figure = plots.timeline(trace, start=window.start, end=window.end, names=names, title=title)
    return plots.save(figure, study.figures / f"timeline-{run.path.parent.name}-{window.repetition}")


def draw_failures(study: StudyFolder, spec: StudySpec) -> list[Path]:
    """Loss and accuracy against time, with what went wrong in the first repetition of any algorithm."""
    runs = [study.run(algorithm.title, 0) for algorithm in spec.algorithms]
    marks = [mark for run in runs if run.trace.exists() for mark in plots.marks_of(read_trace(run.trace))]
    if not marks:
        raise StudyError(f"{study.path}: nothing went wrong in this study; `faults` in a specification make it so")
    return plots.save(plots.failures(read_history(study.history), marks), study.figures / "failures")


def draw_network(study: StudyFolder, spec: StudySpec) -> list[Path]:
    """The graph, with the aggregator where the study's walks have one."""
    graph = build_graph(spec)
    settings = [algorithm.model_extra or {} for algorithm in spec.algorithms]
    aggregators = {setting["aggregator"] for setting in settings if "aggregator" in setting}
    aggregator = min(aggregators) if len(aggregators) == 1 else None
    return plots.save(plots.network(graph, aggregator=aggregator), study.figures / "network")


def draw_partition(study: StudyFolder, spec: StudySpec) -> list[Path]:
    """Who holds which data, where the task has classes."""
    nodes = build_graph(spec).nodes
    seed = Seed(spec.seed).child("data")  # the study's own, as when it ran: the same split
    task = tasks.build(spec.task.name, nodes=nodes, seed=seed, **spec.task.settings)
    if task.labels is None:
        raise StudyError(f"the task {spec.task.name} has no classes, so there is no partition to draw")
    classes, codes = np.unique(task.labels, return_inverse=True)
    counts = np.stack([np.bincount(codes[part], minlength=len(classes)) for part in task.parts])
    alpha = spec.task.settings.get("alpha")
    title = "iid" if alpha is None else f"α = {alpha:g}"
    shown = [str(name) for name in classes]
    figure = plots.partition(counts, shown, nodes=task.names, title=f"{spec.task.name}, {title}")
    return plots.save(figure, study.figures / "partition")
