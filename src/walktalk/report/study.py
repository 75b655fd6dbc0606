"""A study as the page and the figures read it: its folder, with what is missing said or made up for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from walktalk.core.errors import SpecError, StudyError, UserError
from walktalk.core.lazy import later
from walktalk.core.plugins import plugins_may_be_absent
from walktalk.graphs import Changing, Graph
from walktalk.protocols import Described
from walktalk.records import StudyFolder, existing_folder, read_history, read_trace
from walktalk.report import figures
from walktalk.studies import StudySpec, algorithms_of, load_spec, read_sites, summarize

if TYPE_CHECKING:
    from walktalk.learning import Task
    from walktalk.studies import Foundation, planning
else:
    planning = later("walktalk.studies.planning")  # and torch with it, which tables do without

TIMES = {"sim": "virtual time", "peers": "wall-clock time"}


class Running(NamedTuple):
    """What is known of a study that still runs; its folder may be empty yet, or hold what an earlier run left."""

    history: pd.DataFrame  # every evaluation so far
    engine: str  # what runs it


def _grown(graph: Graph, names: list[str], changes: dict[str, Any]) -> Graph:
    """The graph with every node that joined during the run, and still with those that left for good."""
    if not changes:
        return graph
    number = {name: place for place, name in enumerate(names)}
    joined = {number[name]: tuple(map(number.__getitem__, peers)) for name, peers in changes["joined"].items()}
    left = frozenset(number[name] for name in changes["left"])
    return Changing(graph, joined, left).everybody()


@dataclass(frozen=True)
class Study:
    """One study's specification, history, summary and network, each read from its folder when first needed."""

    folder: StudyFolder
    spec: StudySpec
    running: Running | None = None  # None: what is in the folder counts
    base: Foundation | None = None  # graph and task, where they are at hand; else the specification says what they are

    @cached_property
    def history(self) -> pd.DataFrame:
        """Every evaluation; from the runs' own files, which say more, where all are there."""
        if self.running is not None:
            return self.running.history
        runs = [self.folder.run(a.title, r).history for a in self.spec.algorithms for r in range(self.spec.repetitions)]
        there = [path for path in runs if path.is_file()]
        if there and (len(there) == len(runs) or not self.finished):
            return pd.concat([read_history(path) for path in there], ignore_index=True)
        if not there and not self.folder.history.exists():
            raise StudyError(f"{self.folder.path}: no run is over yet; go on with the study (`walktalk run --resume`)")
        return read_history(self.folder.history)

    @property
    def finished(self) -> bool:
        """Whether all runs are over: then there is a history of the whole study."""
        return self.running is None and self.folder.history.is_file()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Who won: what the run wrote, with the machine it ran on; else from the history."""
        if self.running is not None:
            return {**summarize(self.history, self.spec), "engine": self.running.engine}
        said = read_summary(self.folder)
        if said is None:
            return summarize(self.history, self.spec)
        won = {winner["algorithm"] for winner in said["winners"].values() if winner is not None}
        if any(one.is_reference for label, one in algorithms_of(said).items() if label in won):  # of walktalk 0.1
            said["winners"] = summarize(self.history, self.spec, described=algorithms_of(said))["winners"]
        return said

    @cached_property
    def sites(self) -> pd.DataFrame | None:
        """How good each algorithm's model is on every site's data; None where that was not measured, or not yet."""
        return None if self.running is not None else read_sites(self.folder.sites)

    @cached_property
    def models(self) -> pd.DataFrame | None:
        """How good nodes' or walks' own models are on every site's data; None where that was not measured."""
        return None if self.running is not None else read_sites(self.folder.models)

    @cached_property
    def algorithms(self) -> dict[str, Described]:
        """What is known of the algorithms, by label: as the folder says, or from the specification."""
        said = algorithms_of(self.summary)
        return {**(self.spec.described if len(said) < len(self.spec.algorithms) else {}), **said}

    @property
    def engine(self) -> str:
        """What ran it: "sim" in virtual time, or "peers", one real process a node."""
        said = self.summary.get("engine")
        if said is not None:
            return str(said)
        return "peers" if any(self.folder.runs.glob("*/*/nodes")) else "sim"  # a folder from before it was said

    @property
    def time(self) -> str:
        """The name of its time axis: virtual time of a simulation, wall-clock time of real peers."""
        return TIMES[self.engine]

    @cached_property
    def cluster(self) -> dict[str, Any] | None:
        """What `walktalk collect` knows of a deployment: who took part, and whose copy the model is; else None."""
        return None if self.running is not None else (read_summary(self.folder) or {}).get("cluster")

    @cached_property
    def graph(self) -> Graph:
        """The network; a cluster's nodes have their names."""
        graph, cluster = planning.build_graph(self.spec) if self.base is None else self.base.graph, self.cluster
        if cluster is None:
            return graph
        names = [str(node["name"]) for node in cluster["nodes"]]
        return replace(_grown(graph, names, cluster.get("changes", {})), names=tuple(names))

    @property
    def nodes(self) -> int | None:
        """How many nodes there were; none where a topology that is gone would have to say."""
        return self.spec.network.nodes or self._graph_if_there("nodes")

    @property
    def node_names(self) -> tuple[str, ...] | None:
        """The nodes' names, where they have any and the topology is at hand."""
        names: tuple[str, ...] | None = self._graph_if_there("names")
        return names

    def _graph_if_there(self, what: str) -> Any:
        try:
            return getattr(self.graph, what)
        except UserError:  # a plug-in or a file that has gone
            return None

    @cached_property
    def task(self) -> Task:
        """What was learned, its data split as when it ran; that of a cluster is at its nodes, and nowhere else."""
        if self.cluster is not None:
            raise StudyError(f"{self.folder.path}: the data of a cluster stays at its nodes, so it cannot be drawn")
        return planning.build_task(self.spec, self.graph.nodes) if self.base is None else self.base.task()

    @property
    def aggregator(self) -> int | None:
        """The node that mixes walks, where the study has one and only one."""
        settings = [algorithm.model_extra or {} for algorithm in self.spec.algorithms]
        found = {setting["aggregator"] for setting in settings if "aggregator" in setting}
        return min(found) if len(found) == 1 else None


