"""Whole studies against a plain PyTorch loop that does the same number of steps one by one."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from walktalk.bench.plain_loop import plain_step, plain_steps_per_second
from walktalk.bench.result import BenchResult, Say
from walktalk.studies import load_spec, run_study

GOSSIP = ("algorithms=[{name: async_gossip, mixing: pairwise}]", "repetitions=1")


def simulator(say: Say) -> BenchResult:
    """Model-steps/s of the quickstart study, records and evaluation included."""
    return study_against_loop("simulator", (), "the quickstart study, records and evaluation included", say)


def gossip(say: Say) -> BenchResult:
    """The same for a single run: there is nothing to stack but its own 20 nodes."""
    return study_against_loop("gossip", GOSSIP, "one run of pairwise gossip on 20 nodes, all included", say)


def cpu_seconds() -> float:
    """Of this process and of its children, once they have ended."""
    for child in multiprocessing.active_children():
        child.join()
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def loop_per_cpu_second(steps: int = 3000) -> float:
    """Steps of the plain loop for each second of one core: hardly depends on who else uses the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    step = plain_step()
    began = time.process_time()
    for _ in range(steps):
        step()
    torch.set_num_threads(threads)
    return steps / (time.process_time() - began)


def study_against_loop(name: str, changes: Sequence[str], what: str, say: Say) -> BenchResult:
    spec = load_spec("quickstart", list(changes))
    assert spec.stop.iterations is not None
    say("the plain loop, with one thread and with all")
    before = plain_steps_per_second()
    say(what)
    with tempfile.TemporaryDirectory() as folder:
        began, cpu_began = time.perf_counter(), cpu_seconds()
        result = run_study(spec, Path(folder) / "study", device="cpu")
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    say("the plain loop again: the machine may have become busier")
    after = plain_steps_per_second()
    steps = len(result.runs) * spec.stop.iterations * spec.training.local_steps
    details = {
        "seconds": seconds,
        "model_steps": steps,
        "runs": len(result.runs),
        "loop_before": before,
        "loop_after": after,
        "ratio per CPU second": steps / cpu / loop_per_cpu_second(),
    }
    return BenchResult(
        name,
        steps / seconds,
        (before + after) / 2,
        "model-steps/s",
        what,
        "one model in a plain PyTorch loop",
        details=details,
    )
