"""The page a person reads, its table of results, and the figures of a study drawn from its folder."""

from walktalk.lazy import listing
from walktalk.report.comparison import Comparison, open_comparison, write_comparison
from walktalk.report.differences import in_words
from walktalk.report.figures import Window, draw
from walktalk.report.live import ClusterPage, live_page, served_cluster
from walktalk.report.page import PageParts, page_html, page_parts, write_page, write_report
from walktalk.report.replay import replay_data, write_film
from walktalk.report.results import Cell, Results, results_table
from walktalk.report.study import Study, open_study
from walktalk.report.tabular import latex, markdown, numbers

__all__ = [
    "Cell",
    "ClusterPage",
    "Comparison",
    "PageParts",
    "Results",
    "Study",
    "Window",
    "draw",
    "in_words",
    "latex",
    "live_page",
    "markdown",
    "numbers",
    "open_comparison",
    "open_study",
    "page_html",
    "page_parts",
    "replay_data",
    "results_table",
    "served_cluster",
    "write_comparison",
    "write_film",
    "write_page",
    "write_report",
]

__dir__ = listing(__all__)
