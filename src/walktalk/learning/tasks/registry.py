"""Tasks by name, for specifications.

A task is a function that returns a `Task`. Of its arguments, `nodes`, `seed` and `part` come from the study; all others
are its settings.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.core.errors import DataError, SettingError
from walktalk.core.plugins import Registry, of_the_person, returns, seed_for
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import Setting, complete, settings_of
from walktalk.learning.optimizers import described
from walktalk.learning.samples import Column, Samples
from walktalk.learning.task import Task
from walktalk.learning.tasks.images import cifar10, digits, fashion_mnist, mnist
from walktalk.learning.tasks.loop import LoopTask
from walktalk.learning.tasks.mnli import mnli
from walktalk.learning.tasks.outside import outside
from walktalk.learning.tasks.quadratic import quadratic

# -- One node's task: its function is asked for that part alone, so that a site reads nothing but its own data

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


# What stands in a specification for a task that was handed over in Python.

EDGE = 64  # samples from either end that a digest of data on demand reads


def given(called: str = "own", samples: int = 0, digest: str = "") -> Task:
    """Handed over in Python, to `walktalk.compare` or `walktalk.train`; its data is not in the specification.

    Args:
        called: how the task is called.
        samples: how many training samples it has.
        digest: of its data, its split and its weights, so that another task is not taken for it.
    """
    raise DataError(
        f"name: {called!r} was given in Python, so this specification does not say what it is; write a function that "
        "returns it, and name that as module:function"
    )


def section_of(task: Task) -> dict[str, Any]:
    """The `task` section of a study whose task was handed over."""
    return {"name": "given", "called": task.name, "samples": len(task.inputs), "digest": digest_of(task)}


def digest_of(task: Task) -> str:
    """A few letters that differ where data, split, model or weights do."""
    found = hashlib.blake2b(digest_size=8)
    found.update(repr(task.model).encode())
    found.update(described(task.optimizers).encode())
    for samples in (task.inputs, task.targets, *(task.test or ())):
        _add(found, samples)
    for part in task.parts:
        found.update(part.tobytes())
    if isinstance(task, LoopTask):
        task.add_identity(found.update)
    if task.pretrained:
        for tensor in task.model.state_dict().values():
            _add(found, tensor)
    return found.hexdigest()


def _add(found: Any, samples: Samples) -> None:
    found.update(f"{tuple(samples.shape)} {samples.dtype}".encode())
    if isinstance(samples, Column):  # reading all of it may take hours
        samples = torch.cat((samples[:EDGE], samples[-EDGE:]))
    found.update(_bytes(samples))


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return b"" if len(flat) == 0 else flat.view(torch.uint8).numpy().tobytes()


FROM_THE_STUDY = ("nodes", "seed", "part")

TASKS: Registry[Callable[..., Task]] = Registry(
    "task", "a task is a function that returns a Task (-> wt.Task)", lambda thing: returns(thing, Task)
)
"""The tasks that `build` knows, by name."""

OURS = ("digits", "quadratic", "cifar10", "fashion_mnist", "mnist", "mnli")
"""The tasks that come with this package: research on data that everybody knows, split on purpose."""

for _make in (digits, quadratic, cifar10, fashion_mnist, mnist, mnli, outside, given):
    TASKS.add(_make.__name__, _make)


def task_settings(name: str) -> dict[str, Setting]:
    """The settings that a task takes, beside what the study gives it."""
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
