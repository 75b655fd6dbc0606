"""One node's task: its function is asked for that part alone, so that a site reads nothing but its own data."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from walktalk.errors import DataError
from walktalk.learning.task import Task

NEWCOMER = -1
"""The number of a node that joins a cluster which runs, and has data of its own."""


class Node(NamedTuple):
    """A node as its cluster knows it."""

    name: str | None  # None: nodes have numbers only
    number: int


def part_wanted(make: Callable[..., Task], node: Node) -> str | int | None:
    """What a task's function is given as `part`: the node's name, or its number where it says int or there is no name.

    None: the function takes no `part`.
    """
    if "part" not in inspect.signature(make).parameters:
        return None
    kind = typing.get_type_hints(make).get("part", Any)
    named = kind is Any or str in (kind, *typing.get_args(kind))
    return node.name if named and node.name is not None else node.number


def only_part(task: Task, node: Node, asked: bool) -> Task:
    """The node's part of what a function gave; where it was asked for that alone, it must be that alone."""
    if not asked:
        return task.only(node.number)
    if task.nodes != 1:
        who = node.name if node.name is not None else f"node {node.number}"
        raise DataError(
            f"task {task.name}: it was asked for the part of {who} alone, but gave {task.nodes} nodes; hand `part` on, "
            "e.g. wt.tasks.torch(…, part=part)"
        )
    return task
