"""What the scripts of the paper's GPU runs share: several studies in one engine, so that waves are wide."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning import Trainer
from walktalk.learning.training.forms import SIZES
from walktalk.records import RUN_COLUMNS, write_history
from walktalk.runtimes.stacked import WavePolicy
from walktalk.studies import PlannedRun, Progress, Runner, RunRecord


@dataclass
class Speed:
    """How much was done in which time."""

    runs: int = 0
    model_steps: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # seconds of each stage, by name

    @property
    def pace(self) -> float:
        """Model-steps a second."""
        return self.model_steps / self.seconds if self.seconds else 0.0

    def facts(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "model_steps": self.model_steps,
            "evaluations": self.evaluations,
            "seconds": round(self.seconds, 1),
            "model_steps_per_second": round(self.pace, 1),
            "stages": {name: round(seconds, 1) for name, seconds in self.stages.items()},
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "torch": torch.__version__,
        }


def together(
    trainer: Trainer, studies: Mapping[str, Sequence[PlannedRun]], speed: Speed, stage: str, *, traces: bool = False
) -> dict[str, list[RunRecord]]:
    """All runs of some studies that share a task, at once; the records of each study.

    The split of the data depends on the seed alone, so one trainer serves all graphs.
    """
    runs = [
        PlannedRun(f"{name}:{run.label}", run.repetition, replace(run.setup, keep_trace=traces), run.initial)
        for name, planned in studies.items()
        for run in planned
    ]
    widths = WavePolicy(widest=max(SIZES), sizes=SIZES)
    began = time.perf_counter()
    runner = Runner(trainer, runs, report=Watch(stage), policy=widths)
    records = runner.run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    speed.runs += len(runs)
    speed.model_steps += runner.trainings * trainer.local_steps
    speed.evaluations += sum(len(record.history) for record in records)
    speed.seconds += seconds
    speed.stages[stage] = seconds
    return {name: [unprefixed(r, name) for r in records if r.label.startswith(f"{name}:")] for name in studies}


def unprefixed(record: RunRecord, study: str) -> RunRecord:
    """A record under its algorithm's own name, without the study's before it."""
    label = record.label.removeprefix(f"{study}:")
    return replace(record, label=label, history=[row._replace(algorithm=label) for row in record.history])


def write_records(path: Path, records: Sequence[RunRecord]) -> None:
    """The history of a study, with every column that a run has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_history(path, [row for record in records for row in record.history], RUN_COLUMNS)


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Settings, versions and speed; without the folders of the machine, which mean nothing anywhere else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(anywhere(facts), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def anywhere(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: anywhere(inner) for key, inner in value.items() if key != "out"}
    if isinstance(value, (list, tuple)):
        return [anywhere(inner) for inner in value]
    return "FOLDER" if isinstance(value, str) and value.startswith(("/", "~")) else value


def tell(name: str, records: Sequence[RunRecord]) -> None:
    """The end of every run, a line each."""
    for record in records:
        last = record.history[-1]
        print(
            f"{name} {record.label} {record.repetition}: {last.iteration:,} iterations, {last.time:,.0f} s, "
            f"{last.bits / 8e9:,.2f} GB, loss {last.train_loss:.3f}, accuracy {last.test_accuracy:.3f}",
            flush=True,
        )


class Watch:
    """A line every ten seconds."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.began = self.last = time.perf_counter()

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        if now - self.last > 10:
            self.last = now
            done = f"{progress.done:,} of about {progress.total:,} iterations"
            print(f"{self.stage}, {now - self.began:.0f} s: {done}", flush=True)
