"""One node's task: its function is asked for that part alone, so that a site reads nothing but its own data."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.learning.partition import balanced_dirichlet, by_label, even_dirichlet, iid, true_dirichlet
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


# How a task with classes splits its data: iid, by Dirichlet(alpha), by label, or sorted and cut.

Kind: TypeAlias = Literal["dirichlet", "balanced", "even"]


def own_part(parts: list[np.ndarray], part: int | None) -> np.ndarray | None:
    """The samples of one node; None where everybody's are wanted."""
    if part is None:
        return None
    if not 0 <= part < len(parts):
        raise misfit("part", part, f"0 to {len(parts) - 1}", DataError)
    return parts[part]


def own_samples(
    images: np.ndarray, labels: np.ndarray, parts: list[np.ndarray], part: int | None
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images, labels and parts as a node has them: its own alone; all of them where everybody's are wanted."""
    mine = own_part(parts, part)
    return (images, labels, parts) if mine is None else (images[mine], labels[mine], [np.arange(len(mine))])


def check_samples(samples: int | None, most: int) -> None:
    """Checks that there can be so many samples; None: all of them."""
    if samples is not None and not 1 <= samples <= most:
        raise misfit("samples", samples, f"1 to {most}", DataError)


def split_by_class(
    labels: np.ndarray,
    nodes: int,
    seed: Seed,
    alpha: float | None,
    labels_per_node: int | None = None,
    kind: Kind = "dirichlet",
    split_seed: int | None = None,
) -> list[np.ndarray]:
    """Splits samples by their classes; only one of alpha and labels_per_node may be given.

    kind: with alpha, the plain Dirichlet split; `balanced`, the published one; or `even`, the same cut anew into equal
    pieces, in the order of the nodes, as RelaySGD's authors do. split_seed: of the even split, that of published code.
    """
    if split_seed is not None and (alpha is None or kind != "even"):
        raise DataError(f"split_seed: {split_seed} is of published even splits; take split: even with an alpha")
    if alpha is not None and labels_per_node is not None:
        raise DataError(f"alpha: {alpha} and labels_per_node: {labels_per_node} exclude each other; leave one out")
    if labels_per_node is not None:
        return by_label(labels, nodes, labels_per_node, seed)
    if alpha is None:
        return iid(len(labels), nodes, seed)
    if kind == "dirichlet":
        return true_dirichlet(labels, nodes, alpha, seed)
    if kind == "balanced":
        return balanced_dirichlet(labels, nodes, alpha, seed)
    return even_dirichlet(labels, nodes, alpha, seed if split_seed is None else np.random.RandomState(split_seed))


def sorted_and_cut(labels: np.ndarray, nodes: int) -> list[np.ndarray]:
    """All samples in the order of their labels, cut into equal pieces: one or two classes a node."""
    if nodes > len(labels):
        raise DataError(f"nodes: {nodes} is more than the {len(labels)} samples there are; every node needs one")
    return np.array_split(np.argsort(labels, kind="stable"), nodes)
