"""Rounds of chaos, one after the other or a few at once, each in a process that lives as long as the series.

What is known is written after every round; a series that was interrupted goes on with the seeds that are missing. A
round that fails leaves its nodes' folders, with their logs and traces; one that breaks off counts as failed.
"""

from __future__ import annotations

import csv
import io
import json
import math
import multiprocessing as mp
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from walktalk.core.errors import StudyError, UserError
from walktalk.records import write_text
from walktalk.testing.chaos.plan import ChaosPlan
from walktalk.testing.chaos.round import chaos_round
from walktalk.testing.chaos.verdict import Verdict, verdict_of

# What chaos leaves: one line a round for a spreadsheet, everything for a program, and a summary.

ROUNDS = ("rounds.csv", "rounds.json")
COLUMNS = (
    "seed",
    "algorithm",
    "held",
    "kills",
    "aggregators_killed",
    "gone",
    "faults",
    "aggregating",
    "iterations",
    "mixings",
    "walks",
    "copies",
    "counted",
    "twice",
    "uneven",
    "half_kept",
    "loss",
    "undisturbed",
    "spread",
    "measurements",
    "ratio",
    "behind",
    "detection",
    "recovery",
    "replacement",
    "seconds",
    "failures",
)


def write_rounds(folder: Path, plan: ChaosPlan, verdicts: list[Verdict]) -> None:
    """`rounds.csv` and `rounds.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    in_order = sorted(verdicts, key=lambda verdict: verdict.seed)
    writer.writerows(_row(verdict) for verdict in in_order)
    write_text(folder / ROUNDS[0], table.getvalue())
    rounds = [{**asdict(v), "passed": v.passed, "failures": v.failures()} for v in in_order]
    everything = {"plan": asdict(plan), "summary": summary(verdicts), "rounds": rounds}
    write_text(folder / ROUNDS[1], json.dumps(everything, indent=1) + "\n")


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    """How many held, and the numbers that are printed."""
    passed = sum(v.passed for v in verdicts)
    ratios = [v.loss.ratio for v in verdicts if math.isfinite(v.loss.ratio)]
    halves = [half for v in verdicts for half in v.halves]
    found: dict[str, Any] = {
        "name": "chaos",
        "value": passed,
        "baseline": len(verdicts),
        "ratio": passed / len(verdicts) if verdicts else None,
        "loss_ratio_mean": fmean(ratios) if ratios else None,
        "loss_ratio_worst": max(ratios, default=None),
        "halves": len(halves),
        "half_kept_mean": fmean(half.share for half in halves) if halves else None,
        "half_kept_worst": min((half.share for half in halves), default=None),
    }
    for name in ("detection", "recovery", "replacement"):
        values = [value for verdict in verdicts for value in getattr(verdict, name)]
        found[f"{name}_median"] = median(values) if values else None
        found[f"{name}_worst"] = max(values, default=None)
        found[f"{name}_count"] = len(values)
    return found


def _row(verdict: Verdict) -> dict[str, Any]:
    loss = verdict.loss
    given = {name: getattr(verdict, name, "") for name in COLUMNS}
    return given | {
        "held": verdict.passed,
        "kills": sum(line.startswith("kill") for line in verdict.faults),
        "gone": _words(verdict.gone),
        "faults": "; ".join(verdict.faults),
        "aggregating": _words(verdict.aggregating),
        "half_kept": _words(tuple(f"{half.share:.3f}" for half in verdict.halves)),
        "counted": f"{verdict.counted:.4f}",
        "loss": f"{loss.disturbed:.5f}",
        "undisturbed": f"{loss.undisturbed:.5f}",
        "spread": f"{loss.spread:.5f}",
        "measurements": loss.measurements,
        "ratio": f"{loss.ratio:.4f}",
        "behind": "" if loss.behind is None else f"{loss.behind:.3f}",
        "detection": _words(verdict.detection),
        "recovery": _words(verdict.recovery),
        "replacement": _words(verdict.replacement),
        "seconds": f"{verdict.seconds:.1f}",
        "failures": "; ".join(verdict.failures()),
    }


def _words(values: tuple[Any, ...]) -> str:
    return " ".join(str(value) for value in values)


FAILED = "failed"  # the folder of what failed rounds leave
LOOK_EVERY = 0.5  # seconds: whether a worker is still alive
SILENT = 5.0  # seconds after which it is said what a round still does


class Report(NamedTuple):
    """What a worker has to say of a round."""

    seed: int
    line: str = ""
    verdict: Verdict | None = None
    mistake: str = ""  # of the person who started it: no round can be run


def run_rounds(
    plan: ChaosPlan, seeds: Sequence[int], failed: Path, at_once: int, say: Callable[[int, str], None]
) -> Iterator[Verdict]:
    """The verdicts, as they come.

    - `plan`, `seeds`: what to do; every round has a seed of its own.
    - `failed`: the folder for what failed rounds leave.
    - `at_once`: rounds at the same time.
    - `say`: told the seed and what is done there.
    """
    context = mp.get_context("spawn")
    reports: Any = context.Queue()
    left = list(seeds)
    doing: dict[int, tuple[str, float, float]] = {}  # by seed: what it does, since when, and when that was said last
    with _workers(context, plan, failed, reports, min(at_once, len(left))) as workers:
        for worker in workers:
            worker.ask(left)
        while any(worker.seed is not None for worker in workers):
            try:
                report: Report = reports.get(timeout=LOOK_EVERY)
            except queue.Empty:
                for worker in workers:
                    worker.look()
                    if worker.seed is not None:
                        doing.setdefault(worker.seed, ("starts its nodes", time.monotonic(), time.monotonic()))
                _say_that_it_goes_on(doing, say)
                continue
            if report.mistake:
                raise StudyError(report.mistake)
            _say_that_it_goes_on(doing, say)
            if report.verdict is None:
                say(report.seed, report.line)
                doing[report.seed] = report.line, time.monotonic(), time.monotonic()
                continue
            doing.pop(report.seed, None)
            yield report.verdict
            next(worker for worker in workers if worker.seed == report.seed).ask(left)


def _say_that_it_goes_on(doing: dict[int, tuple[str, float, float]], say: Callable[[int, str], None]) -> None:
    """Repeat what a round does, and for how long, where it has said nothing for a while."""
    now = time.monotonic()
    for seed, (line, since, told) in doing.items():
        if now >= told + SILENT - LOOK_EVERY:
            say(seed, f"{line} … {now - since:.0f} s")
            doing[seed] = line, since, now


class RoundWorker:
    """One process that runs rounds."""

    def __init__(self, context: Any, plan: ChaosPlan, failed: Path, reports: Any, number: int) -> None:
        self.seed: int | None = None
        self._asked: Any = context.SimpleQueue()
        self.process = context.Process(target=_work, args=(plan, failed, self._asked, reports, number))
        self.process.start()

    def ask(self, seeds: list[int]) -> None:
        """The next one of these, if there is any."""
        self.seed = seeds.pop(0) if seeds else None
        self._asked.put(self.seed)

    def look(self) -> None:
        """Looks whether the round still makes progress."""
        if self.seed is not None and not self.process.is_alive():
            code = self.process.exitcode
            raise StudyError(f"the process of the round with seed {self.seed} has ended with exit code {code}")

    def end(self) -> None:
        """It stops its nodes first; a worker that is done ends by itself."""
        if self.process.is_alive() and self.seed is not None and self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)
            self._asked.put(None)  # where its round ended by itself at that moment, it asks for the next one
        self.process.join()


@contextmanager
def _workers(context: Any, plan: ChaosPlan, failed: Path, reports: Any, count: int) -> Iterator[list[RoundWorker]]:
    workers = [RoundWorker(context, plan, failed, reports, number) for number in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.seed is None:
                worker.ask([])
            worker.end()


def _work(plan: ChaosPlan, failed: Path, asked: Any, reports: Any, worker: int) -> None:
    """A worker's process: SIGINT is the starter's, who passes it on; SIGTERM ends the round, nodes and all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    with suppress(KeyboardInterrupt):
        while (seed := asked.get()) is not None:
            reports.put(_round(plan, seed, failed, reports, worker))


