"""What every run leaves: the history, which people plot, and the trace, what happened.

The history is of a run or a study, one row per evaluation, as CSV. Its bytes depend on the rows only: numbers in the
shortest form that reads back as the same number, `nan` as nothing, lines that end in `\\n`. So two histories are the
same exactly when their files are.

The trace is every event, as Parquet: enough to draw the time line and to recompute the run's arithmetic.

| event | node | what the other columns say |
| --- | --- | --- |
| `train` | trains | slot; walk; number: the training; key: of its batches; lr; detail: what else was asked for |
| `differentiate` | trains | the same, for a gradient |
| `trained` | trained | slot; walk; iteration: its number; number: the training |
| `send` | sender | peer: receiver; slot; walk; number: the message; bytes; detail: `{"kind": …, "into": …}` |
| `receive` | receiver | peer: sender; slot; walk; number: the message |
| `combine` | owner | slot: what is set; detail: slot -> weight, and `statistics:slot` -> weight where there are any |
| `encode` | owner | slot: what is set; key: of its random numbers; detail: `{"slot": …, "codec": …}` |
| `screen` | owner | slot: what is set; key: of random numbers; detail: own, rule, and `with:` each slot its weight |
| `withheld` | owner | slot: an update that its privacy budget has nothing left for: it is zero from then on |
| `corrupted` | a bad node | slot: what it sends something else in place of; key; detail: flip, scale(C), noise(S) |
| `decode` | owner | slot: what is set; detail: the encoded slot |
| `record` | owner | slot; walk: the key; detail: the role |
| `mix_everyone` | active | slot, at every node |

Rows are in the order in which things happened, and the bytes of the file depend on nothing but them. More events may
come (`kill`, `revive`, `elected`, `partition` …); a reader passes over those that it does not know.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from walktalk.core.errors import StudyError
from walktalk.core.lazy import later
from walktalk.records.atomic import finish, unfinished, write_text, writing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
else:  # a node writes rows and no files of this kind
    pd = later("pandas")
    pa, pq = later("pyarrow"), later("pyarrow.parquet")


# -- The history -------------------------------------------------------------------------------------------------------


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


# -- The trace ---------------------------------------------------------------------------------------------------------

ROWS_A_GROUP = 2**14  # a piece of the file; always the same, so that its bytes do not tell how it was written


class TraceRow(NamedTuple):
    """One event of a trace, by column; what it does not need stays as it is here."""

    time: float
    node: int
    event: str
    slot: str = ""
    peer: int = -1
    walk: int = -1
    iteration: int = -1
    number: int = -1
    bytes: int = 0
    key: int = 0
    lr: float = 0.0
    detail: Any = ""  # text, or what becomes JSON in the file


TRACE_COLUMNS: tuple[str, ...] = TraceRow._fields


@cache
def schema() -> Any:
    """What stands in which column of the file."""
    text = pa.dictionary(pa.int32(), pa.string())  # a few strings, over and over
    kinds = {
        "time": pa.float64(),  # seconds
        "node": pa.int32(),
        "event": text,
        "slot": text,
        "peer": pa.int32(),
        "walk": pa.int32(),
        "iteration": pa.int64(),
        "number": pa.int64(),
        "bytes": pa.int64(),
        "key": pa.int64(),
        "lr": pa.float64(),
        "detail": text,
    }
    return pa.schema([(name, kinds[name]) for name in TRACE_COLUMNS])


_ABSENT: dict[str, Any] = {"bytes": 0, "lr": math.nan, "slot": "", "detail": ""}  # all others: -1


class TraceWriter:
    """Writes a trace piece by piece; the file appears under its name when it is closed, and only then."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._part = unfinished(self.path)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer: Any = pq.ParquetWriter(self._part, schema(), compression="zstd")
        self._waiting: list[Any] = []  # tables of rows that do not fill a group yet
        self._rows = 0  # in them

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows, one list per column; a column that is left out has nothing to say in any of them."""
        unknown = set(columns) - set(TRACE_COLUMNS)
        if unknown:
            raise ValueError(f"a trace has no column {', '.join(sorted(unknown))}")
        rows = len(columns["time"])
        arrays = [_array(name, columns.get(name), rows) for name in TRACE_COLUMNS]
        self._waiting.append(pa.Table.from_arrays(arrays, names=list(TRACE_COLUMNS)))
        self._rows += rows
        if self._rows >= ROWS_A_GROUP:
            self._write_groups(self._rows // ROWS_A_GROUP)

    def _write_groups(self, count: int) -> None:
        """Write that many groups of what waits; the rest waits on."""
        table = pa.concat_tables(self._waiting).combine_chunks()
        for start in range(0, count * ROWS_A_GROUP, ROWS_A_GROUP):
            group = table.slice(start, ROWS_A_GROUP)
            columns = [_encoded(name, group.column(name).chunk(0)) for name in TRACE_COLUMNS]
            with writing(self.path):
                self._writer.write_table(pa.Table.from_arrays(columns, schema=schema()))
        rest = table.slice(count * ROWS_A_GROUP)
        self._waiting, self._rows = [rest] if len(rest) else [], len(rest)

    def close(self) -> None:
        """Finish the file and give it its name. Closing twice does nothing."""
        if self._writer is not None:
            if self._rows:
                self._write_groups(1)
            writer, self._writer = self._writer, None
            with writing(self.path):
                writer.close()
                finish(self._part, self.path)

    def discard(self) -> None:
        """Give up: nothing is left behind."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with suppress(OSError):  # a full disk is why we are here
                writer.close()
        with suppress(OSError):
            self._part.unlink()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def read_trace(path: str | PathLike[str]) -> pd.DataFrame:
    """A trace as a table, strings as categories; a `StudyError` if the file is missing or damaged.

    Args:
        path: of a `trace.parquet`.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"{path} is not there; a run writes its trace when it ends, so finish it with --resume")
    try:
        table = pq.read_table(path, memory_map=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StudyError(f"{path} is not a whole trace; delete it and run the study again with --resume") from error
    if tuple(table.column_names) != TRACE_COLUMNS:
        raise StudyError(f"{path} is not a trace of walktalk: its columns are {', '.join(table.column_names)}")
    result: pd.DataFrame = table.to_pandas()
    return result


def _array(name: str, values: Sequence[Any] | None, rows: int) -> Any:
    kind = schema().field(name).type
    if values is None:
        values = [_ABSENT.get(name, -1)] * rows
    return pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)


def _encoded(name: str, array: Any) -> Any:
    return array.dictionary_encode() if pa.types.is_dictionary(schema().field(name).type) else array
