"""Figure 9 on one GPU: CIFAR-10, the aggregator killed at a third and at two thirds of the time.

    python reproduction/paper_failures_gpu.py --data FOLDER --out FOLDER --repetitions 3 --compute 1.0

Settings are those of `walktalk paper run fig9 --scale paper` but for the repetitions and the seconds that a training
takes (`--compute`; the preset has 0.5): the same 900 virtual seconds then hold fewer iterations. Gossip loses the same
nodes. Writes `fig9.csv`, `events.csv` (who was killed and elected, and which walks were made again) and
`facts.json`; with `--without FOLDER` the same runs are done without failures, too, and written there.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paper_runs import Speed, tell, together, write_facts, write_records
from walktalk.records import TRACE_COLUMNS
from walktalk.reproduction import paper
from walktalk.studies import RunRecord, StudySpec, planned_runs, prepare, spec_mapping

SHOWN = ("kill", "elected", "forked", "restarted", "stepped_down")
COLUMNS = ("time", "event", "node", "walk", "detail")


def main() -> None:
    options = arguments()
    specs = {options.out: spec_of(options)}
    if options.without:
        specs[options.without] = spec_of(options, {"faults": []})
    ready, speed = prepare(specs[options.out], options.device), Speed()
    studies = {folder: planned_runs(spec, ready.trainer) for folder, spec in specs.items()}
    for folder, records in together(ready.trainer, studies, speed, "fig9", traces=True).items():
        write(Path(folder), records)
        facts = {"settings": vars(options), "spec": spec_mapping(specs[folder]), **speed.facts()}
        write_facts(Path(folder) / "facts.json", facts)
        tell(folder, records)


def spec_of(options: argparse.Namespace, more: dict[str, Any] | None = None) -> StudySpec:
    (spec,) = paper.panel_specs(
        paper.figure("fig9"),
        "smoke" if options.digits else "paper",
        {
            "repetitions": options.repetitions,
            "timing": {"compute": options.compute},
            "task": {} if options.digits else {"folder": options.data},
            "evaluate": {"seconds": options.every, "samples": 2500},
            **(more or {}),
        },
    ).values()
    return spec


def write(out: Path, records: Sequence[RunRecord]) -> None:
    write_records(out / "fig9.csv", records)
    with (out / "events.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("algorithm", "repetition", *COLUMNS))
        table.writerows(row for record in records for row in events(record))


def events(record: RunRecord) -> Iterator[tuple[object, ...]]:
    """What the failures brought about, in order."""
    place = {name: TRACE_COLUMNS.index(name) for name in COLUMNS}
    for row in record.trace:
        if row[place["event"]] in SHOWN:
            yield (record.label, record.repetition, *(row[place[name]] for name in COLUMNS))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the official CIFAR-10 binary files, if not in the usual place")
    parser.add_argument("--digits", action="store_true", help="digits in place of CIFAR-10: a try on a CPU")
    parser.add_argument("--out", required=True)
    parser.add_argument("--without", default="", help="folder for the same runs without failures")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--compute", type=float, default=1.0, help="virtual seconds of one training")
    parser.add_argument("--every", type=float, default=50.0, help="virtual seconds between evaluations")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
