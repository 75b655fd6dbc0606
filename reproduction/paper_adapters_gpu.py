"""Figure 8 with adapters on one GPU: a pretrained language model whose low-rank adapters alone are trained and sent.

    python reproduction/paper_adapters_gpu.py --model FOLDER --data FOLDER --out FOLDER --time 200 --repetitions 1

Settings are those of `walktalk paper run fig8 --scale paper` (Table 6: 20 nodes, MultiNLI by genre, links that all
transfers of a node share) but for the adapters (`--rank`, at `--targets`; how they are averaged: `--mixing`), the
learning rate, and the end of a run, which is a virtual time, the same for every algorithm. The study is done once for
every bandwidth of `--gigabits`, all of them in one engine, so that waves are as wide as all nodes of all studies. With
`--rank 0` the whole model trains and travels, one bandwidth after another. Writes `fig8-adapters-G.csv` for G Gbit/s,
`to-loss.csv` (GB and virtual hours until the loss was first at or below a target) and `facts.json`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from paper_runs import Speed, tell, together, write_facts, write_records
from walktalk.reproduction.paper.figures import settings
from walktalk.studies import RunRecord, StudySpec, make_spec, planned_runs, prepare, spec_mapping

COLUMNS = ("gigabits", "algorithm", "repetition", "loss", "iterations", "hours", "gigabytes")


def main() -> None:
    options = arguments()
    specs = {gigabits: spec_of(options, gigabits) for gigabits in options.gigabits.split(",")}
    trainer = prepare(next(iter(specs.values())), options.device).trainer
    if trainer.device.type == "cuda":
        trainer.model.samples_at_once = 250
    studies = {gigabits: planned_runs(spec, trainer) for gigabits, spec in specs.items()}
    out, speed = Path(options.out), Speed()
    facts: dict[str, Any] = {
        "settings": vars(options),
        "spec": spec_mapping(next(iter(specs.values()))),
        "parameters": sum(p.numel() for p in trainer.template.parameters()),
        "trained": trainer.parameters,
        "bytes_of_a_model": trainer.payload_bytes,
        "form": type(trainer.model).__name__,
    }
    found: dict[str, list[RunRecord]] = {}
    for group in [studies] if options.rank else [{name: runs} for name, runs in studies.items()]:
        found |= together(trainer, group, speed, "fig8 with adapters" if options.rank else "fig8")
        for gigabits, records in found.items():
            write_records(out / f"fig8-adapters-{gigabits}.csv", records)
        write_to_loss(out / "to-loss.csv", found, [float(loss) for loss in options.losses.split(",")])
        write_facts(out / "facts.json", {**facts, **speed.facts()})
    for gigabits, records in found.items():
        tell(f"{gigabits} Gbit/s,", records)


def write_to_loss(path: Path, found: Mapping[str, Sequence[RunRecord]], losses: Sequence[float]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for gigabits, records in found.items():
            for record in records:
                table.writerows((gigabits, record.label, record.repetition, *line) for line in reached(record, losses))


def reached(record: RunRecord, losses: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Every target that was reached: the target, and iterations, hours and gigabytes until then."""
    for target in losses:
        row = next((row for row in record.history if row.train_loss <= target), None)
        if row is not None:
            yield target, row.iteration, round(row.time / 3600, 5), round(row.bits / 8e9, 4)


def spec_of(options: argparse.Namespace, gigabits: str) -> StudySpec:
    base = settings("language", "paper")
    task: dict[str, Any] = {
        "name": "mnli",
        "model": options.model,
        "head": "causal",
        "split": "genre",
        "folder": options.data,
        "max_length": options.max_length,
        "test_samples": options.samples,
    }
    if options.rank:
        targets = options.targets.split(",")
        task["adapter"] = {"kind": "lora", "rank": options.rank, "targets": targets, "mixing": options.mixing}
    if options.train_samples:
        task["samples"] = options.train_samples
    walks = [int(count) for count in options.walks.split(",")]
    return make_spec(
        {
            **base,
            "task": task,
            "repetitions": options.repetitions,
            "stop": {"time": options.time},
            "training": {**base["training"], "precision": options.precision},
            "optimizer": {**base["optimizer"], "lr": options.lr},
            "timing": {
                **base["timing"],
                "compute": options.compute,
                "bandwidth": 1e9 * float(gigabits),
                "node_bandwidth": 1e9 * float(gigabits),
            },
            "algorithms": [{"name": "multi_walk", "walks": walks}, {"name": "async_gossip", "mixing": "pairwise"}],
            "evaluate": {"seconds": options.every, "samples": options.samples},
        }
    )


def arguments() -> argparse.Namespace:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", required=True, help="folder or name of a causal model of transformers, or a GGUF file"
    )
    parser.add_argument("--data", required=True, help="folder with MultiNLI as JSON lines")
    parser.add_argument("--out", required=True)
    parser.add_argument("--gigabits", default="10,25,40,100", help="of links and of nodes, one study each")
    parser.add_argument("--rank", type=int, default=16, help="0: the whole model")
    parser.add_argument("--targets", default="q_proj,v_proj")
    parser.add_argument("--mixing", default="factors", choices=("factors", "freeze-a", "product"))
    parser.add_argument("--time", type=float, default=200.0, help="virtual seconds of a run")
    parser.add_argument("--compute", type=float, default=0.2, help="virtual seconds of one training, on average")
    parser.add_argument("--walks", default="1,2,4")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--every", type=float, default=10.0, help="virtual seconds between evaluations")
    parser.add_argument("--samples", type=int, default=500, help="of the training and of the test data, to evaluate")
    parser.add_argument("--train-samples", type=int, default=0, help="0: all that there are")
    parser.add_argument("--max-length", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-3, help="adapters take ten times that of whole models")
    parser.add_argument("--losses", default="1.0,0.7,0.56", help="targets of to-loss.csv")
    parser.add_argument("--precision", default="bf16" if on_gpu else "fp32")
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
