"""Products by numpy's library in place of torch's, where that is the faster one: on AMD's CPUs with AVX-512.

There MKL, which torch has, multiplies with half of the registers' width. OpenBLAS, which numpy's own builds have, uses
all of it: 240 Gflop/s on a thread of an AMD EPYC with Zen 5, where MKL has 115, and where matrices are small, three
times MKL's rate. numpy multiplies matrix by matrix, so that a model has the same bits alone and in any wave. Which of
the two it is follows from the CPU and from numpy's library, never from a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walktalk.cpuinfo import cpu_says

AMD = "AuthenticAMD"
WIDE = ("SkylakeX", "Cooperlake", "SapphireRapids")  # OpenBLAS's kernels for AVX-512; with others MKL is as fast


@cache
def libraries() -> list[Any]:
    """The OpenBLAS that numpy multiplies with, if it does; and scipy's, should that be there, too."""
    from threadpoolctl import ThreadpoolController

    told: Any = np.show_config(mode="dicts")
    if "openblas" not in told["Build Dependencies"]["blas"]["name"]:
        return []
    return [one for one in ThreadpoolController().lib_controllers if one.internal_api == "openblas"]


@cache
def is_faster() -> bool:
    """Whether numpy's library is faster than torch's on this machine."""
    if cpu_says("vendor_id") != AMD or not libraries():
        return False
    return all(library.architecture in WIDE for library in libraries())


def is_taken(like: Tensor | None = None) -> bool:
    """Whether numpy is to multiply now: with one thread, as small models are trained; of numbers like these."""
    fits = like is None or (like.device.type == "cpu" and like.dtype == torch.float32)
    return fits and is_faster() and torch.get_num_threads() == 1


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """a b of matrices [W, …]."""
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy()))


class _Inside:
    """How many trainings go on, and how many threads the libraries had before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.trainings = 0
        self.before: list[int] = []


_inside = _Inside()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, numpy multiplies with one thread, where it is taken: torch's threads are not its own.

    It also keeps to itself what torch would: that numbers overflow. Who watches a run says so, and what to do.
    """
    if not is_taken():
        yield
        return
    with _inside.lock:
        if _inside.trainings == 0:
            _inside.before = [library.get_num_threads() for library in libraries()]
            set_threads([1] * len(_inside.before), _inside.before)
        _inside.trainings += 1
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        with _inside.lock:
            _inside.trainings -= 1
            if _inside.trainings == 0:
                set_threads(_inside.before, [1] * len(_inside.before))


def set_threads(wanted: list[int], present: list[int]) -> None:
    for library, count, now in zip(libraries(), wanted, present, strict=True):
        if count != now:
            library.set_num_threads(count)
