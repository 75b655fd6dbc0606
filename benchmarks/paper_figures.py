"""Draws Figures 4 to 9, and what the optimizer's state and the learning rate change, from the GPU runs' histories.

    python benchmarks/paper_figures.py results/2026-11-15-paper-h200

Which is there is drawn: alpha-A/TOPOLOGY.csv (paper_gpu.py), fig8/fig8.csv (paper_language_gpu.py), fig9/fig9.csv
(paper_failures_gpu.py), fairness/fairness.csv (paper_fairness_gpu.py). The phase diagram has a command of its own,
`walktalk paper phase`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from walktalk import plots
from walktalk.records import read_history
from walktalk.report import paper as drawing
from walktalk.studies import paper

VARIANTS = {
    "visit": "state fresh\nat each visit", "node": "state at\nthe nodes", "walk": "state with\nthe walk",
    "own": "own rate,\nstate fresh",
}  # fmt: skip
NETWORKS = {"cycle": "cycle", "erdos_renyi": "Erdős–Rényi (0.3)"}


def main(folder: Path) -> None:
    for name in ("fig4", "fig5", "fig6", "fig7"):
        panels = [image_panel(folder, panel) for panel in paper.figure(name).panels]
        save(drawing.grid([p for p in panels if p is not None], drawing.CELLS[name]), folder / name)
    if (folder / "fig8" / "fig8.csv").is_file():
        history = read_history(folder / "fig8" / "fig8.csv")
        shown = drawing.Shown("SmolLM2-135M, MultiNLI by genre", history)
        axes: tuple[plots.Axis, ...] = ("bits", "time", "iteration")
        cells = [[drawing.Cell(0, x, value) for x in axes] for value in ("train_loss", "test_accuracy")]
        save(drawing.grid([shown], cells), folder / "fig8" / "fig8")
    if (folder / "fig9" / "fig9.csv").is_file():
        events = pd.read_csv(folder / "fig9" / "events.csv")
        kills = tuple((time, "aggregator killed") for time in sorted(set(events[events["event"] == "kill"]["time"])))
        shown = drawing.Shown("Erdős–Rényi (0.3)", measured(folder / "fig9" / "fig9.csv"), kills)
        save(drawing.grid([shown], drawing.CELLS["fig9"]), folder / "fig9" / "fig9")
    if (folder / "fairness" / "fairness.csv").is_file():
        table = last(pd.read_csv(folder / "fairness" / "fairness.csv"))
        cells = {
            f"α = {alpha:g}, {NETWORKS[topology]}": part
            for (alpha, topology), part in table.groupby(["alpha", "topology"], sort=False)
        }
        figure = plots.variants(cells, value="train_loss", y="Final training loss", names=VARIANTS)
        save(figure, folder / "fairness" / "fairness")


def image_panel(folder: Path, panel: paper.Panel) -> drawing.Shown | None:
    file = folder / f"alpha-{panel.alpha:g}" / f"{panel.network['topology']}.csv"
    return drawing.Shown(panel.title, measured(file)) if file.is_file() else None


def measured(file: Path) -> pd.DataFrame:
    """Without the start, where BatchNorm's running statistics are still their initial values, and without what
    diverged."""
    history = read_history(file)
    return history[history["train_loss"].notna() & (history["iteration"] > 0)]


def last(table: pd.DataFrame) -> pd.DataFrame:
    """The end of every run. At its own rate an algorithm is what was tuned, or, where the paper's was best, as it is.

    Gossip's state `with the walk` is at the nodes."""
    keys = ["alpha", "topology", "variant", "algorithm", "repetition"]
    ends = table.sort_values("iteration").groupby(keys, sort=False).last().reset_index()
    tuned = ends[ends["variant"] == "tuned"]
    others = ends[ends["variant"] == "visit"].merge(tuned[["alpha", "topology", "algorithm"]].drop_duplicates(),
                                                    how="left", indicator=True)  # fmt: skip
    own = pd.concat([tuned, others[others["_merge"] == "left_only"].drop(columns="_merge")]).assign(variant="own")
    gossip = ends[(ends["variant"] == "node") & ends["algorithm"].str.contains("gossip")].assign(variant="walk")
    every = pd.concat([ends[ends["variant"] != "tuned"], gossip, own])
    walks = every["algorithm"].str.extract(r"multi_walk-(\d+)", expand=False).astype(float)  # gossip: none, so last
    return every.assign(walks=walks).sort_values(["alpha", "topology", "walks"], ascending=[False, True, True])


def save(figure: object, path: Path) -> None:
    for file in plots.save(figure, path, ("png",)):  # type: ignore[arg-type]
        print(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
