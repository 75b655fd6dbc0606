"""The table of results on the page: the terminal's, with a number behind every cell to sort by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from walktalk.report.page.markup import Html, tag, together
from walktalk.report.page.names import Name
from walktalk.report.page.sections import swatch
from walktalk.report.page.story import AXES
from walktalk.report.results import results_table


def results_html(summary: Mapping[str, Any], names: Mapping[str, Name], time: str) -> Html:
    """The table, each column sortable, the best of each marked."""
    table = results_table(summary, lambda label: names[label].name)
    titles = {"Time": time.capitalize()}
    head = tag("tr", *(_head(titles.get(text, text), place) for place, text in enumerate(table.head)))
    rows = [
        _row(row, _keys(summary["algorithms"][label], len(row)), names[label], label)
        for (label, row) in zip(summary["algorithms"], table.rows, strict=True)
    ]
    warning = tag("p", table.warning, class_="warning", role="note") if table.warning else Html("")
    body = tag("table", tag("thead", head), tag("tbody", *rows), class_="results", id="results-table")
    frame = tag("div", body, class_="scroller", tabindex="0", role="region", aria_label="Table of results")
    return together(frame, warning, tag("p", f"{table.note} The best of each column is marked ★.", class_="note"))


def _head(text: str, place: int) -> Html:
    button = tag("button", text, tag("span", "", class_="arrow", aria_hidden="true"), type="button")
    return tag("th", button, scope="col", aria_sort="none", data_column=str(place))


def _row(cells: Any, keys: list[float | str], name: Name, label: str) -> Html:
    first = tag("th", swatch(label), name.name, scope="row", data_sort=name.name)
    rest = [
        tag("td", cell.text, *_star(cell.best), data_sort=str(key), class_="best" if cell.best else None)
        for cell, key in zip(cells[1:], keys, strict=True)
    ]
    return tag("tr", first, *rest, data_algorithm=label)


def _star(best: bool) -> list[Html]:
    return [tag("span", " ★", title="best")] if best else []


def _keys(entry: Mapping[str, Any], width: int) -> list[float | str]:
    """The number behind each cell after the first; nothing where there is none, which sorts last."""
    spreads = [entry["final_loss"], *([entry["final_accuracy"]] if width > 2 + len(AXES) else [])]
    spreads += [entry["to_target"][axis] for axis in AXES]
    return ["" if spread is None else float(spread["mean"]) for spread in spreads]
