"""Turns the simulator's notes into the columns of a trace file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from walktalk.records import TRACE_COLUMNS


def trace_columns(rows: list[tuple[object, ...]]) -> dict[str, Sequence[object]]:
    """The rows as columns; what a row says in detail becomes JSON."""
    columns = zip(*rows, strict=True) if rows else [()] * len(TRACE_COLUMNS)
    table: dict[str, Sequence[object]] = dict(zip(TRACE_COLUMNS, columns, strict=True))
    # Here, not in a function: there are millions of them, and most are strings.
    table["detail"] = [d if d.__class__ is str else _TEXTS[tuple(d.items())] for d in table["detail"]]  # type: ignore[attr-defined]
    return table


class _Texts(dict[tuple[tuple[str, object], ...], str]):
    """Details as JSON: the same few combinations come again and again."""

    def __missing__(self, items: tuple[tuple[str, object], ...]) -> str:
        if len(self) >= MOST_TEXTS:
            self.clear()
        text = self[items] = json.dumps(dict(items))
        return text


MOST_TEXTS = 4096
_TEXTS = _Texts()
