"""Many runs in one table: a row for each algorithm of each study, to be sorted and filtered."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from walktalk.core.errors import SpecError, suggestion
from walktalk.core.settings import misfit
from walktalk.report.results import Cell, Results, numbers
from walktalk.report.settings import as_yaml, between
from walktalk.studies import StudySpec, spec_mapping

SHORT = {f"final_{name}": name for name in ("loss", "accuracy", "consensus", "test_loss")}
OWN_TARGET = ("iteration_to_target", "time_to_target", "bits_to_target", "target_loss", "repetitions")
"""Columns that are not printed: each study has a target of its own, so that costs of two studies say nothing."""
COMPARED = re.compile(r"(?P<key>[^<>=!]+?)\s*(?P<how><=|>=|!=|=|<|>)\s*(?P<value>.+)")
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def with_settings(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> pd.DataFrame:
    """The numbers of a study, each row beginning with settings of the study, by dotted key.

    Args:
        settings: What is to be told of the study.
        summary: The study's.
    """
    found = numbers(summary).reset_index(drop=True).drop(columns=list(settings), errors="ignore")  # told as a setting
    for column, value in reversed(list(settings.items())):
        found.insert(0, column, [as_yaml(value) if isinstance(value, (list, dict)) else value] * len(found))
    return found


def runs_table(specs: Sequence[StudySpec], summaries: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each algorithm of each study: the settings in which the studies differ, then what it came to.

    Args:
        specs: The studies.
        summaries: Of each, what `summary.json` has.
    """
    differences = between([spec_mapping(spec) for spec in specs])
    rows = []
    for place, summary in enumerate(summaries):
        rows.append(with_settings({key: of[place] for key, of in differences.items() if key != "name"}, summary))
    return pd.concat(rows, ignore_index=True)


def column_named(table: pd.DataFrame, name: str) -> str:
    """The column of a table of many runs that is called so: whole, by its short name, or by the last word of a key."""
    names = [str(column) for column in table.columns]
    found = [one for one in names if name in (one, SHORT.get(one), one.removeprefix("final_"))]
    found = found or [one for one in names if name == one.rpartition(".")[2] or one == f"{name}_to_target"]
    if len(found) != 1:
        raise misfit("column", name, f"{', '.join(names)}{suggestion(name, names)}", SpecError)
    return found[0]


def sorted_and_filtered(
    table: pd.DataFrame, sort: str | None = None, where: Sequence[str] = (), columns: Sequence[str] = ()
) -> pd.DataFrame:
    """A table of many runs, as somebody wants to see it.

    Args:
        table: One row for each algorithm of each study.
        sort: A column; with a minus before it, from the largest to the smallest.
        where: Conditions that a row has to meet, such as `"optimizer.lr<0.1"` or `"topology=cycle"`.
        columns: Those to keep; all if left out.
    """
    for condition in where:
        told = COMPARED.fullmatch(condition.strip())
        if told is None:
            raise misfit("where", condition, "key=value, key!=value, or with <, <=, > or >= in between", SpecError)
        table = table[_meets(table[column_named(table, told["key"])], told["how"], told["value"])]
    if sort is not None:
        by = column_named(table, sort.removeprefix("-"))
        table = table.sort_values(by, ascending=not sort.startswith("-"), kind="stable", na_position="last")
    if not columns:
        return table
    chosen = [column_named(table, name) for name in columns]
    return table[[one for name in chosen for one in (name, f"{name}_std") if one in table.columns]]


def _meets(values: pd.Series[Any], how: str, wanted: str) -> pd.Series[Any]:
    """Which values meet a condition: compared as numbers where they are some, else as texts."""
    if how in ORDERS:
        number = pd.to_numeric(pd.Series([wanted]), errors="coerce")[0]
        return ORDERS[how](pd.to_numeric(values, errors="coerce"), number)  # type: ignore[no-any-return]
    same = values.map(lambda value: _same(value, wanted))
    return same if how == "=" else ~same


def _same(value: Any, wanted: str) -> bool:
    try:
        return float(value) == float(wanted)
    except (TypeError, ValueError):
        return str(value).casefold() == wanted.strip().casefold()


def shown_columns(table: pd.DataFrame) -> dict[str, str]:
    """The columns that are shown, and what they are called there; nothing of what has no common target."""
    shown = [name for name in map(str, table.columns) if not name.endswith("_std") and name not in OWN_TARGET]
    return {name: name.removeprefix("final_").rpartition(".")[2].replace("_", " ").capitalize() for name in shown}


def as_results(table: pd.DataFrame, title: str, note: str = "") -> Results:
    """A table of many runs, as it is printed: a mean and its σ in one cell."""
    shown = shown_columns(table)
    rows = []
    for _, row in table.iterrows():
        rows.append([Cell(_written(row[column], row.get(f"{column}_std"))) for column in shown])
    return Results(title, list(shown.values()), rows, note)


def _written(value: Any, std: Any) -> str:
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    if value != value:
        return "–"
    return f"{value:.4g}" + (f" ± {std:.2g}" if isinstance(std, float) and std == std else "")
