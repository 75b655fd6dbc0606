"""What `compare` leaves: the study's history and summary, its runs, and its page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.errors import StudyError, suggestion
from walktalk.interactive.keeping import page_of, save_study
from walktalk.interactive.run import Run
from walktalk.interactive.tables import summary_html, summary_text
from walktalk.plots import Axis, curves
from walktalk.report import latex, numbers, results_table, write_report
from walktalk.studies import Foundation, StudyResult


@dataclass(frozen=True, repr=False)
class Compared:
    """What a comparison leaves."""

    result: StudyResult  # as `run_study` gives it
    base: Foundation  # the study: its specification, graph and algorithms

    @property
    def history(self) -> pd.DataFrame:
        """One row per evaluation of every run."""
        return self.result.history

    @property
    def summary(self) -> dict[str, Any]:
        """Means and spreads of every algorithm, and the winner on every axis: what `summary.json` has."""
        return self.result.summary

    @property
    def folder(self) -> Path | None:
        """Where everything was written; None if nowhere."""
        return self.result.folder

    @cached_property
    def runs(self) -> list[Run]:
        """Every run: all repetitions of the first algorithm, then those of the next."""
        trainer, engine = self.result.trainer, str(self.summary.get("engine", "sim"))
        assert trainer is not None
        return [Run(record, trainer, self.base, self.folder, engine) for record in self.result.runs]

    def run(self, algorithm: str, repetition: int = 0) -> Run:
        """One run.

        Args:
            algorithm: Its label, as in `history`.
            repetition: Counted from 0.
        """
        for run in self.runs:
            if (run.record.label, run.record.repetition) == (algorithm, repetition):
                return run
        labels = list(dict.fromkeys(run.record.label for run in self.runs))
        raise StudyError(
            f"there is no run {repetition} of {algorithm!r}; algorithms: {', '.join(labels)}, repetitions: 0 to "
            f"{self.base.spec.repetitions - 1}{suggestion(algorithm, labels)}"
        )

    @property
    def table(self) -> pd.DataFrame:
        """The numbers of the printed table: a row for each algorithm, means and σ; `.to_csv("table.csv")` keeps it."""
        return numbers(self.summary)

    def latex(self) -> str:
        """The printed table as a LaTeX `tabular` for the package booktabs, the best of each column in bold."""
        return latex(results_table(self.summary))

    def plot(self, x: Axis = "iteration") -> Any:
        """Loss and accuracy of all algorithms as a matplotlib figure, mean ± σ over repetitions.

        Args:
            x: Along what: "iteration", "time" or "bits".
        """
        return curves(self.history, x, algorithms=self.base.spec.described)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the whole study: specification, history, summary, every run, figures and page; the folder.

        Args:
            folder: Where; it need not exist yet.
            overwrite: Replace a study that is there.
        """
        return save_study(self.base, self.runs, folder, overwrite=overwrite)

    def report(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the page that a person reads; its path.

        Args:
            path: The page's file; `report.html` in the study's folder, with all figures, if left out.
        """
        if path is not None:
            return page_of(self.base, self.runs, path)
        if self.folder is None:
            raise StudyError("report: this comparison has no folder; say where its page goes, report('mine.html')")
        return write_report(self.folder, self.base)

    def __repr__(self) -> str:
        return summary_text(self.summary)

    def _repr_html_(self) -> str:
        return summary_html(self.summary)
