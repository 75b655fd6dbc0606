"""The paper's image runs on one GPU, all runs that share a split of the data in one engine, so that waves are wide.

    python reproduction/paper_gpu.py --data FOLDER --out FOLDER --alpha 1 --topologies cycle,complete,erdos_renyi \
        --repetitions 3 --iterations 5000 [--optimizer-state visit] [--more-walks 6,8,10 --more-out FOLDER]

Settings are those of `walktalk paper run fig4 --scale paper` (Table 5) but for the number of repetitions and
iterations, which are named in the results. Writes `<topology>.csv` (the study's history) and `facts.json` (settings
and speed). `--more-walks` are done on the complete graph, where the paper says that a threshold lies, and written to a
`complete.csv` of their own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from paper_runs import Speed, tell, together, write_facts, write_records
from walktalk.reproduction.paper.figures import settings
from walktalk.studies import make_spec, planned_runs, prepare


def main() -> None:
    options = arguments()
    base = settings("image", "paper")
    topologies = options.topologies.split(",")
    specs = {name: make_spec(changed(base, name, options)) for name in topologies}
    trainer = prepare(specs[topologies[0]], options.device).trainer
    speed, out = Speed(), Path(options.out)
    studies = {name: planned_runs(spec, trainer) for name, spec in specs.items()}
    if options.more_walks:
        walks = [int(count) for count in options.more_walks.split(",")]
        more = {**changed(base, "complete", options), "algorithms": [{"name": "multi_walk", "walks": walks}]}
        studies["more"] = planned_runs(make_spec(more), trainer)
    for name, records in together(trainer, studies, speed, "all").items():
        write_records(Path(options.more_out) / "complete.csv" if name == "more" else out / f"{name}.csv", records)
        tell(name, records)
    write_facts(
        out / "facts.json",
        {
            "settings": vars(options),
            "spec": changed(base, topologies[0], options),
            **speed.facts(),
            "parameters": trainer.parameters,
        },
    )


def changed(base: dict[str, Any], topology: str, options: argparse.Namespace) -> dict[str, Any]:
    """The preset with what was asked for."""
    network = {**base["network"], "topology": topology}
    if topology != "erdos_renyi":
        network.pop("p", None)
    algorithms = base["algorithms"] if not options.centralized else [{"name": "centralized"}]
    training = {**base["training"], "optimizer_state": options.optimizer_state, "local_steps": options.local_steps}
    return {
        **base,
        "network": network,
        "repetitions": options.repetitions,
        "algorithms": algorithms,
        "task": {**base["task"], "alpha": options.alpha, "folder": options.data},
        "training": training,
        "stop": {"iterations": options.iterations},
        "evaluate": {"every": options.every, "samples": 2500},
    }


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
    parser.add_argument("--more-walks", default="", help="numbers of walks to do on the complete graph besides")
    parser.add_argument("--more-out", default="threshold", help="folder for them")
    parser.add_argument("--centralized", action="store_true", help="the reference line alone, on all data")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
