"""Histories as people have them: of a study, of one run, or of several runs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

History = pd.DataFrame | Mapping[str, pd.DataFrame]

ALONE = " "  # the label of a run that nobody gave a name


def as_history(given: History) -> pd.DataFrame:
    """A table with a column for the algorithm and one for the repetition, whatever was given.

    Args:
        given: A study's history; `run.history` of one run; or histories by name, for a legend: of runs, or of studies
            with one algorithm each.
    """
    if isinstance(given, Mapping):
        parts = [_labelled(history, str(name), rename=True) for name, history in given.items()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return _labelled(given, ALONE)


def _labelled(history: pd.DataFrame, name: str, rename: bool = False) -> pd.DataFrame:
    missing: dict[str, Any] = {}
    if "algorithm" not in history or (rename and history["algorithm"].nunique() <= 1):
        missing["algorithm"] = name
    if "repetition" not in history:
        missing["repetition"] = 0
    return history.assign(**missing) if missing else history
