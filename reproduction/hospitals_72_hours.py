"""Eight hospitals for 72 hours: what went wrong in a real consortium's runs does not, and what it costs.

    OMP_NUM_THREADS=1 python reproduction/hospitals_72_hours.py --out results/2026-11-19-hospitals-72h

The sites are those of `eight_hospitals.py`. A pass of the largest over its data takes three hours, in which it sends no
model; most others take minutes. Models have 689 MB, every site a VPN of 30 Mbit/s. In virtual time, with and without:
two sites that come two seconds late, a GPU that is gone for six hours, a VPN that is down for two and a half, and a
machine that is killed and comes back after one. `sites.csv` has a line for each site, `hours.csv` one for each
of these. It prints the tables.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

import walktalk as wt
from eight_hospitals import BATCH, PATIENTS, hospitals
from walktalk.protocols import AsyncGossip, FedAvg, MultiWalk, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger

HOUR = 3600.0
HOURS, LARGEST = 72.0, 3.0  # of the run, and of the largest site's pass over its data
MODEL, VPN = 689e6, 30e6  # bytes, and bits a second
SMALL = 9640  # bytes of the model that is trained here in its place
BEAT, PATIENCE = 300.0, 1800.0  # seconds between heartbeats, and that gossip and a server wait for a silent node
PROTOCOLS: tuple[Protocol, ...] = (
    FedAvg(patience=PATIENCE),
    MultiWalk(walks=3, heartbeat=BEAT),
    AsyncGossip(patience=PATIENCE),
)


class Trouble(NamedTuple):
    """Something that happens to a site."""

    entry: str  # of the consortium's catalogue
    words: str
    site: int
    fault: dict[str, Any]
    hours: float


TROUBLES = (
    Trouble("F8", "comes two seconds late", 5, {"kind": "join", "node": 5, "at": 2.0}, 0.0),
    Trouble("F8", "comes two seconds late", 6, {"kind": "join", "node": 6, "at": 2.0}, 0.0),
    Trouble("F2", "its GPU is gone", 3, {"kind": "hang", "node": 3, "at": 20 * HOUR, "seconds": 6 * HOUR}, 6.0),
    Trouble("F6", "its VPN is down", 1, {"kind": "partition", "nodes": [1], "at": 36 * HOUR, "seconds": 9000.0}, 2.5),
    Trouble("F3", "is killed, comes back", 4, {"kind": "kill", "node": 4, "at": 50 * HOUR, "seconds": HOUR}, 1.0),
)


class Site(NamedTuple):
    """What became of one site in one run."""

    algorithm: str
    troubled: bool
    seed: int
    site: int
    patients: int
    trainings: int
    silent: float  # hours at most between the ends of two of its trainings
    in_the_model: float  # share of its updates that are in the final model, but for those of the last 12 hours
    accuracy: float  # of the final model on its data


class Cost(NamedTuple):
    """What one trouble cost in one run."""

    algorithm: str
    seed: int
    entry: str
    words: str
    site: int
    hours: float  # that it lasted
    back_after: float  # hours after its end until the site had trained again
    others: float  # trainings of all others meanwhile, beside those in the same hours without any trouble


def run(task: wt.Task, protocol: Protocol, troubled: bool, seed: int) -> wt.Run:
    """72 hours in virtual time. The model that travels is a small one, and links are slower by as much."""
    of_each = [max(1, round(len(part) / BATCH)) for part in task.parts]
    vpn = VPN * SMALL / MODEL
    return wt.train(
        task,
        protocol,
        wt.graphs.complete(len(PATIENTS)),
        optimizer=wt.SGD(lr=0.1, momentum=0.9),
        timing=wt.NetworkTiming(
            compute=LARGEST * HOUR / of_each[0] * fmean(of_each),  # a step takes as long everywhere
            spread=0.05,
            latency=0.02,
            up=vpn,
            down=vpn,
        ),
        stop=wt.Stop(time=HOURS * HOUR),
        evaluate=wt.Evaluate(every=None, seconds=HOUR),
        batch_size=BATCH,
        local_steps={"epochs": 1.0},
        objective="samples",
        faults=[trouble.fault for trouble in TROUBLES] if troubled else [],
        seed=seed,
        progress=False,
    )


def books(done: wt.Run, protocol: Protocol) -> tuple[np.ndarray, np.ndarray, bool]:
    """By number of the training, its site and whether it is in the final model; and whether any counts twice."""
    rows = [TraceRow(*row) for row in done.trace.itertuples(index=False)]
    begun = [row for row in rows if row.event == "train"]
    ledger = Ledger(protocol, len(PATIENTS), max(row.number for row in begun) + 1).play(rows)
    site = np.full(len(ledger.nothing), -1)
    for row in begun:
        site[row.number] = row.node
    ended = {row.number: row.time for row in rows if row.event == "trained"}
    site[[n for n in range(len(site)) if ended.get(n, HOURS * HOUR) > (HOURS - 12) * HOUR]] = -1
    weights = ledger.interpreter.output.model("aggregated")
    usual = {v: float(np.median(weights[site == v])) for v in range(len(PATIENTS))}
    return site, np.array([w > 0.01 * usual.get(v, 0.0) for w, v in zip(weights, site, strict=True)]), ledger.sound


def accuracies(task: wt.Task, done: wt.Run) -> list[float]:
    """Of the final model on every site's data."""
    model = done.model.eval()
    with torch.no_grad():
        found = [(model(task.inputs[part]).argmax(1) == task.targets[part]).float().mean() for part in task.parts]
    return [float(one) for one in found]


