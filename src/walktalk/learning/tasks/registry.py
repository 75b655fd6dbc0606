"""Tasks by name, for specifications.

A task is a function that returns a `Task`. Of its arguments, `nodes`, `seed` and `part` come from the study; all others
are its settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from walktalk.errors import DataError, SettingError
from walktalk.learning.task import Task
from walktalk.learning.tasks.cifar10 import cifar10
from walktalk.learning.tasks.digits import digits
from walktalk.learning.tasks.fashion_mnist import fashion_mnist
from walktalk.learning.tasks.given import given
from walktalk.learning.tasks.mnist import mnist
from walktalk.learning.tasks.mnli import mnli
from walktalk.learning.tasks.parts import NEWCOMER, Node, only_part, part_wanted
from walktalk.learning.tasks.quadratic import quadratic
from walktalk.plugins import Registry, of_the_person, returns, seed_for
from walktalk.seeds import Seed, as_seed
from walktalk.settings import Setting, complete, settings_of

FROM_THE_STUDY = ("nodes", "seed", "part")

TASKS: Registry[Callable[..., Task]] = Registry(
    "task", "a task is a function that returns a Task (-> wt.Task)", lambda thing: returns(thing, Task)
)
"""The tasks that `build` knows, by name."""

for _make in (digits, quadratic, cifar10, fashion_mnist, mnist, mnli, given):
    TASKS.add(_make.__name__, _make)


def task_settings(name: str) -> dict[str, Setting]:
    """What a task takes, beside what the study gives it."""
    return settings_of(TASKS.find(name), FROM_THE_STUDY)


def build(name: str, nodes: int, seed: int | Seed, part: str | int | None = None, **settings: Any) -> Task:
    """The task of that name; a `DataError` names what is wrong and what is allowed.

    Args:
        name: a registered or installed name, or `module:object`.
        nodes: how many nodes its data is split over.
        seed: of the split.
        part: the node whose data alone is wanted, for a function that takes it; None: everybody's.
        settings: the task's own.
    """
    try:
        make = TASKS.find(name)
        given = complete(settings, task_settings(name))
    except SettingError as error:
        raise DataError(f"task.{error}") from error
    takes = inspect.signature(make).parameters
    from_study = {"nodes": nodes, "seed": seed_for(make, seed), "part": part}
    # A module that the function makes has the same weights on every node of a deployment, and whenever it is run again.
    torch_seed = as_seed(seed).child("torch").integer % 2**63
    try:
        with of_the_person(f"name: {name}", make, DataError), torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed)  # of all devices: who knows where a person's function draws
            task = make(**{key: value for key, value in from_study.items() if key in takes}, **given)
    except DataError as error:
        raise DataError(f"task.{error}") from error
    if not isinstance(task, Task):
        raise DataError(f"task.name: {name} gave back {type(task).__name__}, but a walktalk.Task is needed")
    return task


def build_part(name: str, nodes: int, seed: int | Seed, node: Node, **settings: Any) -> Task:
    """The task of one node alone; a function that takes no `part` gives everybody's data, and the rest is let go.

    Args:
        name: of a registered task, or `module:function` of one's own.
        nodes: how many nodes the study has.
        seed: of the split.
        node: whose part it is.
        settings: the task's own.
    """
    try:
        part = part_wanted(TASKS.find(name), node)
    except SettingError as error:
        raise DataError(f"task.{error}") from error
    if node.number == NEWCOMER and not isinstance(part, str):
        raise DataError(
            f"task {name}: its data is split over the {nodes} nodes of the study, and none of it is {node.name}'s; say "
            f"whose part it takes, e.g. --part {nodes - 1} for that of the last"
        )
    return only_part(build(name, nodes, seed, part, **settings), node, part is not None)
