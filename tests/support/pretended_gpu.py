"""A GPU that is none: tensors that say they are on one, computed on the CPU, with what a real one refuses refused.

For machines without a GPU (`make test-kernels`): a plugin of pytest, `-p tests.support.pretended_gpu`. With it,
`device="cuda"` works everywhere in this process, and tests that need a GPU run:

- tensors of two devices in one operation are an error, and so is a tensor on the CPU given to a Triton kernel;
- `.numpy()` of a tensor on the GPU is an error;
- a CUDA graph is the list of operations that were called while it was captured; a replay calls them again on the same
  memory. While it is captured, whatever would wait for the device (`.item()`, a copy to or from the CPU) is an error;
- Triton's kernels are run by its interpreter, with TRITON_INTERPRET=1 and where Triton is installed.

What it cannot tell: speed, memory, streams, compiled blocks, other bits, and whether Triton's compiler takes a kernel
(`tests/learning/test_compiled_kernels.py` asks that one).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda", 0)
MEMORY = 2**34  # bytes that it says it has
WAITING = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "is_nonzero", "unique_consecutive", "_unique2"}
MIXING = {"copy_", "index", "index_put", "index_put_", "_index_put_impl_"}
NOT_DONE_AGAIN = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
MAKERS = (
    "empty",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "eye",
    "tensor",
    "as_tensor",
    "rand",
    "randn",
    "randint",
)
LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like")
GIVEN = {"tensor", "as_tensor", "new_tensor"}  # made of numbers that Python has
OWN = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")


class OnGpu(torch.Tensor):
    """Says in Python that it is on the GPU; for torch's C++ it is on the CPU, as its numbers, `inner`, are."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnGpu:
        made: OnGpu = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device="cpu",
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, other: OnGpu) -> None:
        if not is_there(other):
            raise RuntimeError("attempted to set the data of a tensor on the GPU to one on the CPU")
        torch.Tensor.data.__set__(self, other)
        self.inner = other.inner

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:
        return f"OnGpu({self.inner!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied.detach(), self.requires_grad)
        memo[id(self)] = copied
        return copied


class Recording:
    """A CUDA graph: what was called, with its memory."""

    now: Recording | None = None  # the one that is being captured

    def __init__(self, *_: Any, **__: Any) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        found = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
        is_view = found and not writes and all(t.untyped_storage().data_ptr() in given for t in found if t.numel())
        if func._opname not in NOT_DONE_AGAIN and not is_view:
            self.calls.append((func, args, kwargs, out))


class Pretended(TorchDispatchMode):
    """Sees what torch makes for itself inside of an operation: that is on whatever device it is used on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})


class State:
    on = False  # whether there is such a GPU
    asked = False  # whether somebody in Python makes a tensor, and says where, or that it is to be on the CPU


def is_there(value: Any) -> bool:
    return isinstance(value, OnGpu)


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation, on the device that its arguments are on."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not any(map(is_there, tensors)):
        out = func(*args, **kwargs)
        if not tensors and not State.asked and isinstance(out, torch.Tensor):
            out.is_anywhere = True  # type: ignore[attr-defined]
        return out
    check(func, tensors)
    inner_args, inner_kwargs = tree_map(unwrapped, args), tree_map(unwrapped, kwargs)
    out = func(*inner_args, **inner_kwargs)
    if Recording.now is not None:
        Recording.now.add(func, inner_args, inner_kwargs, out)
    if func._opname == "copy_" and not is_there(args[0]):
        return args[0]
    wrapped = tree_map(lambda t: OnGpu(t) if isinstance(t, torch.Tensor) else t, out)
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def check(func: Any, tensors: list[torch.Tensor]) -> None:
    """Refuse what a GPU refuses."""
    name = func._opname
    elsewhere = [t for t in tensors if not is_there(t) and t.dim() > 0 and not hasattr(t, "is_anywhere")]
    if elsewhere and name not in MIXING:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu ({func})")
    if elsewhere and name.startswith("index") and not is_there(tensors[0]):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if name in WAITING or elsewhere:
        waits(func)


def waits(what: object) -> None:
    if Recording.now is not None:
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({what})")


def unwrapped(value: Any) -> Any:
    return value.inner if is_there(value) else value


# -- what says where a tensor is to be --------------------------------------------------------------------------------


def means_gpu(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda"


class Upload(torch.autograd.Function):
    """To the GPU; its gradient comes back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return OnGpu(x.detach().clone())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return downloaded(gradient)


