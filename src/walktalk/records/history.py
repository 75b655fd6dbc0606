"""The history of a run or a study: what people plot, one row per evaluation, as CSV.

The bytes depend on the rows only: numbers in the shortest form that reads back as the same number, `nan` as nothing,
lines that end in `\\n`. So two histories are the same exactly when their files are.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from walktalk.core.errors import StudyError
from walktalk.core.lazy import later
from walktalk.records.atomic import write_text

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = later("pandas")


class HistoryRow(NamedTuple):
    """One evaluation of one run."""

    algorithm: str  # the algorithm's label
    repetition: int  # counted from 0
    iteration: int  # local trainings completed so far, over all nodes
    time: float  # seconds, virtual or real
    bits: int  # sent between different nodes so far, everything counted
    train_loss: float  # of the aggregated model, on the training data of all nodes
    test_accuracy: float  # of the aggregated model; nan where the task has none or the outputs are not numbers
    consensus: float  # mean squared distance of the members' models to their mean
    model_bits: int = 0  # the models' part of `bits`
    mean_train_loss: float = math.nan  # of the mean over the members' models
    mean_test_accuracy: float = math.nan  # likewise
    further: Mapping[str, float] | None = None  # what else was measured, by name: columns of their own, in the end


RUN_COLUMNS: tuple[str, ...] = HistoryRow._fields[:11]
"""Columns of a run's own history; what else was measured comes behind."""

COLUMNS: tuple[str, ...] = RUN_COLUMNS[:8]
"""Columns of a study's `history.csv`; metrics that somebody asked for come behind."""

UNASKED = ("test_loss", "mean_test_loss")
"""Measured always, and in a run's own history only: the columns of a study's are relied on."""

_INTEGERS = {"repetition", "iteration", "bits", "model_bits"}


def write_history(path: str | PathLike[str], rows: Iterable[HistoryRow], columns: tuple[str, ...] = COLUMNS) -> None:
    """Write the rows in the order given; `columns=RUN_COLUMNS` for a run's own history.

    Args:
        path: the file; it is replaced whole or not at all.
        rows: evaluations.
        columns: which of their fields are written.
    """
    write_text(path, history_text(rows, columns))


def history_text(rows: Iterable[HistoryRow], columns: tuple[str, ...] = COLUMNS) -> str:
    """The rows as CSV.

    Args:
        rows: evaluations, in the order in which they are to stand.
        columns: `COLUMNS` for a study's history, `RUN_COLUMNS` for a run's own.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    rows = list(rows)
    width, further = len(columns), further_columns(rows, columns)
    writer.writerow((*columns, *further))
    for row in rows:
        cells = [_cell(name, value) for name, value in zip(columns, row[:width], strict=True)]
        writer.writerow([*cells, *(_cell(name, (row.further or {}).get(name, math.nan)) for name in further)])
    return buffer.getvalue()


def further_columns(rows: Sequence[HistoryRow], columns: tuple[str, ...]) -> list[str]:
    """What else was measured in any of the rows.

    In an order of its own: a run that was taken up again has read its rows from a file, where theirs is another.
    """
    names = {name for row in rows for name in row.further or ()}
    wanted = [name for name in names if len(columns) > len(COLUMNS) or name not in UNASKED]
    return sorted(wanted, key=lambda name: (name not in UNASKED, name.startswith("mean_"), name))


def read_history(path: str | PathLike[str]) -> pd.DataFrame:
    """A history as a table, with either set of columns; a `StudyError` if the file is missing or damaged.

    Args:
        path: of a `history.csv`.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise StudyError(f"{path} cannot be read: {reason}; run the study first, or name its folder") from error
    return _parse(text, path)


def frame(rows: Iterable[HistoryRow], columns: tuple[str, ...] = COLUMNS) -> pd.DataFrame:
    """The table that reading the written rows would give.

    Args:
        rows: evaluations, in any order.
        columns: `COLUMNS` for a study's history, `RUN_COLUMNS` for a run's own.
    """
    return _parse(history_text(rows, columns), Path("history.csv"))


def _parse(text: str, path: Path) -> pd.DataFrame:
    header = tuple(text.split("\n", 1)[0].rstrip("\r").split(","))
    if header[: len(COLUMNS)] != COLUMNS:
        raise StudyError(f"{path} is not a history: its first line should be {','.join(COLUMNS)}")
    if not text.endswith("\n"):
        raise StudyError(f"{path} is cut off in its last line; run the study again with --resume")
    kinds = {name: "int64" if name in _INTEGERS else "float64" for name in header}
    kinds["algorithm"] = "str"
    absent = {name: [""] for name in header[1:]}  # an algorithm may well be called "nan"
    # Before pandas 3, which is what Python 3.10 gets, numbers are read to the last bit only if one asks for it.
    exact: Any = {"float_precision": "round_trip"} if int(pd.__version__.partition(".")[0]) < 3 else {}
    try:
        found: pd.DataFrame = pd.read_csv(
            io.StringIO(text), dtype=kinds, keep_default_na=False, na_values=absent, **exact
        )
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise StudyError(f"{path} is damaged ({reason}); run the study again with --resume") from error
    return found


def _cell(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name in _INTEGERS:
        return str(int(value))  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]  # takes NumPy's and torch's scalars too
    return "" if math.isnan(number) else repr(number)
