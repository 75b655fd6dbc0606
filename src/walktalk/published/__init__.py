"""Tables that others published, as studies: the published number, ours and the difference."""

from typing import TYPE_CHECKING

from walktalk import lazy

if TYPE_CHECKING:
    from walktalk.published.compare import Compared, as_frame, as_markdown, compared, history_of
    from walktalk.published.run import run_table
    from walktalk.published.table import SCALES, Cell, Row, Scale, Table, table_scale
    from walktalk.published.tables import TABLES, find_table

_HOMES = {
    "compare": ("Compared", "as_frame", "as_markdown", "compared", "history_of"),
    "run": ("run_table",),
    "table": ("SCALES", "Cell", "Row", "Scale", "Table", "table_scale"),
    "tables": ("TABLES", "find_table"),
}

__all__ = [
    "SCALES",
    "TABLES",
    "Cell",
    "Compared",
    "Row",
    "Scale",
    "Table",
    "as_frame",
    "as_markdown",
    "compared",
    "find_table",
    "history_of",
    "run_table",
    "table_scale",
]

__getattr__ = lazy.attributes(__name__, _HOMES)
__dir__ = lazy.listing(__all__)
