"""What DETAILS.md says about the GPU runs, computed again from their tables alone, as Markdown.

    python reproduction/paper_claims.py results/2026-11-15-paper-h200

Takes what is there, and says `not run` of what is missing: alpha-A/TOPOLOGY.csv and threshold/TOPOLOGY.csv
(paper_gpu.py), centralized/cycle.csv (the same with --centralized), fairness/fairness.csv (paper_fairness_gpu.py),
fig8/fig8.csv (paper_language_gpu.py), fig9 and fig9-without with fig9.csv and events.csv (paper_failures_gpu.py).
σ is that of the sample of repetitions; of a ratio or a difference of means, that of independent runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from claims import costs, failures, fairness, iterations, language, losses, splits, threshold
from claims.runs import settings_of


def main(folder: Path) -> None:
    for title, lines in sections(folder):
        print(f"## {title}\n")
        print("\n".join(lines), flush=True)


def sections(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Titles, and what stands below."""
    settings = settings_of(folder)
    yield "1. At the end", losses.final(settings, folder)
    yield "2. Before the learning rate falls", losses.before_decay(settings)
    yield "3. Per iteration", [*iterations.ahead(settings), *iterations.winners(settings, folder)]
    yield "4. The threshold of R", threshold.section(settings, folder)
    yield "5. Wall-clock time", costs.time(settings)
    yield "6. Transmitted data", costs.bits(settings, folder)
    yield "7. Optimizer state and learning rate", fairness.section(folder)
    yield "8. Topology and heterogeneity", losses.topology(settings)
    yield "9. Figure 8", language.section(folder)
    yield "10. Figure 9", failures.section(folder)
    yield "11. Figure 3", splits.section(dict.fromkeys(setting.alpha for setting in settings))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(f"usage: python {sys.argv[0]} FOLDER, such as results/2026-11-15-paper-h200")
    main(Path(sys.argv[1]))
