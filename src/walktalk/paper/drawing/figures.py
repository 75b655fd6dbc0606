"""The paper's figures, drawn from the folders of their studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from walktalk import paper, plots
from walktalk.learning import tasks
from walktalk.paper.drawing import family
from walktalk.paper.drawing.grid import Cell, Shown, grid
from walktalk.paper.drawing.said_of_spec import rate_falls, setting_of
from walktalk.records import read_history, write_text
from walktalk.runtimes.simulator import Fault
from walktalk.seeds import Seed
from walktalk.studies import StudySpec, spec_mapping


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
