"""Draws Figures 4 to 7 from the histories that `paper_gpu.py` wrote.

    python benchmarks/paper_figures.py results/2026-11-15-paper-h200
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from walktalk import plots
from walktalk.records import read_history


def main(folder: Path) -> None:
    """One PNG for each split of the data, topology and axis of Figures 4 to 7."""
    for alpha in sorted(p for p in folder.glob("alpha-*") if p.is_dir()):
        for file in sorted(alpha.glob("*.csv")):
            history = read_history(file)
            # At the start BatchNorm's running statistics are still their initial values, and the loss means nothing.
            history = history[history["train_loss"].notna() & (history["iteration"] > 0)]
            for axis in ("iteration", "time", "bits"):
                figure = plots.curves(history, axis)
                target = alpha / f"{file.stem}-{axis}.png"
                figure.savefig(target, dpi=110)
                plt.close(figure)
                print(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
