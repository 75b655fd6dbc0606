"""Does the simulator predict what real peers take? Time per iteration, measured and predicted.

On a cycle and a complete graph, with the times of computations and links measured in the same run.

    python benchmarks/agreement.py [--nodes 6] [--walks 2] [--iterations 400] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from walktalk.records import read_trace
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, Simulation, Stop
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers
from walktalk.studies.run import prepare


def compare(topology: str, args: argparse.Namespace) -> dict[str, Any]:
    """One run on real processes, and the same in virtual time."""
    spec = make_spec({
        "name": "agreement", "network": {"topology": topology, "nodes": args.nodes},
        "algorithms": [{"name": "multi_walk", "walks": args.walks}], "training": {"local_steps": args.steps},
        "stop": {"iterations": args.iterations}, "evaluate": {"every": args.iterations},
    })  # fmt: skip
    ready = prepare(spec, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        run_on_peers(spec, Path(folder) / "out")
        trace = read_trace(next((Path(folder) / "out" / "runs").glob("*/0/trace.parquet")))
    compute, spread, hop = measured(trace)
    trained = trace[trace.event == "trained"].time
    real = (trained.iloc[-1] - trained.iloc[0]) / (len(trained) - 1)
    setup = ready.runs[0].setup
    timing = NetworkTiming(compute=compute, spread=spread, latency=hop, bandwidth=1e12)
    stop = Stop(iterations=20 * args.iterations)
    simulation = Simulation(RunSetup(setup.protocol, setup.graph, setup.seed, stop, timing, keep_trace=False,
                                     keep_schedule=False))  # fmt: skip
    simulation.advance()
    predicted = simulation.agenda.now / simulation.iteration
    return {
        "topology": topology, "compute_ms": 1e3 * compute, "hop_ms": 1e3 * hop, "measured_ms": 1e3 * real,
        "predicted_ms": 1e3 * predicted, "ratio": predicted / real,
    }  # fmt: skip


def measured(trace: Any) -> tuple[float, float, float]:
    """Seconds of one training and σ of their logarithm, and seconds of one hop from its sending to its arrival."""
    began = {row.number: row.time for row in trace[trace.event == "train"].itertuples()}
    ends = [(row.time - began[row.number]) for row in trace[trace.event == "trained"].itertuples()]
    sent = {row.number: row.time for row in trace[(trace.event == "send") & (trace.slot != "")].itertuples()}
    received = trace[(trace.event == "receive") & (trace.slot != "")]
    hops = [row.time - sent[row.number] for row in received.itertuples() if row.number in sent]
    return fmean(ends), pstdev(math.log(max(seconds, 1e-6)) for seconds in ends), max(fmean(hops), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--walks", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = [compare(topology, args) for topology in ("cycle", "complete")]
    worst = max(results, key=lambda r: abs(r["ratio"] - 1.0))
    if args.json:
        print(json.dumps({"name": "agreement", "value": worst["predicted_ms"], "baseline": worst["measured_ms"],
                          "ratio": worst["ratio"], "graphs": results}))  # fmt: skip
        return
    for r in results:
        parts = f"a training {r['compute_ms']:6.2f} ms, a hop {r['hop_ms']:5.2f} ms"
        whole = f"measured {r['measured_ms']:6.2f} ms, predicted {r['predicted_ms']:6.2f} ms ({r['ratio']:.2f})"
        print(f"{r['topology']:9} {parts}; an iteration: {whole}")


if __name__ == "__main__":
    main()