def open_study(folder: str | PathLike[str], base: Foundation | None = None) -> Study:
    """The study in this folder; a `StudyError` if there is none. `base`: what it stands on, where that is at hand."""
    place = existing_folder(folder)
    if base is not None:
        return Study(place, base.spec, base=base)
    try:
        return Study(place, load_spec(place.spec))
    except SpecError:
        summary = read_summary(place)
        if summary is None:  # nobody else knows what the labels are
            raise
        with plugins_may_be_absent():
            return Study(place, _labelled(load_spec(place.spec), list(summary["algorithms"])))


def _labelled(spec: StudySpec, labels: list[str]) -> StudySpec:
    """The specification with the labels that its runs had; a plug-in that is not here cannot say its own."""
    pairs = zip(spec.algorithms, labels, strict=True)
    return spec.model_copy(update={"algorithms": [one.model_copy(update={"label": label}) for one, label in pairs]})


def read_summary(folder: StudyFolder) -> dict[str, Any] | None:
    """The summary that the run wrote; none if there is no such file."""
    if not folder.summary.is_file():
        return None
    damaged = f"{folder.summary} is damaged; delete it and call `walktalk report` again"
    try:
        content: dict[str, Any] = json.loads(folder.summary.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StudyError(damaged) from error
    if not isinstance(content, dict) or not {"algorithms", "winners", "target_loss"} <= set(content):
        raise StudyError(damaged)
    return content


# -- A study's figures: reads what they need from its folder, has `figures` draw them, and writes the files there -----

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
    for axis in figures.AXES:
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
    figure = figures.curves(read_history(study.folder.history), cast(figures.Axis, x), **named)
    return figures.save(figure, study.folder.figures / f"curves-{x}", FORMATS)


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
    title = f"{figures.title_of(label, study.algorithms)}, repetition {window.repetition}"
    trace = read_trace(run.trace)
    last = float(trace["time"].max()) if len(trace) else 0.0
    if window.start > last:
        raise StudyError(f"--from {window.start:g}: the run was over by then; allowed: 0 to {last:.4g} seconds")
    figure = figures.timeline(trace, start=window.start, end=window.end, names=study.node_names, title=title)
    name = f"timeline-{run.path.parent.name}-{window.repetition}"
    return figures.save(figure, study.folder.figures / name, FORMATS)


def draw_failures(study: Study) -> list[Path]:
    """Draw loss and accuracy against time, with the failures of the first repetitions marked."""
    runs = [study.folder.run(algorithm.title, 0) for algorithm in study.spec.algorithms]
    marks = [mark for run in runs if run.trace.exists() for mark in figures.marks_of(read_trace(run.trace))]
    if not marks:
        said = "nothing went wrong in this study; `faults` in a specification make it so"
        raise StudyError(f"{study.folder.path}: {said}")
    named: Any = {"time": study.time.capitalize(), "algorithms": study.algorithms}
    figure = figures.failures(read_history(study.folder.history), marks, **named)
    return figures.save(figure, study.folder.figures / "failures", FORMATS)


def draw_network(study: Study) -> list[Path]:
    """Draw the graph, with the aggregator marked where the study's walks have one."""
    figure = figures.network(study.graph, aggregator=study.aggregator)
    return figures.save(figure, study.folder.figures / "network", FORMATS)


def draw_partition(study: Study) -> list[Path]:
    """Draw how much of each class every node holds, where the task has classes."""
    spec = study.spec
    if study.task.labels is None:
        raise StudyError(f"the task {spec.task.name} has no classes, so there is no partition to draw")
    alpha = spec.task.settings.get("alpha")
    split = "" if spec.task.name == "given" else ", iid" if alpha is None else f", α = {alpha:g}"
    figure = figures.partition(study.task, title=f"{spec.task.title}{split}")
    return figures.save(figure, study.folder.figures / "partition", FORMATS)
