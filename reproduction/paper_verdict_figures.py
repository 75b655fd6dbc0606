"""Draws α = 0.1 by how a model is normalized: travelling statistics of batch norm, those of the batch, group norm.

    python reproduction/paper_verdict_figures.py results/2026-11-16-verdicts-h200 results/2026-11-15-paper-h200

The first folder has the runs of the variants (see paper_verdicts.py) and gets `alpha-0.1.png`; the second has those of
Figure 5 as it is (alpha-0.1/TOPOLOGY.csv).
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from paper_figures import UNTRAINED, spec_beside, trained
from walktalk.report import figures as plots
from walktalk.reproduction.paper.drawing.family import rate_falls, setting_of
from walktalk.reproduction.paper.drawing.figures import Cell, Shown, grid

GRAPHS = {"erdos_renyi": "Erdős–Rényi (0.3)", "cycle": "cycle"}
SHORT = "A curve ends where the records of some of its runs do."
VARIANTS = {"batch-statistics": "statistics of the batch", "group-norm": "group norm"}


def main(folder: Path, figure5: Path) -> None:
    panels = [
        shown(figure5 / "alpha-0.1" / f"{name}.csv", f"travelling statistics, {title}")
        for name, title in GRAPHS.items()
    ]
    panels += [
        shown(folder / f"fig5-7-{variant}" / f"{name}-alpha0.1" / "history.csv", f"{words}, {title}")
        for variant, words in VARIANTS.items()
        for name, title in GRAPHS.items()
    ]
    rows = range(len(panels) // len(GRAPHS))
    cells = [[Cell(len(GRAPHS) * row + k, "iteration", "train_loss") for k in range(len(GRAPHS))] for row in rows]
    for file in plots.save_for_print(grid(panels, cells, [UNTRAINED, SHORT]), folder / "alpha-0.1"):
        print(file)


def shown(file: Path, title: str) -> Shown:
    spec = file.with_name("spec.yaml")
    settings = yaml.safe_load(spec.read_text(encoding="utf-8")) if spec.is_file() else spec_beside(file)
    return Shown(title, trained(file), (), rate_falls(settings), setting_of(settings))


if __name__ == "__main__":
    if len(sys.argv) != 3 or not all(Path(word).is_dir() for word in sys.argv[1:]):
        sys.exit(f"usage: python {sys.argv[0]} VERDICTS FIGURE5, two folders")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
