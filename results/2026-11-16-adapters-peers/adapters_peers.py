"""Figure 8 with adapters over real peers on this machine: R = 1, 2, 4 and gossip, and what the simulator says of them.

    python results/2026-11-16-adapters-peers/adapters_peers.py --out results/2026-11-16-adapters-peers --repetitions 3

A small transformer (two blocks, 64 wide) has learned scikit-learn's digits as they are. Five kinds of hands write them
otherwise (turned left, turned right, upside down, mirrored, white on black), and a node has images of one kind alone,
as a node of Figure 8 has texts of one genre. Low-rank adapters learn all five; they alone are trained and sent. Every
node is a process of its own. From the first run with one walk the times of a training and of a hop are taken; with
them the same study is done in virtual time. Writes `runs.csv`, a line a run of either engine, and `table.md`. `--base`
keeps the small model that the nodes start from, else it is made anew.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from digit_reader import DigitReader, digits, learned_reader
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

import walktalk as wt
from walktalk.records import read_history, read_trace
from walktalk.studies import StudySpec, make_spec, run_study
from walktalk.studies.peers import run_on_peers

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from agreement import measured

WIDE, HELD_OUT = 64, 297
BEFORE = 600  # steps on images as they are
TARGETS = ["q_proj", "v_proj", "up", "down"]
KINDS = ("turned left", "turned right", "upside down", "mirrored", "white on black")
COLUMNS = (
    *("engine", "algorithm", "repetition", "iterations", "seconds", "ms_an_iteration", "sends", "bytes_a_send"),
    *("megabytes", "megabytes_whole", "first_loss", "loss", "mean_loss", "accuracy"),
)


def written(images: Tensor, kind: str) -> Tensor:
    """The same digits by another hand."""
    if kind == "white on black":
        return 1.0 - images
    ways = {
        "turned left": lambda x: torch.rot90(x, 1, (1, 2)),
        "turned right": lambda x: torch.rot90(x, 3, (1, 2)),
        "upside down": lambda x: torch.rot90(x, 2, (1, 2)),
        "mirrored": lambda x: x.flip(2),
    }
    return ways[kind](images).contiguous()


def handwriting(nodes: int = 10, *, base: str, rank: int = 4, mixing: str = "factors") -> wt.Task:
    """Digits by five kinds of hands, one kind a node.

    Args:
        nodes: how many share them.
        base: file with the model that has learned images as they are; every node reads it.
        rank: of the adapters; 0: the whole model trains.
        mixing: how adapters are averaged.
    """
    model = DigitReader(WIDE)
    model.load_state_dict(load_file(base))
    images, labels = digits()
    of = np.arange(len(images) - HELD_OUT) % len(KINDS)
    mine = torch.stack([written(images[k : k + 1], KINDS[of[k]])[0] for k in range(len(of))])
    parts = wt.split((mine, labels[: len(of)]), nodes, by=of)
    test = torch.cat([written(images[len(of) :], kind) for kind in KINDS]), labels[len(of) :].repeat(len(KINDS))
    torch.manual_seed(0)  # every node draws the same A
    adapted = wt.lora(model, rank, targets=TARGETS, mixing=mixing) if rank else model  # type: ignore[arg-type]
    return wt.tasks.torch(adapted, functional.cross_entropy, parts, test=test)


def study(options: argparse.Namespace, timing: dict[str, Any] | None = None) -> StudySpec:
    walks = [int(count) for count in options.walks.split(",")]
    return make_spec(
        {
            "name": "adapters-peers",
            "repetitions": options.repetitions,
            "network": {"topology": "erdos_renyi", "nodes": options.nodes, "p": 0.4},
            "task": {"name": "adapters_peers:handwriting", "base": str(options.base), "rank": options.rank},
            "algorithms": [{"name": "multi_walk", "walks": walks}, {"name": "async_gossip", "mixing": "pairwise"}],
            "training": {"batch_size": 16, "local_steps": 4, "optimizer_state": "node"},
            "optimizer": {"name": "adam", "lr": options.lr},
            "stop": {"iterations": options.iterations},
            "evaluate": {"every": max(1, options.iterations // 10)},
            **({} if timing is None else {"timing": {"model": "network", **timing}}),
        }
    )


def lines_of(engine: str, folder: Path, whole: float) -> list[dict[str, Any]]:
    """What each run of a study did; `whole` is how many times as large the whole model is."""
    found = []
    for file in sorted(folder.glob("runs/*/*/history.csv"), key=order):
        rows, trace = read_history(file), read_trace(file.with_name("trace.parquet"))
        sent = trace[(trace.event == "send") & (trace.slot != "")]
        trained = trace[trace.event == "trained"].time
        first, last = rows.iloc[0], rows.iloc[-1]
        found.append(
            {
                "engine": engine,
                "algorithm": first.algorithm,
                "repetition": first.repetition,
                "iterations": len(trained),
                "seconds": float(trained.iloc[-1]),
                "ms_an_iteration": 1e3 * float(trained.iloc[-1] - trained.iloc[0]) / (len(trained) - 1),
                "sends": len(sent),
                "bytes_a_send": float(sent.bytes.mean()),
                "megabytes": float(sent.bytes.sum()) / 1e6,
                "megabytes_whole": whole * float(sent.bytes.sum()) / 1e6,
                "first_loss": float(first.train_loss),
                "loss": float(last.train_loss),
                "mean_loss": float(last.mean_train_loss),
                "accuracy": float(last.test_accuracy),
            }
        )
    return found


def order(file: Path) -> tuple[bool, str, int]:
    """Walks by their number, then gossip."""
    algorithm, repetition = file.parts[-3:-1]
    return "walk" not in algorithm, algorithm, int(repetition)


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    options.base = Path(options.base).resolve() if options.base else (out / "base.safetensors").resolve()
    if not options.base.exists():
        save_file(learned_reader(WIDE, 0, BEFORE, HELD_OUT).state_dict(), options.base)
    began = time.perf_counter()
    real = run_on_peers(study(options), out / "peers", pace=options.pace, overwrite=True)
    print(f"peers: {time.perf_counter() - began:.0f} s", flush=True)
    first = sorted((out / "peers" / "runs").glob("multi_walk-*/0/trace.parquet"))[0]
    compute, spread, hop = measured(read_trace(first))
    timing = {"compute": compute, "spread": spread, "latency": hop, "bandwidth": 1e12}
    run_study(study(options, timing), out / "sim", overwrite=True)
    assert real.trainer is not None
    numbers = sum(p.numel() for p in real.trainer.template.parameters()) - real.trainer.parameters * bool(options.rank)
    whole = 4.0 * numbers / real.trainer.payload_bytes
    lines = [line for engine in ("peers", "sim") for line in lines_of(engine, out / engine, whole)]
    write(out, lines, options, real.trainer.payload_bytes, numbers, (compute, hop))


def write(
    out: Path,
    lines: Sequence[dict[str, Any]],
    options: argparse.Namespace,
    payload: int,
    numbers: int,
    times: tuple[float, float],
) -> None:
    with (out / "runs.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in line.items()} for line in lines)
    text = [
        f"{options.nodes} nodes, a process each, {options.iterations} iterations of 4 Adam steps with batch 16, a "
        f"training {1e3 * times[0]:.0f} ms (told to take {1e3 * options.pace:.0f} at least), a hop {1e3 * times[1]:.1f}"
        f" ms, {options.repetitions} repetitions (mean ± σ).",
        f"The base has {numbers:,} numbers, {4 * numbers:,} bytes, which every node reads from its disk; what trains "
        f"and travels is {payload:,} bytes, a {4 * numbers / payload:.0f}th.",
        "",
        "| | engine | loss | of the mean | test accuracy | sends | bytes a send | MB sent | ms an iteration |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for algorithm in dict.fromkeys(line["algorithm"] for line in lines):
        for engine in ("peers", "sim"):
            these = [line for line in lines if (line["engine"], line["algorithm"]) == (engine, algorithm)]
            cells = (
                ("loss", 3),
                ("mean_loss", 3),
                ("accuracy", 3),
                ("sends", 0),
                ("bytes_a_send", 0),
                ("megabytes", 2),
                ("ms_an_iteration", 1),
            )
            said = [spread_of([line[name] for line in these], digits) for name, digits in cells]
            text.append(f"| {algorithm} | {engine} | {' | '.join(said)} |")
    (out / "table.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


def spread_of(values: Sequence[float], digits: int) -> str:
    mean = f"{fmean(values):,.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {stdev(values):,.{digits}f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/adapters-peers")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--walks", default="1,2,4")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--pace", type=float, default=0.3, help="seconds of a training, at least")
    parser.add_argument("--base", default="", help="file of the base; made where there is none")
    return parser.parse_args()


if __name__ == "__main__":
    main()
