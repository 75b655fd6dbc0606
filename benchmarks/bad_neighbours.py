"""What one bad neighbour costs the others: their rate of trainings before and with it, and whether `status` names it.

Four real nodes on loopback, in threads of one process; trainings wait rather than compute, so a busy machine changes
little. A quarter into the run node n1 turns bad in one way. Rates are those of the three others: over the seconds
before that, and from 30 to 60 s after it.

    python benchmarks/bad_neighbours.py [--out DIR] [--only multi_walk,fedavg] [--kinds hang,deaf] [--at-once 4]

Rows that a folder has already are kept, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import logging
import multiprocessing
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from walktalk import graphs
from walktalk.protocols import PROTOCOLS
from walktalk.runtimes.peers import Node
from walktalk.runtimes.semantics import Stop
from walktalk.testing.chaos.byzantine import FORGES, Forger
from walktalk.testing.chaos.misbehaviour import DEAF, FALSE_COUNTS, FALSE_LIVES, MUTE, STALLS, Misbehaviour
from walktalk.testing.cluster import LocalCluster, SlowTrainer, running, wait_for

BAD, NODES = 1, 4
SOON = 30.0  # seconds after which the others' rate is to be back
ENOUGH = 0.7  # of what it was
STEP = 5  # seconds
ALGORITHMS = {"multi_walk": {"walks": 3}, "async_gossip": {}, "local_dsgd": {}, "fedavg": {}}
KINDS = {
    "hang": STALLS,
    "died": "",
    "deaf": DEAF,
    "mute": MUTE,
    "notes": FORGES,
    "counts": FALSE_COUNTS,
    "lives": FALSE_LIVES,
}
"""A training that hangs; a training thread that has ended; no acknowledgements; an algorithm that hears of no model;
forged messages (models that are none, empty and deep notes, numbers, replays); false counts; false lives."""


class Cell(NamedTuple):
    algorithm: str
    kind: str


class Row(NamedTuple):
    algorithm: str
    kind: str
    before: float  # trainings a second of the three others
    after: float  # the same from `SOON` on, over as long
    share: float
    back_after: float  # seconds until ten seconds in a row had `ENOUGH` of the rate; -1: never
    named_after: float  # seconds until one of the others named it; -1: never
    said: str  # what that one said
    course: str  # the rate in each `STEP` seconds since the node turned bad


class Pausing(SlowTrainer):
    seconds = 0.25


def others(cluster: LocalCluster) -> int:
    return sum(node.progress.tally.own.iterations for v, node in enumerate(cluster.nodes) if v != BAD)


def turn_bad(node: Node, kind: str) -> None:
    """From now on it is bad."""
    if kind == "died":
        node.training.queue._thread._jobs.put(None)  # the thread ends, and says nothing
        return
    (node.setup.folder / KINDS[kind]).touch()


def naming(cluster: LocalCluster) -> str:
    """What one of the others says of the bad one."""
    name = cluster.nodes[BAD].link.endpoint.name
    for v, node in enumerate(cluster.nodes):
        said = [*node.health.complaints(), *node.health.warnings()] if v != BAD else []
        if found := [line for line in said if re.search(rf"\b{name}\b", line)]:
            return f"n{v}: {found[0]}"
    return ""


def measure(cell: Cell, seconds: float) -> Row:
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda args: None
    protocol = PROTOCOLS.find(cell.algorithm)(**ALGORITHMS.get(cell.algorithm, {}))
    graph = graphs.star(NODES) if protocol.meets_newcomers else graphs.complete(NODES)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running(protocol, graph, Path(folder), Stop(time=3600.0), trainer=Pausing(NODES)) as cluster,
    ):
        bad = cluster.nodes[BAD]
        Misbehaviour(bad)
        Forger(bad, bad.setup.folder / FORGES).start()
        wait_for(lambda: all(n.progress.tally.own.iterations > 3 for n in cluster.nodes), "a beginning")
        time.sleep(3.0)
        before = rate(lambda: others(cluster), seconds)
        turn_bad(bad, cell.kind)
        began, counts, named, said = time.monotonic(), [(0.0, others(cluster))], -1.0, ""
        while (now := time.monotonic() - began) < 2 * SOON:
            counts.append((now, others(cluster)))
            if not said and (said := naming(cluster)):
                named = now
            time.sleep(0.5)
        after = between(counts, SOON, 2 * SOON)
        course = " ".join(f"{between(counts, at, at + STEP):.1f}" for at in range(0, int(2 * SOON), STEP))
        return Row(*cell, before, after, after / before, back_after(counts, ENOUGH * before), named, said, course)


def between(counts: list[tuple[float, int]], since: float, until: float) -> float:
    """The rate between two moments."""
    first = next((count for count in counts if count[0] >= since), counts[-1])
    last = next((count for count in counts if count[0] >= until), counts[-1])
    return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)


def rate(count: Callable[[], int], seconds: float) -> float:
    began, done = time.monotonic(), count()
    time.sleep(seconds)
    return (count() - done) / (time.monotonic() - began)


def back_after(counts: list[tuple[float, int]], enough: float) -> float:
    """The first moment from which ten seconds have such a rate."""
    last = counts[-1][0] - 10.0
    return next((at for at, _ in counts if at <= last and between(counts, at, at + 10.0) >= enough), -1.0)


def known(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Row(r["algorithm"], r["kind"], *(float(r[name]) for name in Row._fields[2:7]), r["said"], r["course"])
            for r in csv.DictReader(file)
        ]


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Row._fields)
        for row in rows:
            table.writerow(round(value, 2) if isinstance(value, float) else value for value in row)


def in_words(row: Row) -> str:
    named = f"named after {row.named_after:.0f} s: {row.said}" if row.said else "not named"
    held = "" if row.share >= ENOUGH and 0 <= row.back_after <= SOON else "  BELOW 70 %"
    return f"{row.algorithm:14s} {row.kind:7s} {row.before:5.1f} → {row.after:5.1f}/s {row.share:5.0%}{held}  {named}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/bad-neighbours"))
    parser.add_argument("--only", default=",".join(ALGORITHMS), help="algorithms, any that survives failures")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=15.0, help="over which the rate before is measured")
    parser.add_argument("--at-once", type=int, default=3)
    args = parser.parse_args()
    path = args.out / "rates.csv"
    rows = known(path)
    done = {(row.algorithm, row.kind) for row in rows}
    wanted = [Cell(a, k) for a in args.only.split(",") for k in args.kinds.split(",")]
    left = [cell for cell in wanted if cell not in done]
    print(
        f"{len(left)} of {len(wanted)} cells, {args.at_once} at once, about {2 * SOON + args.seconds + 10:.0f} s each"
    )
    with multiprocessing.get_context("spawn").Pool(args.at_once, maxtasksperchild=1) as pool:
        results = [pool.apply_async(measure, (cell, args.seconds)) for cell in left]
        for result in results:
            rows.append(row := result.get(600.0))
            write(path, rows)
            print(in_words(row), flush=True)
    print(f"{sum(row.share >= ENOUGH for row in rows)} of {len(rows)} at 70 % or more; {path}")


if __name__ == "__main__":
    main()
