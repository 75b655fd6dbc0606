"""How long training with a collective takes over slow links, forecast: nothing is trained, seconds of work.

    python results/2026-11-19-collectives/forecast.py > results/2026-11-19-collectives/forecasts.csv

Four nodes, a model of 30 million parameters of 32 bits, 0.05 seconds a local step, each node's link to the outside as
fast as the column says both ways, 10 ms from node to node; H local steps before each exchange; six rounds. By a ring
all-reduce on a cycle, by a server that everybody's model goes through (DiLoCo on a star), and by one along a tree.
`ring_by_formula` is 2 (V − 1) / V of a model through each node's link, beside the trainings.
"""

from __future__ import annotations

import csv
import sys

import walktalk as wt
from walktalk.protocols import DiLoCo, RingAllReduce

NODES, MODEL_BYTES, STEP, LATENCY, ROUNDS = 4, 4 * 30_000_000, 0.05, 0.01, 6
WAYS = {
    "ring": (RingAllReduce(parts=NODES), wt.graphs.cycle(NODES)),
    "server": (DiLoCo(), wt.graphs.star(NODES)),
    "tree": (DiLoCo(tree=True), wt.graphs.binary_tree(NODES)),
}


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["way", "steps", "mbit_per_second", "seconds_a_round", "utilization", "ring_by_formula"])
    for steps in (1, 8, 32, 128):
        for mbit in (50, 100, 250, 500, 1000):
            timing = wt.NetworkTiming(compute=STEP * steps, latency=LATENCY, node_bandwidth=mbit * 1e6, bandwidth=1e12)
            formula = STEP * steps + 2 * (NODES - 1) / NODES * MODEL_BYTES * 8 / (mbit * 1e6)
            for way, (protocol, graph) in WAYS.items():
                ends = [
                    wt.forecast(
                        protocol,
                        graph,
                        model_bytes=MODEL_BYTES,
                        timing=timing,
                        local_steps=steps,
                        stop=wt.Stop(iterations=rounds * NODES),
                    )
                    for rounds in (1, 1 + ROUNDS)
                ]
                # Between the ends of the first and of the last trainings lie whole rounds, exchanges and all.
                seconds = (ends[1].time - ends[0].time) / ROUNDS
                writer.writerow([way, steps, mbit, f"{seconds:.4g}", f"{STEP * steps / seconds:.4g}", f"{formula:.4g}"])


if __name__ == "__main__":
    main()
