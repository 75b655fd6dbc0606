"""The paper's figures, drawn from the folders of their studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from walktalk.core.seeds import Seed
from walktalk.learning import tasks
from walktalk.records import read_history, write_text
from walktalk.report import figures as plots
from walktalk.reproduction import paper
from walktalk.reproduction.paper.drawing import family
from walktalk.reproduction.paper.drawing.family import RateFalls, fall_words, rate_falls, setting_of
from walktalk.runtimes.simulator import Fault
from walktalk.studies import StudySpec, spec_mapping

# Panels of curves in rows, as the paper's Figures 4 to 9 have them: scales that can be compared, and a note below.

WIDTH = 7.2  # inches: two columns of a journal
VALUES = {"train_loss": "Loss", "test_accuracy": "Accuracy"}
AGAINST = {"iteration": "iterations", "time": "time", "bits": "data sent"}
FALL: Any = {"color": "#999999", "linestyle": (0, (1, 1.6)), "linewidth": 0.9, "zorder": 1, "label": "_"}


@dataclass(frozen=True)
class Cell:
    """One panel of a drawing: which study, against what, which value."""

    panel: int
    x: plots.Axis
    value: str


@dataclass(frozen=True)
class Shown:
    """What a panel is drawn from."""

    title: str
    history: pd.DataFrame
    faults: tuple[tuple[float, str], ...] = ()  # seconds at which something goes wrong, and what
    falls: RateFalls | None = None  # of the learning rate
    setting: tuple[str, ...] = ()  # what else a reader has to know, such as "α = 1"
    without: pd.DataFrame | None = None  # the same runs, had nothing gone wrong
    algorithms: plots.Algorithms | None = None  # what the study says of them

    @property
    def histories(self) -> list[pd.DataFrame]:
        return [self.history] if self.without is None else [self.history, self.without]


@dataclass(frozen=True)
class Place:
    """A panel with its axes and what was drawn there."""

    axes: Any
    cell: Cell
    shown: Shown
    along: plots.SharedAxis
    curves: list[plots.Curve]


def grid(panels: Sequence[Shown], cells: list[list[Cell]], notes: Sequence[str] = ()) -> Drawing:
    """Panels in rows, one legend below them all, and below it what the axes do not say."""
    with plots.styled():
        drawing = plots.new_figure(WIDTH, 2.1 * len(cells) + 0.95)
        axes = drawing.subplots(len(cells), len(cells[0]), squeeze=False)
        rows = [
            [_draw(a, cell, panels, row) for a, cell in zip(line, row, strict=True)]
            for line, row in zip(axes, cells, strict=True)
        ]
        every = [place for row in rows for place in row]
        for place, letter, title in zip(every, ascii_lowercase, titles([p.cell for p in every], panels), strict=False):
            place.axes.set_title(f"({letter}) {title}", loc="left")
        opens = _scale(rows)
        for place in every:
            plots.draw_bands(place.axes, place.shown.history, place.along, place.curves, place.shown.algorithms)
            mark_falls(place)
            if place.cell.x == "time":
                mark_faults(place)
        _label_once(rows)
        plots.legend_below(drawing, *_legend(every))
        told = _note([panels[k] for k in sorted({place.cell.panel for place in every})], every)
        plots.note_below(drawing, [*told, plots.OPENING if opens else "", *notes])
    return drawing


def _legend(places: Sequence[Place]) -> tuple[list[Any], list[str]]:
    """Algorithms, what goes wrong, and what thin lines are."""
    handles, labels = places[0].axes.get_legend_handles_labels()
    faults = dict.fromkeys(what for place in places for _, what in place.shown.faults)
    if faults:
        handles.append(plots.upright(plots.GREY))
        labels.append(", then ".join(faults))
    if any(place.shown.without is not None for place in places):
        handles.append(Line2D([], [], color="#444444", linewidth=0.8))
        labels.append("thin: without failures")
    return handles, labels


def titles(cells: Sequence[Cell], panels: Sequence[Shown]) -> list[str]:
    """What tells a panel from all others: its study, its value, or both, or what it is drawn against."""
    studies = [panels[cell.panel].title for cell in cells]
    if len(set(studies)) == len(cells):
        return studies
    if len(set(studies)) == 1:
        return [f"{VALUES[cell.value]} by {AGAINST[cell.x]}" for cell in cells]
    return [f"{study}: {VALUES[cell.value].lower()}" for study, cell in zip(studies, cells, strict=True)]


def _draw(axes: Any, cell: Cell, panels: Sequence[Shown], row: Sequence[Cell]) -> Place:
    """The curves of one panel, on the axis of all panels of its row that have the same."""
    shown = panels[cell.panel]
    beside = [history for other in row if other.x == cell.x for history in panels[other.panel].histories]
    along = plots.shared_axis(beside, cell.x)
    plots.scale_shared_axis([axes], along)
    curves = plots.draw_curves(axes, shown.history, along, cell.value, algorithms=shown.algorithms)
    if shown.without is not None:
        curves += plots.draw_curves(axes, shown.without, along, cell.value, thin=True, algorithms=shown.algorithms)
    return Place(axes, cell, shown, along, curves)


# -- scales -----------------------------------------------------------------------------------------------------------


def _scale(rows: list[list[Place]]) -> bool:
    """Losses that can be compared within a row, or, where a row has but one, down a column.

    They are logarithmic in all panels if any needs it. Accuracies have one axis in all. The answer: whether that
    opens up toward 100 %.
    """
    every = [place for row in rows for place in row]
    accuracies = [place for place in every if place.cell.value == "test_accuracy"]
    opens = plots.scale_accuracy(_axes(accuracies), _curves(accuracies)) if accuracies else False
    losses = [[place for place in row if place.cell.value == "train_loss"] for row in rows]
    alone = all(len(group) <= 1 for group in losses)
    groups = [[place for group in losses for place in group]] if alone else [group for group in losses if group]
    logarithmic = any(plots.needs_logarithm(_curves(group)) for group in groups)
    positive = all((curve.mean[curve.mean == curve.mean] > 0).all() for group in groups for curve in _curves(group))
    for group in groups:
        plots.scale_loss(_axes(group), _curves(group), logarithmic and positive)
    return opens


def _axes(places: Sequence[Place]) -> list[Any]:
    return [place.axes for place in places]


def _curves(places: Sequence[Place]) -> list[plots.Curve]:
    return [curve for place in places for curve in place.curves]


def _label_once(rows: list[list[Place]]) -> None:
    """An axis that is the same to the right of a panel, or below it, is named once."""
    for row in rows:
        for left, place in pairwise(row):
            if left.cell.value == place.cell.value:
                place.axes.set_ylabel("")
    for upper, lower in pairwise(rows):
        for above, below in zip(upper, lower, strict=True):
            if above.axes.get_xlabel() == below.axes.get_xlabel():
                above.axes.set_xlabel("")


# -- marks ------------------------------------------------------------------------------------------------------------


def mark_faults(place: Place) -> None:
    """A grey line where something goes wrong; what it is, the legend says."""
    for time, _ in place.shown.faults:
        plots.failure_line(place.axes, time / place.along.unit.size)


def mark_falls(place: Place) -> None:
    """A dotted line where the learning rate falls; what it is, the note says."""
    falls = place.shown.falls
    if falls is not None and falls.axis == place.cell.x:
        for at in falls.places:
            place.axes.axvline(at / place.along.unit.size, **FALL)


# -- note -------------------------------------------------------------------------------------------------------------


def _note(panels: Sequence[Shown], places: Sequence[Place]) -> list[str]:
    """What all panels share, what lines and bands are, where the learning rate falls, and what is left out."""
    alone = (panels[0].title,) if len(panels) == 1 else ()
    common = [*alone, *(part for part in panels[0].setting if all(part in other.setting for other in panels))]
    histories = [history for panel in panels for history in panel.histories]
    marked = {place.shown.falls for place in places if place.shown.falls and place.shown.falls.axis == place.cell.x}
    falls = {panel.falls for panel in panels if panel.falls}
    return [
        "; ".join(common) + "." if common else "",
        plots.spread_words([panel.history for panel in panels]),
        fall_words(falls, marked=bool(marked)),
        plots.missing_words(histories),
    ]


def shown(panel: paper.PanelRun) -> Shown:
    """A panel's runs, from its folder."""
    times = tuple((entry.at, in_words(entry.fault())) for entry in panel.spec.faults if entry.at is not None)
    spec = spec_mapping(panel.spec)
    history = read_history(panel.folder / "history.csv")
    algorithms = panel.spec.described
    return Shown(panel.panel.title, history, times, rate_falls(spec), setting_of(spec), algorithms=algorithms)


