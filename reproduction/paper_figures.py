"""Draws Figures 4 to 9, the threshold of R, and what the optimizer's state and the learning rate change, from the GPU
runs' histories.

    python reproduction/paper_figures.py results/2026-11-15-paper-h200 [--out FOLDER]

Which is there is drawn: alpha-A/TOPOLOGY.csv (paper_gpu.py; the complete graph is a third column of Figures 5 to 7
where it was run at every α), fig8/fig8.csv (paper_language_gpu.py), fig9/fig9.csv and, as thin lines, the same without
failures in fig9-without/fig9.csv (paper_failures_gpu.py), fairness/fairness.csv (paper_fairness_gpu.py), and
threshold/complete.csv (paper_gpu.py with other numbers of walks). Each as PNG, and as PDF where that is small. The
phase diagram has a command of its own, `walktalk paper phase`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paper_ends import NETWORKS, VARIANTS, bars_of, threshold_ends
from walktalk import graphs
from walktalk.core.errors import StudyError
from walktalk.records import read_history
from walktalk.report import figures as plots
from walktalk.reproduction import paper
from walktalk.reproduction.paper.drawing.family import rate_falls, setting_of
from walktalk.reproduction.paper.drawing.figures import CELLS, Cell, Shown, grid
from walktalk.theory import crossover_walks, network

LANGUAGE = "SmolLM2-135M on MultiNLI by genre, Erdős–Rényi (0.3)"  # the model is in no file of the runs
UNTRAINED = "The untrained model is not shown: its BatchNorm statistics mean nothing yet."
AXES: tuple[plots.Axis, ...] = ("bits", "time", "iteration")
ALONG: dict[str, plots.Axis] = {"fig5": "iteration", "fig6": "time", "fig7": "bits"}


def main(folder: Path, out: Path) -> None:
    figures: dict[str, Callable[[Path], Any]] = {
        "fig4": topologies,
        **{name: lambda folder, x=x: heterogeneity(folder, x) for name, x in ALONG.items()},
        "fig8/fig8": language,
        "fig9/fig9": failures,
        "fairness/fairness": fairness,
        "threshold": threshold,
    }
    for name, draw in figures.items():
        try:
            figure = draw(folder)
        except StudyError as error:  # the others can be drawn all the same
            print(f"{name}: {error}")
            continue
        if figure is None:
            print(f"{name}: its runs are not there")
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        for file in plots.save_for_print(figure, out / name):
            print(file)


# -- Figures 4 to 7 ---------------------------------------------------------------------------------------------------


def topologies(folder: Path) -> Any:
    """Figure 4, with a row for every topology that was run."""
    panels = [shown(image_file(folder, panel), panel.title) for panel in paper.figure("fig4").panels]
    there = [panel for panel in panels if panel is not None]
    values = ("train_loss", "test_accuracy")
    cells = [[Cell(row, "iteration", value) for value in values] for row in range(len(there))]
    return grid(there, cells, [UNTRAINED]) if there else None


def heterogeneity(folder: Path, x: plots.Axis) -> Any:
    """Figures 5 to 7: a row an α, a column a topology that was run at every α."""
    titles = {panel.network["topology"]: panel.title for panel in paper.figure("fig4").panels}
    rows = []
    for alpha in dict.fromkeys(panel.alpha for panel in paper.figure("fig5").panels):
        files = {name: folder / f"alpha-{alpha:g}" / f"{name}.csv" for name in ("erdos_renyi", "cycle", "complete")}
        row = {name: shown(file, f"α = {alpha:g}, {titles[name].replace('C', 'c')}") for name, file in files.items()}
        rows.append({name: panel for name, panel in row.items() if panel is not None})
    columns = [name for name in rows[0] if all(name in row for row in rows)]
    panels = [row[name] for row in rows for name in columns]
    cells = [[Cell(r * len(columns) + c, x, "train_loss") for c in range(len(columns))] for r in range(len(rows))]
    return grid(panels, cells, [UNTRAINED]) if columns else None


def image_file(folder: Path, panel: paper.Panel) -> Path:
    return folder / f"alpha-{panel.alpha:g}" / f"{panel.network['topology']}.csv"


def shown(file: Path, title: str, faults: tuple[tuple[float, str], ...] = ()) -> Shown | None:
    """A study's runs, with what `facts.json` beside them tells of its settings."""
    if not file.is_file():
        return None
    spec = spec_beside(file)
    return Shown(title, trained(file), faults, rate_falls(spec), setting_of(spec))


