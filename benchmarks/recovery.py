"""How soon are failures noticed and mended? In virtual time, over seeds, on three graphs of 20 nodes.

Detection and recovery of the aggregator in heartbeats (the killed one's silence is suspected; the next one mixes for
the first time); a lost walk's replacement in mean return times (V steps of a walk).

    python benchmarks/recovery.py [--seeds 20] [--json]
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Any

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import MultiWalk
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, RunSetup, Simulation

NODES, KILLED_AT, UNTIL = 20, 400.0, 1300.0


def trace_of(graph: Graph, node: int | str, seed: int, at: float) -> list[tuple[Any, ...]]:
    plan = FaultPlan((Fault("kill", at=at, node=node),), Seed(seed))
    setup = RunSetup(
        MultiWalk(walks=4), graph, Seed(seed), Stop(time=UNTIL), PoissonTiming(), faults=plan, keep_schedule=False
    )
    return Simulation(setup).advance().trace


def aggregator_dies(graph: Graph, seed: int) -> tuple[float, float]:
    """Seconds, which are heartbeats here, until it is suspected and until the next one mixes."""
    trace = trace_of(graph, "aggregator", seed, KILLED_AT + seed / 7)
    killed = next(row[0] for row in trace if row[2] == "kill")
    suspected = next(row[0] for row in trace if row[2] == "suspected")
    mixed = next(row[0] for row in trace if row[2] == "record" and row[11] == "aggregate" and row[5] > 1)
    return suspected - killed, mixed - killed


def walk_dies(graph: Graph, seed: int) -> float | None:
    """Mean return times (V steps of one second) from the death of a walk to its restart; None where it was not lost."""
    quiet = trace_of(graph, 0, seed, at=UNTIL)  # the same run up to the death: where is a walk, away from node 0?
    busy: dict[int, int] = {}
    for row in (row for row in quiet if row[0] <= KILLED_AT and row[2] in ("train", "trained")):
        busy[row[1]] = row[5] if row[2] == "train" else -1
    node, walk = next((node, walk) for node, walk in busy.items() if walk > 0 and node != 0)
    trace = trace_of(graph, node, seed, at=KILLED_AT)
    restarts = [row[0] for row in trace if row[2] == "restarted" and row[5] == walk and row[0] > KILLED_AT]
    return (restarts[0] - KILLED_AT) / NODES if restarts else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for graph in (graphs.erdos_renyi(NODES, p=0.3, seed=1), graphs.cycle(NODES), graphs.complete(NODES)):
        pairs = [aggregator_dies(graph, seed) for seed in range(args.seeds)]
        walks = [found for seed in range(args.seeds) if (found := walk_dies(graph, seed)) is not None]
        results.append(
            {
                "graph": graph.name,
                "detection": median(p[0] for p in pairs),
                "recovery": median(p[1] for p in pairs),
                "replacement": median(walks) if walks else None,
                "walks_lost": len(walks),
            }
        )
    if args.json:
        value = results[0]["recovery"]
        print(json.dumps({"name": "recovery", "value": value, "baseline": 1.0, "ratio": value, "graphs": results}))
        return
    for r in results:
        replaced = (
            f"{r['replacement']:.1f} mean return times ({r['walks_lost']} lost)" if r["replacement"] else "none lost"
        )
        print(
            f"{r['graph']}: aggregator suspected after {r['detection']:.1f} heartbeats, next one mixes after "
            f"{r['recovery']:.1f}; a lost walk is replaced after {replaced}"
        )


if __name__ == "__main__":
    main()
