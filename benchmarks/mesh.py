"""How long do nodes take to start and find all their neighbours? Processes on this machine, from nothing to a mesh.

python benchmarks/mesh.py [--nodes 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from walktalk.runtimes.peers import STATUS, Fleet, ask_everyone
from walktalk.studies import make_spec
from walktalk.studies.peers import NodeJob, local_cluster, run_node
from walktalk.studies.planning import prepare

AIM = 15.0  # seconds, for 20 nodes on 2 cores


def mesh(nodes: int, folder: Path) -> float:
    """Seconds until every node has met all its neighbours and the first training is done."""
    spec = make_spec(
        {
            "name": "mesh",
            "network": {"topology": "erdos_renyi", "nodes": nodes, "p": 0.3},
            "stop": {"time": 600.0},
            "algorithms": [{"name": "multi_walk", "walks": 4}],
        }
    )
    run = prepare(spec, "cpu").runs[0]
    cluster = local_cluster(spec, run, folder, pace=0.1)
    names, graph = list(cluster.nodes), run.setup.graph
    began = time.monotonic()
    fleet = Fleet(run_node, [NodeJob(cluster, name) for name in names], names)
    try:
        while time.monotonic() < began + 10 * AIM:
            answers = ask_everyone(cluster, STATUS, 2.0)
            said = enumerate(answers.values())
            met = [a is not None and len(a["alive"]) == len(graph.neighbours(v)) for v, a in said]
            if all(met) and any(a["iterations"] for a in answers.values() if a):
                return time.monotonic() - began
    finally:
        fleet.stop()
    raise SystemExit("they do not find each other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = mesh(args.nodes, Path(folder))
    result = {"name": "mesh", "value": seconds, "baseline": AIM, "ratio": seconds / AIM, "nodes": args.nodes}
    print(json.dumps(result) if args.json else f"{args.nodes} nodes train together after {seconds:.1f} s")


if __name__ == "__main__":
    main()
