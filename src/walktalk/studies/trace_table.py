"""Turns the simulator's notes into the columns of a trace file."""

from __future__ import annotations

import json
from functools import lru_cache

from walktalk.records import TRACE_COLUMNS


def trace_columns(rows: list[tuple[object, ...]]) -> dict[str, list[object]]:
    """The rows as columns; what a row says in detail becomes JSON."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in TRACE_COLUMNS]
    table = dict(zip(TRACE_COLUMNS, columns, strict=True))
    table["detail"] = [as_text(detail) for detail in table["detail"]]
    return table


def as_text(detail: object) -> str:
    if isinstance(detail, str):
        return detail
    return _json_of(tuple(detail.items()))  # type: ignore[attr-defined]


@lru_cache(maxsize=4096)
def _json_of(items: tuple[tuple[str, object], ...]) -> str:
    """The same few combinations come again and again."""
    return json.dumps(dict(items))
