"""The quickstart study against a plain PyTorch loop that does the same number of steps one by one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from walktalk.bench.plain_loop import plain_steps_per_second
from walktalk.bench.result import BenchResult
from walktalk.studies import load_spec, run_study


def simulator() -> BenchResult:
    """Model-steps/s of the whole study, records and evaluation included."""
    spec = load_spec("quickstart")
    assert spec.stop.iterations is not None
    before = plain_steps_per_second()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = run_study(spec, Path(folder) / "study", device="cpu")
        seconds = time.perf_counter() - began
    after = plain_steps_per_second()
    steps = len(result.runs) * spec.stop.iterations * spec.training.local_steps
    return BenchResult(
        "simulator", steps / seconds, (before + after) / 2, "model-steps/s", "the quickstart study, all included",
        "one model in a plain PyTorch loop", details={"seconds": seconds, "model_steps": steps, "runs": len(result.runs)},
    )  # fmt: skip
