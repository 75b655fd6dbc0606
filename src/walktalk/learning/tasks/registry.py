"""Tasks by name, for specs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from walktalk.errors import DataError
from walktalk.learning.task import Task
from walktalk.learning.tasks.cifar10 import cifar10
from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.fashion_mnist import fashion_mnist
from walktalk.learning.tasks.quadratic import quadratic
from walktalk.seeds import Seed

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "quadratic": quadratic,
    "cifar10": cifar10,
    "fashion_mnist": fashion_mnist,
}


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
        if not fits(value, takes[key]):
            raise DataError(f"task.{key}: {value!r} is not possible; {takes[key]} is needed")
    try:
        return TASKS[name](nodes=nodes, seed=seed, **settings)
    except DataError as error:
        raise DataError(f"task.{error}") from error


def settings_of(name: str) -> dict[str, str]:
    """A task's own settings, with their types as they are written."""
    parameters = inspect.signature(TASKS[name]).parameters
    return {key: str(p.annotation) for key, p in parameters.items() if key not in ("nodes", "seed")}


def fits(value: Any, kind: str) -> bool:
    """Whether a value from a specification is of the kind that a setting takes."""
    if isinstance(value, bool):
        return "bool" in kind
    if isinstance(value, str):
        return "str" in kind or "Norm" in kind
    return isinstance(value, (int, float)) and ("int" in kind or "float" in kind)
