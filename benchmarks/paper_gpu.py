"""The paper's image runs on one GPU, all runs that share a split of the data in one engine, so that waves are wide.

    python benchmarks/paper_gpu.py --data FOLDER --out FOLDER --alpha 1 --topologies cycle,complete,erdos_renyi \
        --repetitions 3 --iterations 5000 [--optimizer-state visit]

Settings are those of `walktalk paper run fig4 --scale paper` (Table 5) but for the number of repetitions and
iterations, which are named in the results. Writes `<topology>.csv` (the study's history) and `facts.json` (settings
and speed).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning.cuda_graph import SIZES
from walktalk.records import RUN_COLUMNS, write_history
from walktalk.runtimes.stacked import WavePolicy
from walktalk.studies import PlannedRun, Progress, Runner, make_spec, prepare
from walktalk.studies.paper.figures import settings


def main() -> None:
    options = arguments()
    base = settings("image", "paper")
    topologies = options.topologies.split(",")
    prepared = {name: prepare(make_spec(changed(base, name, options)), options.device) for name in topologies}
    trainer = prepared[topologies[0]].trainer  # the split depends on the seed alone, so one trainer serves all graphs
    runs = [
        PlannedRun(f"{name}:{run.label}", run.repetition, replace(run.setup, keep_trace=False), run.initial)
        for name, ready in prepared.items()
        for run in ready.runs
    ]
    watch = Watch()
    runner = Runner(trainer, runs, report=watch, policy=WavePolicy(widest=max(SIZES), sizes=SIZES))
    began = time.perf_counter()
    records = runner.run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in topologies:
        rows = [
            row._replace(algorithm=row.algorithm.split(":", 1)[1])
            for record in records
            if record.label.startswith(name + ":")
            for row in record.history
        ]
        write_history(out / f"{name}.csv", rows, RUN_COLUMNS)
    steps = runner.trainings * options.local_steps
    facts = {
        "settings": vars(options), "spec": changed(base, topologies[0], options), "seconds": seconds, "runs": len(runs),
        "model_steps": steps, "model_steps_per_second": steps / seconds,
        "evaluations": sum(len(r.history) for r in records),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu", "torch": torch.__version__,
        "parameters": trainer.parameters,
    }  # fmt: skip
    (out / "facts.json").write_text(json.dumps(facts, indent=1))
    print(f"{len(runs)} runs, {steps:,} model-steps in {seconds:.0f} s: {steps / seconds:,.0f} a second", flush=True)
    for record in records:
        last = record.history[-1]
        print(f"{record.label} {record.repetition}: loss {last.train_loss:.3f}, accuracy {last.test_accuracy:.3f}")


def changed(base: dict, topology: str, options: argparse.Namespace) -> dict:
    """The preset with what was asked for."""
    network = {**base["network"], "topology": topology}
    if topology != "erdos_renyi":
        network.pop("p", None)
    algorithms = base["algorithms"] if not options.centralized else [{"name": "centralized"}]
    training = {**base["training"], "optimizer_state": options.optimizer_state, "local_steps": options.local_steps}
    return {
        **base, "network": network, "repetitions": options.repetitions, "algorithms": algorithms,
        "task": {**base["task"], "alpha": options.alpha, "folder": options.data}, "training": training,
        "stop": {"iterations": options.iterations}, "evaluate": {"every": options.every, "samples": 2500},
    }  # fmt: skip


class Watch:
    """A line every ten seconds."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        if now - self.last > 10:
            self.last = now
            print(f"{now - self.began:.0f} s: {progress.done:,} of {progress.total:,} iterations", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the official CIFAR-10 binary files")
    parser.add_argument("--out", required=True)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--topologies", default="cycle,complete,erdos_renyi")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--optimizer-state", default="visit")
    parser.add_argument("--centralized", action="store_true", help="the reference line alone, on all data")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
