"""Runs the cells of a table: those that share data and training go through one engine, so that waves are wide.

When things happen never depends on the numbers in a model, so the next stretch is simulated and planned while the
device works on the present one. That takes Python some hundred microseconds a training, one process no more than one
core: where the device is faster, or there is none, cells go side by side in several processes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from walktalk.learning import Trainer
from walktalk.published.compare import history_of
from walktalk.published.table import Changes, Row, Scale, Table
from walktalk.published.tables import find_table
from walktalk.records import RUN_COLUMNS, HistoryRow, write_history, write_text
from walktalk.runtimes.stacked import Engine
from walktalk.studies.building import PlannedRun, planned_runs, prepare
from walktalk.studies.driving import estimated_trainings, fitting_groups, wave_policy
from walktalk.studies.results import history_row
from walktalk.studies.spec import StudySpec, dump_spec

Say = Callable[[str], None]
Note = Callable[[int, Sequence[HistoryRow]], None]  # the number of a run, and its history so far
A_STRETCH = 8192  # trainings: seconds on a device that suits the model, and waves that are cut seldom
FEWEST_STRETCHES = 8
SECONDS_BETWEEN_WORDS = 10.0


def run_table(
    table: Table,
    scale: Scale,
    out: Path,
    *,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    changes: Changes | None = None,
    device: str = "auto",
    processes: int = 1,
    say: Say = lambda line: None,
) -> None:
    """Run the cells whose histories are not in the folder, with these settings, yet.

    processes: how many cells run side by side, each in a process of its own, in the order of the table; 1: those that
    share their data at once, in this process.
    """
    if processes > 1:
        work = partial(run_cell, table.name, scale, out, changes=changes, device=device, threads=threads(processes))
        run_side_by_side(table.cells(rows, columns), work, processes, say)
        return
    specs = {(row, column): table.spec(row, column, scale, changes) for row, column in table.cells(rows, columns)}
    for together in groups(specs, table, out):
        trainer = prepare(specs[together[0]], device).trainer
        runs = [run for cell in together for run in planned_runs(specs[cell], trainer)]
        for numbers in fitting_groups(trainer, runs):  # as many as fit into memory
            cells = [together[number] for number in numbers]
            names = ", ".join(f"{row.name} {column}" for row, column in cells)
            say(f"{table.name}: {len(cells)} runs at once: {names}")
            run_cells(trainer, [runs[number] for number in numbers], say, partial(note, out, table, cells))
            for cell in cells:
                write_text(spec_beside(history_of(out, table, *cell)), dump_spec(specs[cell]))  # last: now it is whole


def run_side_by_side(
    cells: Sequence[tuple[Row, str]], work: Callable[[str, str], list[str]], processes: int, say: Say
) -> None:
    """Every cell in a process of its own, so many at a time; what each said, once it is done."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(work, row.name, column): f"{row.name} {column}" for row, column in cells}
        try:
            for done in as_completed(running):
                said = done.result()
                say(f"{running[done]}: {said[-1] if said else 'was there'}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def threads(processes: int) -> int:
    """Of each, so that all together have a core each."""
    return max(1, (os.cpu_count() or 1) // processes)


def run_cell(
    table: str, scale: Scale, out: Path, row: str, column: str, *, changes: Changes | None, device: str, threads: int
) -> list[str]:
    """One cell, in a process of its own; what was said meanwhile."""
    torch.set_num_threads(threads)
    said: list[str] = []
    run_table(
        find_table(table), scale, out, rows=[row], columns=[column], changes=changes, device=device, say=said.append
    )
    return said


def run_cells(trainer: Trainer, runs: Sequence[PlannedRun], say: Say, noted: Note) -> None:
    """Some cells at once, and how fast it was."""
    began = time.perf_counter()
    run_together(trainer, runs, say, noted)
    seconds = time.perf_counter() - began
    steps = estimated_trainings(runs) * trainer.local_steps
    say(f"{seconds:.0f} s, {steps / seconds:,.0f} model-steps/s")


def groups(specs: dict[tuple[Row, str], StudySpec], table: Table, out: Path) -> list[list[tuple[Row, str]]]:
    """Cells that are still to be run, those of one task, training and optimizer together."""
    found: dict[str, list[tuple[Row, str]]] = {}
    for cell, spec in specs.items():
        path = history_of(out, table, *cell)
        if path.is_file() and spec_beside(path).is_file() and spec_beside(path).read_text("utf-8") == dump_spec(spec):
            continue
        shared = spec.model_dump(mode="json", include={"seed", "task", "training", "optimizer", "evaluate"})
        found.setdefault(json.dumps([shared, spec.network.nodes], sort_keys=True), []).append(cell)
    return list(found.values())


def spec_beside(history: Path) -> Path:
    return history.with_suffix(".yaml")


def note(out: Path, table: Table, cells: Sequence[tuple[Row, str]], number: int, history: Sequence[HistoryRow]) -> None:
    """The history so far of one of these cells."""
    path = history_of(out, table, *cells[number])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_history(path, history, RUN_COLUMNS)


def roomy(rows: int) -> int:
    """So many rows that later stretches have enough, too."""
    return rows + max(32, rows // 4) if rows else 0


def run_together(trainer: Trainer, runs: Sequence[PlannedRun], say: Say, noted: Note) -> list[list[HistoryRow]]:
    """All runs in one engine, the next stretch planned ahead; the history of each, which `noted` hears as it grows."""
    setups = [replace(run.setup, keep_trace=False) for run in runs]
    engine = Engine(trainer, setups, [run.initial for run in runs], wave_policy(trainer))
    stretches = max(FEWEST_STRETCHES, -(-estimated_trainings(runs) // A_STRETCH))
    histories: list[list[HistoryRow]] = [[] for _ in runs]
    began = told = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(engine.plan, 1 / stretches)
        for stretch in range(1, stretches + 1):
            plan = ahead.result()
            if stretch == 1:  # room for more at once: a matrix that grows later moves, and graphs are made anew
                plan = replace(plan, models=roomy(plan.models), states=roomy(plan.states))
            if stretch < stretches:
                ahead = pool.submit(engine.plan, (stretch + 1) / stretches)
            measured = engine.carry_out(plan).measurements
            for found in measured:
                histories[found.run].append(history_row(runs[found.run].label, runs[found.run].repetition, found))
            for number in {found.run for found in measured}:
                noted(number, histories[number])
            if time.perf_counter() - told > SECONDS_BETWEEN_WORDS:
                told = time.perf_counter()
                say(f"  {stretch / stretches:.0%} after {told - began:.0f} s")
    return histories