def sites(task: wt.Task, protocol: Protocol, done: wt.Run, troubled: bool, seed: int) -> list[Site]:
    site, counted, sound = books(done, protocol)
    if not sound:
        raise SystemExit(f"{protocol.label}: an update counts twice")
    if done.history["time"].iloc[-1] < (HOURS - 3.5) * HOUR:
        raise SystemExit(f"{protocol.label}: it ended after {done.history['time'].iloc[-1] / HOUR:.1f} hours")
    found = []
    for v, (patients, accuracy) in enumerate(zip(PATIENTS, accuracies(task, done), strict=True)):
        ends = trainings_of(done, [v])
        gaps = np.diff([0.0, *ends, HOURS * HOUR]) / HOUR
        share = float(counted[site == v].mean())
        found.append(Site(protocol.name, troubled, seed, v, patients, len(ends), float(gaps.max()), share, accuracy))
    return found


def trainings_of(done: wt.Run, nodes: Sequence[int]) -> list[float]:
    """When trainings of these ended."""
    trace = done.trace
    return sorted(trace.loc[(trace["event"] == "trained") & trace["node"].isin(nodes), "time"])


def costs(protocol: Protocol, quiet: wt.Run, done: wt.Run, seed: int) -> list[Cost]:
    found = []
    for trouble in TROUBLES:
        begin = float(trouble.fault["at"])
        end = begin + HOUR * trouble.hours
        back = next((at for at in trainings_of(done, [trouble.site]) if at >= end), np.inf)
        others = [v for v in range(len(PATIENTS)) if v != trouble.site]
        meanwhile = [sum(begin <= at < end for at in trainings_of(one, others)) for one in (done, quiet)]
        share = meanwhile[0] / meanwhile[1] if meanwhile[1] else np.nan
        found.append(Cost(protocol.name, seed, *trouble[:3], trouble.hours, (back - end) / HOUR, share))
    return found


def write(path: Path, rows: Sequence[Site | Cost]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        for row in rows:
            writer.writerow(round(value, 4) if isinstance(value, float) else value for value in row)


def tables(of_sites: Sequence[Site], of_costs: Sequence[Cost]) -> str:
    """Both, as Markdown; means over seeds."""
    lines = ["| algorithm | | entry | site | hours | trained again after its end, hours | others meanwhile |"]
    lines.append("| --- " * 7 + "|")
    for protocol in PROTOCOLS:
        for place, trouble in enumerate(TROUBLES):
            rows = [row for row in of_costs if row.algorithm == protocol.name][place :: len(TROUBLES)]
            back, others = fmean(row.back_after for row in rows), fmean(row.others for row in rows)
            beside = "" if np.isnan(others) else f"{others:.0%}"
            lines.append(
                f"| {protocol.name} | {trouble.words} | {trouble.entry} | {trouble.site} | {trouble.hours:g} "
                f"| {back:.1f} | {beside} |"
            )
    lines += ["", "| algorithm | trouble | " + " | ".join(f"{count:,}" for count in PATIENTS) + " |"]
    lines.append("| --- " * (2 + len(PATIENTS)) + "|")
    for protocol in PROTOCOLS:
        for troubled in (False, True):
            chosen = [row for row in of_sites if (row.algorithm, row.troubled) == (protocol.name, troubled)]
            cells = []
            for v in range(len(PATIENTS)):
                rows = [row for row in chosen if row.site == v]
                numbers = [fmean(getattr(row, name) for row in rows) for name in Site._fields[5:]]
                cells.append(f"{numbers[0]:.0f}, {numbers[1]:.1f} h, {numbers[2]:.0%}, {numbers[3]:.1%}")
            lines.append(f"| {protocol.name} | {'yes' if troubled else 'no'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    of_sites: list[Site] = []
    of_costs: list[Cost] = []
    for seed in range(args.seeds):
        task = hospitals(seed)
        for protocol in PROTOCOLS:
            quiet, done = (run(task, protocol, troubled, seed) for troubled in (False, True))
            of_sites += sites(task, protocol, quiet, False, seed) + sites(task, protocol, done, True, seed)
            of_costs += costs(protocol, quiet, done, seed)
            print(f"seed {seed}: {protocol.label}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    write(args.out / "sites.csv", of_sites)
    write(args.out / "hours.csv", of_costs)
    print(tables(of_sites, of_costs))


if __name__ == "__main__":
    main()
