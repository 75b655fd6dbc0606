"""Tasks by name, for specs."""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from walktalk.errors import DataError
from walktalk.learning.task import Task
from walktalk.learning.tasks.cifar10 import cifar10
from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.fashion_mnist import fashion_mnist
from walktalk.learning.tasks.mnli import mnli
from walktalk.learning.tasks.parts import Node, only_part, part_wanted
from walktalk.learning.tasks.quadratic import quadratic
from walktalk.seeds import Seed

FROM_THE_STUDY = ("nodes", "seed", "part")

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "quadratic": quadratic,
    "cifar10": cifar10,
    "fashion_mnist": fashion_mnist,
    "mnli": mnli,
}


def build(name: str, nodes: int, seed: int | Seed, part: str | int | None = None, **settings: Any) -> Task:
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
            raise DataError(f"task.{key}: {value!r} is not possible; {in_words(takes[key])} is needed")
    try:
        make = TASKS[name]
        from_study = {"nodes": nodes, "seed": seed, "part": part}
        accepted = inspect.signature(make).parameters
        return make(**{key: value for key, value in from_study.items() if key in accepted}, **settings)
    except DataError as error:
        raise DataError(f"task.{error}") from error


def build_part(name: str, nodes: int, seed: int | Seed, node: Node, **settings: Any) -> Task:
    """The task of one node alone; a function that takes no `part` gives everybody's data, and the rest is let go."""
    if name not in TASKS:
        return build(name, nodes, seed, **settings)  # says what is wrong
    part = part_wanted(TASKS[name], node)
    return only_part(build(name, nodes, seed, part, **settings), node, part is not None)


def settings_of(name: str) -> dict[str, Any]:
    """A task's own settings, with their types."""
    kinds = typing.get_type_hints(TASKS[name])
    return {key: kinds[key] for key in inspect.signature(TASKS[name]).parameters if key not in FROM_THE_STUDY}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from a specification is of the kind that a setting takes, or one of those."""
    allowed = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    for one in allowed:
        if typing.get_origin(one) is typing.Literal:
            if value in typing.get_args(one):
                return True
        elif type(value) is one or (one is float and type(value) is int):
            return True
    return False


def in_words(kind: Any) -> str:
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    allowed = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    words = []
    for one in allowed:
        choices = typing.get_args(one) if typing.get_origin(one) is typing.Literal else ()
        words.append(" or ".join(map(str, choices)) if choices else names.get(getattr(one, "__name__", ""), ""))
    return " or ".join(word for word in words if word)
