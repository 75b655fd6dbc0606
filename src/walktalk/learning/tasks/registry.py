"""Tasks by name, for specs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from walktalk.errors import DataError
from walktalk.learning.task import Task
from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.quadratic import quadratic
from walktalk.seeds import Seed

TASKS: dict[str, Callable[..., Task]] = {"digits": digits, "quadratic": quadratic}


def build(name: str, nodes: int, seed: int | Seed, **settings: Any) -> Task:
    """The task of that name; a `DataError` names what is wrong and what is allowed."""
    if name not in TASKS:
        raise DataError(f"task.name: {name!r} is unknown; allowed: {', '.join(TASKS)}")
    takes = settings_of(name)
    for key, value in settings.items():
        if key not in takes:
            near = difflib.get_close_matches(key, takes, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DataError(f"task.{key}: {name} has no such setting{hint} (allowed: {', '.join(takes)})")
        if isinstance(value, (str, bool, list, dict)):
            raise DataError(f"task.{key}: {value!r} is not possible; a number is needed")
    try:
        return TASKS[name](nodes=nodes, seed=seed, **settings)
    except DataError as error:
        raise DataError(f"task.{error}") from error


def settings_of(name: str) -> list[str]:
    """The names of a task's own settings."""
    return [key for key in inspect.signature(TASKS[name]).parameters if key not in ("nodes", "seed")]
