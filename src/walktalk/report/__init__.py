"""The page a person reads, its table of results, and the figures of a study drawn from its folder."""

from walktalk.report.figures import Window, draw
from walktalk.report.page import write_report
from walktalk.report.results import Cell, Results, results_table

__all__ = ["Cell", "Results", "Window", "draw", "results_table", "write_report"]