class Download(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return unwrapped(x.detach()).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return uploaded(gradient)


def uploaded(x: torch.Tensor) -> torch.Tensor:
    if is_there(x):
        return x
    if x.dim() > 0:
        waits("a copy to the GPU")
    return Upload.apply(x) if x.requires_grad and torch.is_grad_enabled() else OnGpu(x.detach().clone())


def downloaded(x: torch.Tensor) -> torch.Tensor:
    if not is_there(x):
        return x
    waits("a copy from the GPU")
    return Download.apply(x) if x.requires_grad and torch.is_grad_enabled() else unwrapped(x.detach()).clone()


def making(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function that makes a tensor, on the GPU, too."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        before, State.asked = State.asked, True
        try:
            if not means_gpu(kwargs.get("device")):
                found = make(*args, **kwargs)
                return downloaded(found) if kwargs.get("device") is not None else found
            if make.__name__ in GIVEN:
                waits("a copy to the GPU")
            kwargs = {**kwargs, "device": "cpu"}
            found = OnGpu(make(*args, **kwargs).detach())
            if Recording.now is not None:
                Recording.now.calls.append((make, args, kwargs, found.inner))
            return found.requires_grad_(bool(kwargs.get("requires_grad", False)))
        finally:
            State.asked = before

    return made


def moving(to: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`Tensor.to`."""

    def moved(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = [*args[:1], kwargs.get("device"), kwargs.get("other")]
        place = next((one for one in given if isinstance(one, (str, torch.device))), None)
        other = next((one for one in given if isinstance(one, torch.Tensor)), None)
        if other is not None:
            place = other.device
        if place is None:
            return to(x, *args, **kwargs)
        x = uploaded(x) if means_gpu(place) else downloaded(x)
        if other is not None:
            return to(x, other.dtype)
        rest = args[1:] if args and isinstance(args[0], (str, torch.device)) else args
        rest = tuple(one for one in rest if one is not None)
        left = {name: value for name, value in kwargs.items() if name != "device" and value is not None}
        return to(x, *rest, **left) if [one for one in rest if isinstance(one, torch.dtype)] or left else x

    return moved


# -- the rest of a GPU ------------------------------------------------------------------------------------------------


@contextmanager
def captured(graph: Recording, **_: Any) -> Any:
    Recording.now = graph
    try:
        yield
    finally:
        Recording.now = None


class Stream:
    def wait_stream(self, other: Stream) -> None:
        """There is but one."""


STREAM = Stream()


def about(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(total_memory=MEMORY, name="a GPU that is none", multi_processor_count=132, major=9, minor=0)


def run_by_the_interpreter() -> None:
    """Kernels take tensors on the GPU, and none else."""
    from triton.runtime import interpreter

    launch = interpreter.GridExecutor.__call__

    def on_gpu(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(t, torch.Tensor) and not is_there(t) for t in args) and any(map(is_there, args)):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        inner = tuple(map(unwrapped, args))
        if Recording.now is not None:
            Recording.now.calls.append((lambda *given: launch(self, *given, **kwargs), inner, {}, None))
        launch(self, *inner, **kwargs)

    interpreter.GridExecutor.__call__ = on_gpu


def is_on() -> bool:
    return State.on


def pretend() -> None:
    """From now on there is a GPU."""
    State.on = True
    instead: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": lambda: True,
            "is_bf16_supported": lambda *_, **__: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "current_stream": lambda *_: STREAM,
            "Stream": lambda *_, **__: Stream(),
            "stream": lambda _: nullcontext(),
            "set_stream": lambda _: None,
            "synchronize": lambda *_: None,
            "empty_cache": lambda: None,
            "CUDAGraph": Recording,
            "graph": captured,
            "get_device_properties": about,
            "get_device_name": lambda *_: about().name,
            "mem_get_info": lambda *_: (MEMORY, MEMORY),
            "memory_reserved": lambda *_: 0,
            "memory_allocated": lambda *_: 0,
            "max_memory_allocated": lambda *_: 0,
            "get_rng_state": lambda *_: torch.get_rng_state(),
            "set_rng_state": lambda *_, **__: None,
            "manual_seed_all": lambda _: None,
            "default_generators": (torch.default_generator,),
        }
    }
    real = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    instead[torch] = {name: making(getattr(torch, name)) for name in (*MAKERS, *LIKE)}
    instead[torch] |= {
        "autocast": lambda _="", *args, **kwargs: real[0]("cpu", *args, **kwargs),
        "is_autocast_enabled": lambda _="": real[1]("cpu"),
        "get_autocast_dtype": lambda _="": real[2]("cpu"),
    }
    instead[torch.Tensor] = {name: making(getattr(torch.Tensor, name)) for name in OWN} | {
        "to": moving(torch.Tensor.to),
        "cuda": lambda x, *_: uploaded(x),
        "cpu": downloaded,
    }
    for owner, parts in instead.items():
        for name, value in parts.items():
            setattr(owner, name, value)
    if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None:
        run_by_the_interpreter()
    # A parameter that was on the CPU is another object afterwards; what shares it with others does so no more.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch.autograd.set_multithreading_enabled(False)  # the way back, too, in this thread
    Pretended().__enter__()


def pytest_configure(config: Any) -> None:
    pretend()
