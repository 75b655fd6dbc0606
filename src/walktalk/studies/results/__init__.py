"""What a study has found: the trace's columns, and who won."""

from walktalk.studies.results.summary import first_below, summarize, summary_text
from walktalk.studies.results.trace_table import trace_columns

__all__ = ["first_below", "summarize", "summary_text", "trace_columns"]
