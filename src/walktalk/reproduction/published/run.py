"""Runs the cells of a table: those of a column that share data and training go through one engine, so waves are wide.

What happens when takes Python some hundred microseconds a training to work out, one process no more than one core:
where the device is faster, or there is none, cells go side by side in several processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from walktalk.records import RUN_COLUMNS, HistoryRow, write_history, write_text
from walktalk.reproduction.published.relay_sgd import QG_TABLE, TABLE1, TABLE2
from walktalk.reproduction.published.sorted_mnist import TABLE5
from walktalk.reproduction.published.table import Changes, Row, Scale, Table, history_of, named, spec_beside
from walktalk.studies.execution import run_in_groups, sharing
from walktalk.studies.planning import PlannedRun, Progress, planned_runs, prepare
from walktalk.studies.spec import StudySpec, dump_spec

TABLES: dict[str, Table] = {one.name: one for one in (TABLE1, TABLE2, TABLE5, QG_TABLE)}


def find_table(name: str) -> Table:
    """The table of that name."""
    found: Table = named(name, TABLES, "published table")
    return found


Say = Callable[[str], None]
SECONDS_BETWEEN_WORDS = 10.0


@dataclass(frozen=True)
class CellSettings:
    """How the cells of a table are run.

    Args:
        scale: as published, or in small.
        changes: keys of the studies to change in every cell.
        lr: a learning rate for all cells, in place of each cell's own.
        device: where the arithmetic is done.
    """

    scale: Scale
    changes: Changes | None = None
    lr: float | None = None
    device: str = "auto"


def run_table(
    table: Table,
    out: Path,
    settings: CellSettings,
    *,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    processes: int = 1,
    say: Say = lambda line: None,
) -> None:
    """Run the cells whose histories are not in the folder, with these settings, yet.

    processes: how many cells run side by side, each in a process of its own, in the order of the table; 1: those that
    share their data at once, in this process.
    """
    if processes > 1:
        work = partial(run_cell, table.name, out, settings, threads(processes))
        run_side_by_side(table.cells(rows, columns), work, processes, say)
        return
    table = table if settings.lr is None else table.at_rate(settings.lr)
    wanted = left(table, settings.scale, out, table.cells(rows, columns), settings.changes)
    for column, studies in wanted.items():
        for together in sharing(studies):
            say(
                f"{table.name}: {len(together)} runs at once: {', '.join(f'{path.stem} {column}' for path in together)}"
            )
            run_together({path: studies[path] for path in together}, settings.device, say)


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
    """How many threads each process gets, so that all together have a core each."""
    return max(1, (os.cpu_count() or 1) // processes)


def run_cell(table: str, out: Path, settings: CellSettings, threads: int, row: str, column: str) -> list[str]:
    """Runs one cell in a process of its own; what was said meanwhile."""
    torch.set_num_threads(threads)
    said: list[str] = []
    run_table(find_table(table), out, settings, rows=[row], columns=[column], say=said.append)
    return said


def left(
    table: Table, scale: Scale, out: Path, cells: Iterable[tuple[Row, str]], changes: Changes | None
) -> dict[str, dict[Path, StudySpec]]:
    """Cells that are still to be run, by column: where the history of each goes, and its study."""
    found: dict[str, dict[Path, StudySpec]] = {}
    for row, column in cells:
        path, spec = history_of(out, table, row, column), table.spec(row, column, scale, changes)
        beside = spec_beside(path)
        if not (path.is_file() and beside.is_file() and beside.read_text("utf-8") == dump_spec(spec)):
            found.setdefault(column, {})[path] = spec
    return found


def run_together(studies: Mapping[Path, StudySpec], device: str, say: Say) -> None:
    """Studies that one trainer can serve, as many at once as fit into memory, and how fast it was.

    studies: by where the history of each goes; the name of that file is the label of its algorithm.
    """
    trainer = prepare(next(iter(studies.values())), device).trainer
    runs = [untraced(run) for spec in studies.values() for run in planned_runs(spec, trainer)]
    began = time.perf_counter()
    records = run_in_groups(trainer, runs, report=Report({path.stem: path for path in studies}, say))
    seconds, trainings = time.perf_counter() - began, sum(record.trainings for record in records)
    for path, spec in studies.items():
        write_text(spec_beside(path), dump_spec(spec))  # last: now it is whole
    say(f"{seconds:.0f} s, {trainings * trainer.local_steps / seconds:,.0f} model-steps/s")


def untraced(run: PlannedRun) -> PlannedRun:
    """The run without a trace line for every event: there are millions."""
    return replace(run, setup=replace(run.setup, keep_trace=False))


class Report:
    """Hears how far things are: writes histories as they grow, and says so now and then."""

    def __init__(self, places: Mapping[str, Path], say: Say) -> None:
        """`places`: by label, where the history of a run goes."""
        self.places, self.say = places, say
        self.histories: dict[str, list[HistoryRow]] = {label: [] for label in places}
        self.began = self.said = time.perf_counter()

    def __call__(self, progress: Progress) -> None:
        for row in progress.rows:
            self.histories[row.algorithm].append(row)
        for label in {row.algorithm for row in progress.rows}:
            self.places[label].parent.mkdir(parents=True, exist_ok=True)
            write_history(self.places[label], self.histories[label], RUN_COLUMNS)
        for word in progress.words:
            self.say(word)
        if time.perf_counter() - self.said > SECONDS_BETWEEN_WORDS:
            self.said = time.perf_counter()
            self.say(f"  {progress.done / max(progress.total, 1):.0%} after {self.said - self.began:.0f} s")
