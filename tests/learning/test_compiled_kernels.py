"""Triton's compiler takes every kernel of ours, as it is called, for GPUs that are not here (`make test-kernels`).

Compiled down to the machine's code, with the types, sizes, warps and stages of real calls, and into no more shared
memory than the GPU has; nothing is run. What the kernels compute, Triton's interpreter shows (`test_fused.py`).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Any

import pytest
import torch

from walktalk.learning import Arithmetic
from walktalk.learning import kernels as fused
from walktalk.learning import kernels as package
from walktalk.learning.stacked.choice import gradients_of

from . import plain, test_fused
from .test_attending import SHAPES

triton = pytest.importorskip("triton", reason="needs Triton: pip install --no-deps triton")
pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="is about the compiler"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU that is here compiles them itself"),
]
SHARED = {80: 166_912, 90: 232_448}  # bytes that a program may have, by the kind of GPU: A100; H100 and H200


class Absent:
    """Triton's driver for a GPU that is not here: compiles, loads nothing, launches nothing."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.utils = self
        self.launched: set[str] = set()

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.kind, 32)

    def get_current_device(self) -> int:
        return self.kind  # so that Triton keeps what it has compiled for each

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED[self.kind], "multiprocessor_count": 132, "max_num_regs": 65_536}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        return 1, 1, 0, 0, 1024

    def unload_module(self, module: int) -> None:
        pass

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        self.launched.add(metadata.name)
        return lambda *_: None


@pytest.fixture(params=[90])
def gpu(request):
    from triton.runtime.driver import driver

    absent = Absent(request.param)
    before = driver._active
    driver.set_active(absent)
    yield absent
    driver._active = before


def kernels() -> set[str]:
    """Names of all kernels; what they call among themselves returns something."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        if "kernel" in module.name:
            parts = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
            ours = [part for part in parts.values() if isinstance(part, triton.runtime.jit.JITFunction)]
            found |= {part.__name__ for part in ours if "return " not in part.src}
    return found


def call_models() -> None:
    """Forwards, backwards and in evaluation, of every model that the fused kernels know."""
    for make in test_fused.MODELS.values():
        model = test_fused.traced(make())
        x, y = plain.images(4, 3, 16, 16).view(2, 2, 3, 16, 16), torch.tensor([[1, 2], [3, 4]])
        model.arithmetic, model.fused = Arithmetic("bf16"), torch.bfloat16
        weights = test_fused.two_rows(model, "cpu")
        gradients_of(model, weights, x, y)
        model.outputs(weights, x[0])


def call_attention() -> None:
    for texts, asking, asked, tokens, size, causal in SHAPES:
        laid = [(texts, count, tokens, size) for count in (asking, asked, asked)]
        given = [torch.zeros(one, dtype=torch.bfloat16, requires_grad=True) for one in laid]
        fused.attend_in_groups(*given, 0.2, causal).sum().backward()


def call_steps() -> None:
    """Of SGD, and copies and sums of whole rows."""
    data, numbers = torch.zeros(6, 5000), torch.tensor([0, 1])
    size, part = 5000, torch.zeros(2, 5000)
    for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
        settings = 1e-4, momentum, nesterov
        fused.sgd(data[0], data[1], data[2], data[3], *settings)
        fused.sgd_by_row(part, part, part, torch.zeros(2), *settings)
        for states in (None, (data, numbers, numbers)):
            fused.sgd_between(part, part, torch.zeros(2), (data, numbers), states, 0, *settings)
    for parts in (None, torch.tensor([0, -1])):
        fused.combine_rows(data, numbers + 4, numbers, torch.ones(2), torch.tensor([0, 1]), parts, 2)
    fused.keep_part(data, numbers + 4, numbers, 1, 2)
    fused.gather(data, numbers, part, 0)
    fused.scatter(part, data, numbers, 0)
    fused.spread_out(part, (2000, 3000), torch.zeros(2 * size))
    fused.spread_over(torch.zeros(2), (2000, 3000), torch.zeros(2 * size))


def test_every_kernel_is_compiled(gpu):
    call_models()
    call_attention()
    call_steps()
    assert gpu.launched == kernels()
