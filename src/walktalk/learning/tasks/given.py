"""What stands in a specification for a task that was handed over in Python."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from walktalk.errors import DataError
from walktalk.learning.samples import Column, Samples
from walktalk.learning.task import Task

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
    for samples in (task.inputs, task.targets, *(task.test or ())):
        _add(found, samples)
    for part in task.parts:
        found.update(part.tobytes())
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
