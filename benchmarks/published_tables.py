"""BENCHMARKS-PUBLISHED.md from the histories in results/: the published numbers, ours and the differences.

    python benchmarks/published_tables.py > BENCHMARKS-PUBLISHED.md

Every number in it comes from a CSV file there, or from `walktalk.published`, which has the published ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk import published
from walktalk.published.relay_sgd import BYTES_OF_A_MODEL, EPOCHS, STEPS, WORKERS
from walktalk.records import read_history

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "2026-11-16-published"
COMMON = 61_920  # trainings after which every row of table5 was measured: 2,580 of 12,900 iterations


def main() -> None:
    one, five = (published.find_table(name) for name in ("table1", "table5"))
    cells, early = published.compared(one, RESULTS), published.compared(five, RESULTS, COMMON)
    late = [cell for cell in published.compared(five, RESULTS) if cell.iterations > COMMON]
    text = (ROOT / "benchmarks" / "published_tables.md").read_text(encoding="utf-8")
    known = [cell for cell in early if cell.published is not None]
    rank = spearmanr([cell.published for cell in known], [cell.ours for cell in known]).statistic
    print(
        text.format(
            table1=published.as_markdown(one, cells),
            bytes1=bytes_said(),
            left1=left(one, cells),
            splits1=splits_said(),
            softmax5=softmax_said(),
            table5=published.as_markdown(five, early),
            late5=published.as_markdown(five, late),
            rank5=f"{rank:.2f}",
            rows5=len(known),
        ),
        end="",
    )


def bytes_said() -> str:
    """What the ledger says of D-PSGD, beside the published number."""
    history = read_history(RESULTS / "table1" / "alpha0.1" / "dpsgd-ring.csv")
    each = int(history["model_bits"].iloc[-1]) // 8 // WORKERS
    assert each == EPOCHS * STEPS * 2 * BYTES_OF_A_MODEL
    at_198 = each * 198 // EPOCHS
    return f"{each:,} bytes a worker after {EPOCHS} epochs, so {at_198:,} at epoch 198: {at_198 / 2**20:,.0f} MiB"


def splits_said() -> str:
    """How uneven the split is."""
    splits = pd.read_csv(RESULTS / "splits.csv", index_col=0)
    ours, others = splits.loc["study"], splits.drop(index="study")
    below = (others < ours).mean()
    return (
        f"Of {len(others)} splits drawn like it, {below['node']:.0%} have nodes, and {below['neighbourhood']:.0%} have "
        f"neighbourhoods of three, whose classes are less uneven (mean total variation from all alike: "
        f"{ours['node']:.3f} and {ours['neighbourhood']:.3f}; of all {others['node'].mean():.3f} ± "
        f"{others['node'].std():.3f} and {others['neighbourhood'].mean():.3f} ± {others['neighbourhood'].std():.3f})"
    )


def softmax_said() -> str:
    """The same with a network that ends as usual."""
    last = pd.read_csv(RESULTS / "softmax.csv").iloc[-1]
    return (
        f"On the complete graph, where averaging is exact, that network has {100 * last['batch']:.1f} % after "
        f"{last['iteration']:.0f} iterations, and {100 * last['classes']:.1f} % where it ends as usual "
        "(`benchmarks/batch_softmax.py`): so on that graph the network keeps the number low, not the algorithm; "
        "others were not tried."
    )


def left(table: published.Table, cells: list[published.Compared]) -> str:
    """Cells that were not run."""
    done = {(cell.row.name, cell.column) for cell in cells}
    names = {column: [row.name for row, c in table.cells() if c == column] for column in table.columns}
    return "; ".join(
        f"{column}: {', '.join(name for name in rows if (name, column) not in done)}" for column, rows in names.items()
    )


if __name__ == "__main__":
    main()
