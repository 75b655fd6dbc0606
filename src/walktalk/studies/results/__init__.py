"""What a study has found: rows of its records, and who won."""

from walktalk.studies.results.rows import history_row, save_model, trace_columns, write_run
from walktalk.studies.results.study import StudyResult, study_result
from walktalk.studies.results.summary import algorithms_of, first_below, summarize
from walktalk.studies.results.words import word_on_aggregate

__all__ = [
    "StudyResult",
    "algorithms_of",
    "first_below",
    "history_row",
    "save_model",
    "study_result",
    "summarize",
    "trace_columns",
    "word_on_aggregate",
    "write_run",
]
