"""Does the simulator predict what real peers take? Time per iteration, measured and predicted.

On a cycle and a complete graph, on this machine: first a short run, from which the times of trainings and hops are
taken; with these the simulator predicts; then the run that is predicted. Again and again, because the machine has other
things to do. `agreement_sites.py` does it over slow links.

    python benchmarks/agreement.py [--nodes 6] [--walks 2] [--iterations 600] [--repeats 3] [--pace 0.02] [--out DIR]
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from walktalk.records import read_trace
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup, Simulation
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers
from walktalk.studies.planning import prepare

CALIBRATION = 0.25  # of the iterations


def study(topology: str, args: argparse.Namespace, share: float = 1.0) -> Any:
    iterations = max(20, round(share * args.iterations))
    return make_spec(
        {
            "name": "agreement",
            "network": {"topology": topology, "nodes": args.nodes},
            "algorithms": [{"name": "multi_walk", "walks": args.walks}],
            "training": {"local_steps": args.steps},
            "stop": {"iterations": iterations},
            "evaluate": {"every": iterations},
        }
    )


def real_trace(spec: Any, pace: float) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run_on_peers(spec, Path(folder) / "out", pace=pace)
        return read_trace(next((Path(folder) / "out" / "runs").glob("*/0/trace.parquet")))


def compare(topology: str, args: argparse.Namespace) -> dict[str, Any]:
    """A short run to measure, a prediction, and the run that it is about."""
    compute, spread, hop = measured(real_trace(study(topology, args, CALIBRATION), args.pace))
    timing = NetworkTiming(compute=compute, spread=spread, latency=hop, bandwidth=1e12)
    guess = predicted(study(topology, args), timing)
    real = seconds_an_iteration(real_trace(study(topology, args), args.pace))
    return {
        "graph": topology,
        "compute_ms": 1e3 * compute,
        "hop_ms": 1e3 * hop,
        "measured_ms": 1e3 * real,
        "predicted_ms": 1e3 * guess,
        "ratio": guess / real,
    }


def predicted(spec: Any, timing: NetworkTiming, model_bytes: int = 0) -> float:
    """Seconds an iteration in virtual time, over many more iterations than the real run has."""
    setup = prepare(spec, "cpu").runs[0].setup
    stop = Stop(iterations=20 * (setup.stop.iterations or 100))
    simulation = Simulation(
        RunSetup(
            setup.protocol,
            setup.graph,
            setup.seed,
            stop,
            timing,
            model_bytes=model_bytes,
            keep_trace=False,
            keep_schedule=False,
        )
    )
    simulation.advance()
    return simulation.agenda.now / simulation.iteration


def seconds_an_iteration(trace: Any) -> float:
    trained = trace[trace.event == "trained"].time
    return float((trained.iloc[-1] - trained.iloc[0]) / (len(trained) - 1))


def measured(trace: Any) -> tuple[float, float, float]:
    """Seconds of one training and σ of their logarithm, and seconds of one hop from its sending to its arrival."""
    began = {row.number: row.time for row in trace[trace.event == "train"].itertuples()}
    ends = [(row.time - began[row.number]) for row in trace[trace.event == "trained"].itertuples()]
    sent = {row.number: row.time for row in trace[(trace.event == "send") & (trace.slot != "")].itertuples()}
    received = trace[(trace.event == "receive") & (trace.slot != "")]
    hops = [row.time - sent[row.number] for row in received.itertuples() if row.number in sent]
    return fmean(ends), pstdev(math.log(max(seconds, 1e-6)) for seconds in ends), max(fmean(hops), 0.0)


def report(results: list[dict[str, Any]], as_json: bool, out: Path | None, name: str) -> None:
    """Print every comparison; the worst decides."""
    worst = max(results, key=lambda r: abs(r["ratio"] - 1.0))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, results[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in r.items()} for r in results)
    if as_json:
        print(
            json.dumps(
                {
                    "name": name,
                    "value": worst["predicted_ms"],
                    "baseline": worst["measured_ms"],
                    "ratio": worst["ratio"],
                    "graphs": results,
                }
            )
        )
        return
    for r in results:
        parts = f"a training {r['compute_ms']:6.2f} ms, a hop {r['hop_ms']:6.2f} ms"
        whole = f"measured {r['measured_ms']:7.2f} ms, predicted {r['predicted_ms']:7.2f} ms ({r['ratio']:.3f})"
        print(f"{r['graph']:12} {parts}; an iteration: {whole}")
    print(f"at worst {abs(worst['ratio'] - 1.0):.1%} off; the aim is 20 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--walks", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of a training, at least")
    parser.add_argument("--out", type=Path, default=None, help="folder for a CSV file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = [compare(topology, args) for topology in ("cycle", "complete") for _ in range(args.repeats)]
    report(results, args.json, args.out, "agreement")


if __name__ == "__main__":
    main()
