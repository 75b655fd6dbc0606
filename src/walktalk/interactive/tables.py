"""Results in few words and as small tables, for a prompt and for a notebook."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from walktalk.plots import in_words
from walktalk.report import results_table
from walktalk.studies import Foundation, RunRecord

CELL = "style='text-align: left'"


def run_text(title: str, base: Foundation, record: RunRecord) -> str:
    """One line."""
    return f"Run({title}: {', '.join(f'{name} {value}' for name, value in facts_of(base, record).items())})"


def run_html(title: str, base: Foundation, record: RunRecord) -> str:
    """A table with a row for each fact."""
    rows = "".join(
        f"<tr><th {CELL}>{escape(name)}</th><td {CELL}>{escape(value)}</td></tr>"
        for name, value in facts_of(base, record).items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def facts_of(base: Foundation, record: RunRecord) -> dict[str, str]:
    """What a person wants to know first of a run."""
    last = record.history[-1]
    found = {"task": base.spec.task.title, "graph": base.graph.name, "iterations": f"{last.iteration:,}"}
    found |= {"time": in_words("time", last.time), "sent": in_words("bits", last.bits)}
    found["loss"] = f"{last.train_loss:.4g}"
    return found if math.isnan(last.test_accuracy) else {**found, "accuracy": f"{100 * last.test_accuracy:.1f} %"}


def summary_text(summary: Mapping[str, Any]) -> str:
    """A line for each algorithm."""
    table = results_table(summary)
    cells = [table.head, *([cell.text for cell in row] for row in table.rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(table.head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([table.title, *lines, *(text for text in (table.note, table.warning) if text)])


def summary_html(summary: Mapping[str, Any]) -> str:
    """The same as a table, the best of each column in bold."""
    table = results_table(summary)
    head = "".join(f"<th {CELL}>{escape(name)}</th>" for name in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td {CELL}>{_cell(cell.text, cell.best)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<p><small>{escape(text)}</small></p>" for text in (table.note, table.warning) if text)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _cell(text: str, best: bool) -> str:
    return f"<b>{escape(text)}</b>" if best else escape(text)
