"""Figure 8 on one GPU: a real pretrained language model, MultiNLI split by genre, links that congest.

    python reproduction/paper_language_gpu.py --model FOLDER --data FOLDER --out FOLDER --time 200 --repetitions 3 \
        --budget 400

Settings are those of `walktalk paper run fig8 --scale paper` (Table 6) but for the model (the paper: OPT-125M), the
walks, and the end of a run, which is a virtual time here, so that every algorithm gets the same. The words yes, maybe
and no of the causal model are the answer. Runs are done one after another, all algorithms of a repetition and then the
next; one is begun only if it will end within `--budget` real seconds, judging by its number of iterations (virtual time
tells it without any training) and the pace so far. Writes `fig8.csv` and `facts.json` after each. The model's
step runs as a CUDA graph, if that gives the same gradients faster.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper_runs import Speed, Watch, tell, write_facts, write_records
from walktalk.learning import Trainer, TrainingRows
from walktalk.reproduction.paper.figures import settings
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import PlannedRun, RunRecord, make_spec, prepare, spec_mapping
from walktalk.studies.execution.groups import needs_of, run_in_groups

STEPS_TIMED = 10
CLOSE = 0.05  # of a graph's gradient to a plain one, in relative norm: sums are in another order, in 16 bits
WITH_EVALUATIONS = 1.5  # times a step's seconds, until a run was timed


def main() -> None:
    options = arguments()
    began = time.perf_counter()
    spec = make_spec(changed(settings("language", "paper"), options))
    ready = prepare(spec, options.device)
    trainer = ready.trainer
    if trainer.device.type == "cuda":
        trainer.model.samples_at_once = 500  # one model has the GPU to itself, and 64 at a time would starve it
    initial = ready.runs[0].initial  # pretrained: all start alike
    runs = [replace(run, setup=replace(run.setup, keep_trace=False), initial=initial) for run in ready.runs]
    del ready  # and with it every other run's own copy
    facts: dict[str, Any] = {"settings": vars(options), "spec": spec_mapping(spec), "parameters": trainer.parameters}
    facts["needs"] = {
        run.label: vars(need) for run, need in zip(runs, needs_of(trainer, runs), strict=True) if run.repetition == 0
    }
    facts["step"] = ready_to_train(trainer, initial, options.graphs)
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()  # what the plain steps and the warm-up of the graph took: tens of gigabytes
    print(f"{time.perf_counter() - began:.0f} s to load and measure: {facts['step']}", flush=True)
    speed, out, records = Speed(), Path(options.out), list[RunRecord]()
    left_out = []
    for run in sorted(runs, key=lambda one: one.repetition):
        name, expected = f"{run.label}, repetition {run.repetition}", expected_seconds(run, speed, facts["step"])
        if time.perf_counter() - began + expected > options.budget:
            left_out.append(name)
            print(f"no time for {name}: about {expected:.0f} s", flush=True)
            continue
        records += one_run(trainer, run, name, speed)
        write_records(out / "fig8.csv", sorted(records, key=lambda record: (record.label, record.repetition)))
        write_facts(out / "facts.json", {**facts, **speed.facts(), "left_out": left_out})
    if left_out:
        write_facts(out / "facts.json", {**facts, **speed.facts(), "left_out": left_out})


def expected_seconds(run: PlannedRun, speed: Speed, step: dict[str, Any]) -> float:
    """How long a run will take: its iterations, counted without arithmetic, at the pace so far."""
    simulation = Simulation(replace(run.setup, keep_trace=False, keep_schedule=False))
    simulation.advance()
    guess = WITH_EVALUATIONS * float(step["seconds"])
    return simulation.iteration * (speed.seconds / speed.model_steps if speed.model_steps else guess)


def one_run(trainer: Trainer, run: PlannedRun, name: str, speed: Speed) -> list[RunRecord]:
    """One at a time: a model of this size has the GPU to itself anyway, and so the memory too."""
    began = time.perf_counter()
    records = run_in_groups(trainer, [run], report=Watch(name))
    speed.stages[name] = time.perf_counter() - began
    speed.seconds += speed.stages[name]
    speed.runs += 1
    speed.model_steps += trainer.local_steps * records[0].trainings
    speed.evaluations += len(records[0].history)
    tell("fig8", records)
    return records


# -- the step --------------------------------------------------------------------------------------------------------


def ready_to_train(trainer: Trainer, initial: Tensor, graphs: bool) -> dict[str, Any]:
    """Times a step, plain and as a graph, and leaves the trainer with the graph where it agrees and is faster.

    Gradients are compared, not models: Adam's first step is the sign of a gradient, and noise flips that of small ones.
    Two plain steps differ too (attention adds up in any order on a GPU), so the graph may differ by some times as much.
    """
    alone = trainer.forms.by_row
    assert alone is not None, "a model this small trains in waves"
    wanted, alone.graphs = alone.graphs and graphs, False
    plain, plain_seconds = timed(trainer, initial)
    noise = difference(timed(trainer, initial)[0], plain)
    found: dict[str, Any] = {"plain_seconds": plain_seconds, "plain_noise": noise, "seconds": plain_seconds}
    if wanted:
        alone.graphs = True
        graphed, seconds = timed(trainer, initial)
        found |= {"graph_seconds": seconds, "graph_differs": difference(graphed, plain)}
        alone.graphs = alone.graphs and found["graph_differs"] <= max(CLOSE, 3 * noise) and seconds < plain_seconds
        found["seconds"] = seconds if alone.graphs else plain_seconds
    return {**found, "graph": alone.graphs}


def difference(one: Tensor, other: Tensor) -> float:
    """In relative norm."""
    return float((one - other).norm() / other.norm())


def timed(trainer: Trainer, initial: Tensor) -> tuple[Tensor, float]:
    """The gradient of one training, and its seconds. From a fresh state Adam's mean is a tenth of the gradient."""
    device = trainer.device
    part, lr = torch.zeros(1, dtype=torch.int64, device=device), torch.full((1,), 1e-4, device=device)
    state = torch.zeros(1, trainer.state_width, device=device)
    row = initial.to(device).unsqueeze(0)
    after = trainer.train(TrainingRows(row, part, torch.tensor([1], device=device), lr, state, on_loan=True))[1]
    assert after is not None
    gradient = after[0, : trainer.parameters].clone()
    synchronize()
    began = time.perf_counter()
    for key in range(STEPS_TIMED if device.type == "cuda" else 1):
        trainer.train(TrainingRows(row, part, torch.tensor([key], device=device), lr, state, on_loan=True))
    synchronize()
    return gradient, (time.perf_counter() - began) / (STEPS_TIMED if device.type == "cuda" else 1)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# -- settings ---------------------------------------------------------------------------------------------------------


