"""What a study leaves: the history and the summary of all its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walktalk.learning import Trainer
from walktalk.records import RUN_COLUMNS, StudyFolder, frame, write_history, write_text
from walktalk.studies.building import RunRecord
from walktalk.studies.results.summary import summarize, summary_text
from walktalk.studies.results.words import word_on_aggregate
from walktalk.studies.spec import StudySpec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StudyResult:
    """What a study leaves in memory; the rest is in its folder."""

    history: pd.DataFrame  # one row per evaluation of every run
    summary: dict[str, Any]  # what `summary.json` has: means, spreads, winners
    runs: list[RunRecord]  # each run's record, in the order of the study
    folder: Path | None  # where everything was written; None if nowhere
    trainer: Trainer | None = field(default=None, repr=False)  # what trained the models


def study_result(
    spec: StudySpec,
    records: list[RunRecord],
    folder: StudyFolder | None = None,
    engine: str = "sim",
    trainer: Trainer | None = None,
    further: Mapping[str, Any] | None = None,
) -> StudyResult:
    """History and summary of the whole study.

    Args:
        spec: The study.
        records: What its runs left, in order.
        folder: Where both are written; nowhere, if left out.
        engine: What ran it: sim, so that its time is virtual, or peers.
        trainer: What trained the models.
        further: What else the summary says.
    """
    rows = [row for record in records for row in record.history]
    history = frame(rows)
    summary = {**summarize(frame(rows, RUN_COLUMNS), spec), "engine": engine, **(further or {})}
    words = [word for record in records if (word := word_on_aggregate(record)) is not None]
    if words:
        summary["notes"] = words
    if folder is None:
        return StudyResult(history, summary, records, None, trainer)
    write_history(folder.history, rows)
    write_text(folder.summary, summary_text(summary))
    return StudyResult(history, summary, records, folder.home, trainer)
