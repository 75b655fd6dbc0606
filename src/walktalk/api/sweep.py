"""`sweep`: a study once for each combination of values of some of its keys, and one table of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
from walktalk.report import open_comparison, runs_table, sorted_and_filtered, write_comparison
from walktalk.studies import StudyResult, StudySpec, make_specs, read_study, run_study, spec_mapping


@dataclass(frozen=True, repr=False)
class Sweep:
    """What a sweep leaves: every study with its result, and one table of all their algorithms."""

    specs: Mapping[str, StudySpec]  # by what each has of its own, such as "lr 0.02, topology cycle"
    results: Mapping[str, StudyResult]  # by the same names: histories, summaries and runs
    folder: Path | None = None  # where they were written, each in a folder of its own; None if nowhere

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each algorithm of each study: the swept keys, then means and σ over repetitions."""
        return runs_table(list(self.specs.values()), [result.summary for result in self.results.values()])

    def rows(
        self, sort: str | None = None, where: str | Iterable[str] = (), columns: Iterable[str] = ()
    ) -> pd.DataFrame:
        """The table, sorted and filtered.

        Args:
            sort: A column, such as `"accuracy"` or `"lr"`; with a minus before it, from the largest to the smallest.
            where: Conditions that a row has to meet: `"lr<0.1"`, `["topology=cycle", "final_accuracy>=0.9"]`.
            columns: Those to keep; all if left out.
        """
        conditions = [where] if isinstance(where, str) else list(where)
        return sorted_and_filtered(self.table, sort, conditions, list(columns))

    def __repr__(self) -> str:
        count = sum(len(result.runs) for result in self.results.values())
        there = "" if self.folder is None else f", in {self.folder}"
        return f"Sweep({len(self.results)} studies, {count} runs{there})\n{self.table.to_string(max_rows=20)}"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(max_rows=50))


def sweep(
    study: str | PathLike[str] | Mapping[str, Any] | StudySpec,
    over: Mapping[str, Iterable[Any]] | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int | None = None,
) -> Sweep:
    """Run a study once for each combination of values of some of its keys, and put all into one table.

        found = wt.sweep("study.yaml", {"optimizer.lr": [0.02, 0.1], "network.topology": ["cycle", "complete"]})
        found.rows(sort="-accuracy", where="topology=cycle")

    Args:
        study: A YAML file, a preset's name, a mapping with the keys of the YAML, or a `StudySpec`. A list that stands
            in it where one value belongs is swept over, too.
        over: Lists of values by dotted key; of a whole section's keys each counts: every combination is run.
        out: The folder in which each study gets a folder of its own, beside `report.html`, a page of all; without one
            they are kept in memory only.
        resume: Go on where an interrupted sweep stopped in that folder.
        overwrite: Replace what is in that folder, study by study, when the new results are whole.
        device: auto, cpu or cuda.
        workers: Processes that share the runs of a study; as many as pay if left out.
    """
    if resume and out is None:
        raise SpecError("resume is about a folder; say which with out='…'")
    specs = make_specs(_content(study), over)
    folder = None if out is None else Path(out)
    results = {}
    for name, spec in specs.items():
        place = None if folder is None else folder / spec.name
        results[name] = run_study(
            spec, place, resume=resume, overwrite=overwrite, device=device, workers=workers if place else None
        )
    if folder is not None and len(specs) > 1:
        write_comparison(open_comparison([folder / spec.name for spec in specs.values()]), folder / "report.html")
    return Sweep(specs, results, folder)


def _content(study: Any) -> Mapping[str, Any]:
    if isinstance(study, StudySpec):
        return spec_mapping(study)
    if isinstance(study, Mapping):
        return study
    if not isinstance(study, (str, PathLike)):
        raise misfit("study", study, "a YAML file, a preset's name, a mapping, or a StudySpec", SpecError)
    return read_study(study)
