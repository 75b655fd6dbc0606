"""What a precision does to the end of a study: the same study in each, run against run.

    OMP_NUM_THREADS=1 python benchmarks/precision.py quickstart --out FOLDER
    OMP_NUM_THREADS=1 python benchmarks/precision.py STUDY.yaml --set repetitions=5 --out FOLDER

When things happen and which samples are in a batch never depends on the numbers in a model, so a run has the same
walks, the same batches and the same initial model in every precision: their ends can be subtracted. A mean difference
counts for something when it is large against its own standard error, σ / √n; whether it matters, when it is large
against what another seed does, the spread between repetitions in fp32.

FOLDER/ends.csv has every run's end, FOLDER/effect.csv the differences, FOLDER/facts.json machine and settings. tf32 is
for GPUs: a CPU has no such products, so it would be fp32 once more and is left out there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning.arithmetic import PRECISIONS
from walktalk.studies import Runner, load_spec
from walktalk.studies.planning import pick_device, prepare
from walktalk.studies.results import study_result

EXACT = "fp32"
MEASURES = ("train_loss", "test_accuracy")
PAIR = ["algorithm", "repetition"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="a preset or a file")
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], help="KEY=VALUE, as `walktalk run` has it"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--test-samples", type=int, help="only the first so many of the test data")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    device = pick_device(given.device)
    ends, seconds = run_all(given.study, given.changes, device, given.test_samples)
    effect = compared(ends)
    given.out.mkdir(parents=True, exist_ok=True)
    ends.to_csv(given.out / "ends.csv", index=False, lineterminator="\n")
    effect.to_csv(given.out / "effect.csv", index=False, lineterminator="\n", float_format="%.6g")
    (given.out / "facts.json").write_text(json.dumps(facts(given, device, seconds), indent=1) + "\n")
    print(effect.to_string(index=False, float_format=lambda number: f"{number:.4g}"))


def run_all(
    study: str, changes: list[str], device: str, test_samples: int | None
) -> tuple[pd.DataFrame, dict[str, float]]:
    """The end of every run in every precision, and how long each precision took."""
    ends, seconds = [], {}
    for precision in precisions_of(device):
        ready = prepare(load_spec(study, [*changes, f"training.precision={precision}"]), device)
        evaluator = ready.trainer.evaluator
        test = evaluator.test
        if test is not None:
            evaluator.test = replace(test, inputs=test.inputs[:test_samples], targets=test.targets[:test_samples])
        began = time.monotonic()
        history = study_result(ready.spec, Runner(ready.trainer, ready.runs).run()).history
        seconds[precision] = round(time.monotonic() - began, 1)
        print(f"{precision}: {seconds[precision]} s", file=sys.stderr)
        last = history.sort_values("iteration", kind="stable").groupby(PAIR, sort=False).tail(1)
        ends.append(last[[*PAIR, "iteration", *MEASURES]].assign(precision=precision))
    return pd.concat(ends, ignore_index=True), seconds


def precisions_of(device: str) -> list[str]:
    return [precision for precision in PRECISIONS if precision != "tf32" or device.startswith("cuda")]


def compared(ends: pd.DataFrame) -> pd.DataFrame:
    """Every precision against fp32, algorithm by algorithm."""
    exact = ends[ends.precision == EXACT].set_index(PAIR)
    rows: list[dict[str, Any]] = []
    for (precision, algorithm), group in ends[ends.precision != EXACT].groupby(["precision", "algorithm"], sort=False):
        other = group.set_index(PAIR)
        for measure in MEASURES:
            reference = exact.loc[other.index, measure]
            difference = other[measure] - reference
            sigma, spread = difference.std(), reference.std()
            rows.append(
                {
                    "precision": precision,
                    "algorithm": algorithm,
                    "measure": measure,
                    "repetitions": len(difference),
                    "fp32": reference.mean(),
                    "difference": difference.mean(),
                    "sigma": sigma,
                    "standard_errors": difference.mean() / (sigma / len(difference) ** 0.5) if sigma else float("nan"),
                    "between_repetitions": spread,
                }
            )
    return pd.DataFrame(rows)


def facts(given: argparse.Namespace, device: str, seconds: dict[str, float]) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    kernels = torch.backends.cpu.get_cpu_capability()
    return {
        "study": Path(given.study).name,
        "set": given.changes,
        "test_samples": given.test_samples,
        "device": name,
        "cpu_kernels": kernels,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
