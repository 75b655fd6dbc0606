"""D²'s cells of Table 1 in small enough for a CPU: VGG-11 with a quarter of its channels, all else as published.

    python results/2026-11-18-published/d2_narrow.py --weights exact --rows d2-m-ring --columns alpha0.1 --folder FOLDER --out out/narrow

CIFAR-10, the split of the first published seed, 16 workers on a ring, 19,400 rounds, the cell's own learning rate and
bf16. `exact`: weights that sum to one in 32 bits, as D² has them; `nearest`: all three are the number of 32 bits next
to 1/3, as it had when the cells of Table 1 were run. A cell takes about 70 minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.protocols import D2, Machine, NetworkView
from walktalk.protocols.effects import Combine, Effect
from walktalk.protocols.gossip.d2 import MIXED, ExactDiffusion
from walktalk.protocols.mechanisms.meeting import HALF, Meeting
from walktalk.reproduction.published import Row, find_table, run_table

ALGORITHMS: Mapping[str, str] = {"exact": "d2", "nearest": "d2_narrow:NearestD2"}


@dataclass(frozen=True)
class NearestD2(D2):
    """D² with weights as they come, which sum to one almost."""

    name: ClassVar[str] = "nearest_d2"
    title: ClassVar[str] = "D², weights nearest to 1/3"

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(network_view, NearestDiffusion(self.lazy))


class NearestDiffusion(ExactDiffusion):
    """Its averaging alone is another."""

    __slots__ = ()

    def mix(self, meeting: Meeting) -> list[Effect]:
        _, *rest = super().mix(meeting)
        return [Combine(MIXED, meeting.mean(HALF, "round", self.lazy)), *rest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", choices=list(ALGORITHMS), required=True)
    parser.add_argument("--rows", default="d2-ring,d2-m-ring", help="separated by commas")
    parser.add_argument("--columns", default="alpha0.1,alpha0.01", help="separated by commas")
    parser.add_argument("--width", type=float, default=0.25, help="the share of VGG-11's channels")
    parser.add_argument("--folder", required=True, help="where CIFAR-10 is")
    parser.add_argument("--out", type=Path, required=True, help="where histories go, in a folder of the weights' name")
    options = parser.parse_args()
    published = find_table("table1")
    table = replace(published, rows=tuple(with_weights(row, options.weights) for row in published.rows))
    run_table(
        table,
        "paper",
        options.out / options.weights,
        rows=options.rows.split(","),
        columns=options.columns.split(","),
        changes={"task": {"folder": options.folder, "width": options.width}},
        device="cpu",
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )


def with_weights(row: Row, weights: str) -> Row:
    return replace(row, algorithm={**row.algorithm, "name": ALGORITHMS[weights]}) if row.name.startswith("d2") else row


if __name__ == "__main__":
    main()