def spec_beside(file: Path) -> dict[str, Any]:
    facts = file.parent / "facts.json"
    found: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {}
    return dict(found.get("spec", {}))


def trained(file: Path) -> pd.DataFrame:
    """Without the start, where BatchNorm's running statistics are still their initial values."""
    history = read_history(file)
    return history[history["iteration"] > 0]


# -- Figures 8 and 9 --------------------------------------------------------------------------------------------------


def language(folder: Path) -> Any:
    file = folder / "fig8" / "fig8.csv"
    if not file.is_file():
        return None
    nodes = tuple(part for part in setting_of(spec_beside(file)) if part.startswith("V"))
    panel = Shown(LANGUAGE, read_history(file), (), rate_falls(spec_beside(file)), nodes)
    return grid([panel], [[Cell(0, x, value) for x in AXES] for value in ("train_loss", "test_accuracy")])


def failures(folder: Path) -> Any:
    """Figure 9, and, if they were run, the same studies without failures as thin lines."""
    file = folder / "fig9" / "fig9.csv"
    if not file.is_file():
        return None
    events = pd.read_csv(file.with_name("events.csv"))
    kills = tuple((time, "aggregator killed") for time in sorted(set(events[events["event"] == "kill"]["time"])))
    panel = shown(file, "Erdős–Rényi (0.3)", kills)
    others = folder / "fig9-without" / "fig9.csv"
    if panel is not None and others.is_file():
        panel = Shown(**{**vars(panel), "without": trained(others)})
    return grid([panel], CELLS["fig9"], [UNTRAINED]) if panel is not None else None


# -- ends of runs -----------------------------------------------------------------------------------------------------


def fairness(folder: Path) -> Any:
    file = folder / "fairness" / "fairness.csv"
    if not file.is_file():
        return None
    table = bars_of(pd.read_csv(file))
    panels = {
        f"α = {alpha:g}, {NETWORKS[topology]}": part
        for (alpha, topology), part in table.groupby(["alpha", "topology"], sort=False)
    }
    notes = [
        f"After {table['iteration'].max():,} iterations.",
        "Pale: repeats another column. Gossip has no walk for its state to go with, so it stays at the nodes; where "
        "the paper's rate was an algorithm's best, its own is the first column.",
    ]
    return plots.variants(panels, value="train_loss", y="Final training loss", names=VARIANTS, notes=notes)


def threshold(folder: Path) -> Any:
    """On the complete graph: gossip is better than how many walks? Runs of other lengths cannot be compared."""
    files = [folder / "alpha-1" / "complete.csv", folder / "threshold" / "complete.csv"]
    if not all(file.is_file() for file in files):
        return None
    ends = threshold_ends([read_history(file) for file in files])
    spec = spec_beside(files[0])
    nodes = int(spec.get("network", {}).get("nodes", 20))
    counts = sorted(set(ends.groupby("algorithm")["repetition"].nunique()))
    notes: Sequence[str] = [
        f"Complete graph; {'; '.join(setting_of(spec))}; {ends['iteration'].max():,} iterations.",
        f"Mean ± σ over {' or '.join(str(count) for count in counts)} repetitions." if max(counts) > 1 else "",
        "Below √(V/p) walks, by the paper's bounds and with iid data, Multi-Walk needs fewer iterations.",
        plots.missing_words([ends]),
    ]
    return plots.threshold(ends, crossover_walks(network(graphs.complete(nodes))), notes=notes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the runs")
    parser.add_argument("--out", type=Path, help="for the figures; the runs' own folder if left out")
    options = parser.parse_args()
    main(options.folder, options.out or options.folder)