def in_words(fault: Fault) -> str:
    """What goes wrong, in two words: "aggregator killed"."""
    done = {"kill": "killed", "revive": "back", "pause": "hangs", "slow": "slow"}
    who = fault.node if isinstance(fault.node, str) else f"node {fault.node}"
    return f"{who} {done[fault.kind]}" if fault.kind in done and fault.node is not None else fault.kind


CHOSEN: dict[paper.Tuning, str] = {
    "lr": "Each algorithm has its own learning rate.",
    "best": "Each algorithm has its own learning rate and place of the optimizer's state.",
}


def make(
    one: paper.Figure,
    scale: paper.Scale,
    out: Path,
    *,
    device: str = "auto",
    changes: Mapping[str, Any] | None = None,
    tune: paper.Tuning | None = None,
    report: Callable[[str, Any], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Path]:
    """Run what is missing, draw the figure or write the tables; the files written."""
    if one.name == "tables":
        path = out / "tables.md"
        out.mkdir(parents=True, exist_ok=True)
        write_text(path, paper.tables_text(scale))
        return [path]
    panels = paper.run_figure(one, scale, out, device=device, changes=changes, tune=tune, report=report, say=say)
    out.mkdir(parents=True, exist_ok=True)  # not before: where a study cannot be run, nothing is left behind
    if one.name == "fig3":
        return plots.save(splits([panel.spec for panel in panels]), out / one.name)
    if one.name == paper.FAMILY:
        return family.draw(panels, out)
    notes = [f"Variant: {one.variant}."] if one.variant else []
    notes += [CHOSEN[tune]] if tune else []
    drawing = grid([shown(panel) for panel in panels], cells_of(one), notes)
    named = "-".join(part for part in (one.name, one.variant, one.part) if part)
    return plots.save(drawing, out / (f"{named}-{paper.TUNED[tune]}" if tune else named))


def cells_of(one: paper.Figure) -> list[list[Cell]]:
    """Where which panel is drawn; a variant or a person may have left some out."""
    whole = CELLS[one.name]
    if one.kept is None:
        return whole
    places = {panel: k for k, panel in enumerate(one.kept)}
    rows = [[replace(cell, panel=places[cell.panel]) for cell in row if cell.panel in places] for row in whole]
    left = [row for row in rows if row]
    return left if len({len(row) for row in left}) == 1 else [[cell] for row in left for cell in row]


HETEROGENEITY = (0, 1), (2, 3), (4, 5)  # panels, row by row: α by topology


def _rows(x: plots.Axis) -> list[list[Cell]]:
    return [[Cell(panel, x, "train_loss") for panel in row] for row in HETEROGENEITY]


BITS_AND_TIME: tuple[plots.Axis, ...] = ("bits", "time")
CELLS: dict[str, list[list[Cell]]] = {
    "fig4": [[Cell(row, "iteration", value) for value in ("train_loss", "test_accuracy")] for row in range(3)],
    "fig5": _rows("iteration"),
    "fig6": _rows("time"),
    "fig7": _rows("bits"),
    "fig9": [[Cell(0, "time", value) for value in ("train_loss", "test_accuracy")]],
    "fig8": [[Cell(0, x, "train_loss") for x in BITS_AND_TIME]],
}


def splits(specs: Sequence[StudySpec]) -> Drawing:
    """Figure 3: a bubble per node and class, one panel an α, with one scale for all."""
    tables = [split_of(spec) for spec in specs]
    largest = max(int(table.max()) for table in tables)
    with plots.styled():
        drawing = plots.new_figure(3.3 * len(specs) + 0.4, 2.9)
        places = drawing.subplots(1, len(specs), sharey=True, squeeze=False)[0]
        for k, (place, table, spec) in enumerate(zip(places, tables, specs, strict=True)):
            node, kind = np.nonzero(table)
            place.scatter(node, kind, s=table[node, kind] / largest * 170, c="#0072B2", alpha=0.8, linewidths=0)
            place.set(xlim=(-0.8, len(table) - 0.2), ylim=(-0.8, table.shape[1] - 0.2), xlabel="Node")
            place.set_xticks(range(0, len(table), 5))
            place.set_yticks(range(table.shape[1]))
            place.set_title(f"({ascii_lowercase[k]}) α = {spec.task.settings['alpha']:g}", loc="left")
        places[0].set_ylabel("Class")
        shown = [
            places[0].scatter([], [], s=170 * share, c="#0072B2", alpha=0.8, linewidths=0) for share in (0.1, 0.5, 1.0)
        ]
        words = [f"{round(share * largest):,} samples" for share in (0.1, 0.5, 1.0)]
        drawing.legend(shown, words, loc="outside lower center", ncols=3)
    return drawing


def split_of(spec: StudySpec) -> np.ndarray:
    """How many samples of each class each node has."""
    nodes = spec.network.nodes
    task = tasks.build(spec.task.name, nodes=nodes or 1, seed=Seed(spec.seed).child("data"), **spec.task.settings)
    assert task.labels is not None
    classes = int(task.labels.max()) + 1
    return np.stack([np.bincount(task.labels[part], minlength=classes) for part in task.parts])