def _end_with_the_starter() -> None:
    starter = mp.parent_process()
    if starter is not None:
        starter.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _round(plan: ChaosPlan, seed: int, failed: Path, reports: Any, worker: int) -> Report:
    def say(line: str) -> None:
        reports.put(Report(seed, line))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)

        def keep(verdict: Verdict) -> None:
            if not verdict.passed:
                shutil.copytree(folder, failed / f"seed-{seed}", dirs_exist_ok=True)

        try:
            return Report(seed, verdict=chaos_round(plan, seed, folder, say, worker, keep))
        except UserError as error:
            if not isinstance(error, StudyError):
                return Report(seed, mistake=str(error))
            why = str(error)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        broken = Verdict(seed, plan.algorithm, plan.walks if plan.walking else 0, broke=why)
        keep(broken)
        return Report(seed, verdict=broken)


def interrupted_rounds(folder: Path, plan: ChaosPlan) -> list[Verdict]:
    """The rounds of an earlier series of this very plan; none where there is no such series."""
    with suppress(StudyError):
        return known_rounds(folder, plan)
    return []


def known_rounds(folder: Path, plan: ChaosPlan) -> list[Verdict]:
    """Those of a series that was interrupted; it must be of the same plan."""
    path = folder / ROUNDS[1]
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content.get("plan") != json.loads(json.dumps(asdict(plan))):
        raise StudyError(f"{path} is of another plan; choose another --out, or the same settings as before")
    return [verdict_of(facts) for facts in content["rounds"]]