def changed(base: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The preset with what was asked for."""
    walks = [int(count) for count in options.walks.split(",")]
    task = {
        "name": "mnli",
        "model": options.model,
        "head": "causal",
        "split": "genre",
        "folder": options.data,
        "max_length": options.max_length,
        "test_samples": options.samples,
    }
    if options.train_samples:
        task["samples"] = options.train_samples
    return {
        **base,
        "task": task,
        "repetitions": options.repetitions,
        "stop": {"time": options.time},
        "training": {**base["training"], "optimizer_state": options.optimizer_state, "precision": options.precision},
        "optimizer": {**base["optimizer"], "lr": options.lr},
        "algorithms": [{"name": "multi_walk", "walks": walks}, {"name": "async_gossip", "mixing": "pairwise"}],
        "evaluate": {"seconds": options.every, "samples": options.samples},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or name of a causal model of transformers")
    parser.add_argument("--data", required=True, help="folder with MultiNLI as JSON lines")
    parser.add_argument("--out", required=True)
    parser.add_argument("--time", type=float, default=200.0, help="virtual seconds of a run")
    parser.add_argument("--walks", default="1,4")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--budget", type=float, default=400.0, help="real seconds after which nothing new is begun")
    parser.add_argument("--every", type=float, default=10.0, help="virtual seconds between evaluations")
    parser.add_argument("--samples", type=int, default=1000, help="of the training and of the test data, to evaluate")
    parser.add_argument("--train-samples", type=int, default=0, help="0: all that there are")
    parser.add_argument("--max-length", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--optimizer-state", default="node")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--no-graphs", dest="graphs", action="store_false")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
