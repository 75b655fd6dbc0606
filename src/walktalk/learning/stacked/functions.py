"""Functions and methods in a traced model's forward, for many models at once.

What moves dimensions about, adds, multiplies or reduces is written out on [W, …], the row first. Everything else goes
through torch.vmap, function by function: what a person's forward does to one model's tensors is done to all rows' at
once, and only what vmap has no rule for is slow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from walktalk.learning.stacked.attention import AttentionCall, attend
from walktalk.learning.stacked.tensors import NotStackable, Pass, StackedTensor

ELEMENT_WISE = frozenset(
    {"relu", "relu_", "gelu", "silu", "leaky_relu", "elu", "selu", "relu6", "mish", "softplus", "hardtanh", "hardswish"}
    | {"tanh", "sigmoid", "logsigmoid", "exp", "log", "sqrt", "rsqrt", "square", "neg", "abs", "sin", "cos", "clamp"}
    | {"pow", "contiguous", "clone", "float", "detach"}
)
BINARY = frozenset({"add", "iadd", "sub", "isub", "mul", "imul", "truediv", "itruediv", "div", "pow"})
IS_ATTENTION = functional.scaled_dot_product_attention
POOLS: set[Any] = {
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
    functional.adaptive_max_pool2d,
    functional.max_pool1d,
    functional.avg_pool1d,
}
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "poisson", "empty", "dropout", "rrelu", "gumbel", "manual_seed")
FORBIDDEN = ("setitem", "setattr", "item", "tolist", "numpy", "backward")


def call(function: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Pass) -> Any:
    """A function, or a method by its name, on values of which some are `StackedTensor`."""
    name = function if isinstance(function, str) else getattr(function, "__name__", "").strip("_")
    x = args[0] if args else None
    if not isinstance(x, StackedTensor) and not any(isinstance(part, StackedTensor) for part in flat((args, kwargs))):
        return shared(function, name, args, kwargs)
    if name in BINARY and len(args) == 2 and not kwargs:
        return binary(getattr(operator, name) if name != "div" else operator.truediv, *args)
    if function is IS_ATTENTION:
        return attend(run, AttentionCall(*args, **kwargs))
    if function in POOLS and isinstance(x, StackedTensor) and not isinstance(function, str):
        return StackedTensor(function(x.folded(), *args[1:], **kwargs), x.rows, True)
    if name in ELEMENT_WISE and isinstance(x, StackedTensor):
        act = name.removesuffix("_")
        return x.like(
            getattr(x.tensor, act)(*args[1:], **kwargs)
            if isinstance(function, str)
            else function(x.tensor, *args[1:], **kwargs)
        )
    if name in HANDLED:
        try:
            return HANDLED[name](run, *args, **kwargs)
        except TypeError:  # another way to call it than the one written out here
            pass
    if name.startswith(RANDOM) or name in FORBIDDEN or (name.endswith("_") and not name.endswith("__")):
        raise NotStackable(f"function {name}")
    return by_vmap(function, args, kwargs)


def shared(function: Callable[..., Any] | str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls what works on shapes and constants alone, which all rows share."""
    if name.startswith(RANDOM) or name in FORBIDDEN:
        raise NotStackable(f"function {name}")
    return getattr(args[0], function)(*args[1:], **kwargs) if isinstance(function, str) else function(*args, **kwargs)


def by_vmap(function: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whatever it is, with the rows as vmap's dimension; it refuses what is random or looks at numbers."""
    leaves, shape = torch.utils._pytree.tree_flatten(
        (args, kwargs), is_leaf=lambda part: isinstance(part, StackedTensor)
    )
    rows = next(leaf.rows for leaf in leaves if isinstance(leaf, StackedTensor))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, StackedTensor)]

    def one(*tensors: Tensor) -> Any:
        given = list(leaves)
        for k, tensor in zip(places, tensors, strict=True):
            given[k] = tensor
        positional, named = torch.utils._pytree.tree_unflatten(given, shape)
        if isinstance(function, str):
            return getattr(positional[0], function)(*positional[1:], **named)
        return function(*positional, **named)

    found = torch.vmap(one)(*(leaves[k].stacked() for k in places))
    return torch.utils._pytree.tree_map(lambda tensor: StackedTensor(tensor, rows), found)


def flat(value: Any) -> list[Any]:
    """All that is inside of tuples, lists and dictionaries."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in flat(part)]
    return [leaf for part in value.values() for leaf in flat(part)] if isinstance(value, dict) else [value]


# -- arithmetic -------------------------------------------------------------------------------------------------------


def binary(function: Callable[..., Any], a: Any, b: Any) -> StackedTensor:
    if isinstance(a, StackedTensor) and isinstance(b, StackedTensor):
        if a.is_folded and b.is_folded:
            return a.like(function(a.tensor, b.tensor))
        one, other = aligned(a, b)
        return StackedTensor(function(one, other), a.rows)
    laid, other = (a, b) if isinstance(a, StackedTensor) else (b, a)
    if isinstance(other, Tensor) and other.dim() > 0:  # a constant: the same for all rows
        tensor = laid.stacked()
        if other.dim() > tensor.dim() - 1:
            raise NotStackable("a constant with more dimensions than the activation")
        return StackedTensor(function(tensor, other) if laid is a else function(other, tensor), laid.rows)
    return laid.like(function(laid.tensor, other) if laid is a else function(other, laid.tensor))


def aligned(a: StackedTensor, b: StackedTensor) -> tuple[Tensor, Tensor]:
    """Both as [W, …] with as many dimensions: new ones come right behind the row, as torch's come in front."""
    one, other = a.stacked(), b.stacked()
    more = one.dim() - other.dim()
    if more > 0:
        other = other.reshape(len(other), *[1] * more, *other.shape[1:])
    elif more < 0:
        one = one.reshape(len(one), *[1] * -more, *one.shape[1:])
    return one, other


def matmul(run: Pass, a: Any, b: Any) -> StackedTensor:
    if not isinstance(a, StackedTensor) or not isinstance(b, StackedTensor) or a.tensor.dim() < 3 or b.tensor.dim() < 3:
        raise TypeError
    one, other = aligned(a, b)
    return StackedTensor(one @ other, a.rows)


# -- dimensions -------------------------------------------------------------------------------------------------------


def behind(dim: int) -> int:
    """A dimension of one model's tensor in that of all."""
    return dim + 1 if dim >= 0 else dim


def many(dims: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes or dimensions, given one by one or as one sequence."""
    return tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims


def reshape(run: Pass, x: StackedTensor, *shape: Any) -> StackedTensor:
    return StackedTensor(x.stacked().reshape(x.rows, *many(shape)), x.rows)


def expand(run: Pass, x: StackedTensor, *sizes: Any) -> StackedTensor:
    wanted, tensor = many(sizes), x.stacked()
    more = len(wanted) - (tensor.dim() - 1)
    return StackedTensor(tensor.reshape(x.rows, *[1] * more, *tensor.shape[1:]).expand(x.rows, *wanted), x.rows)


def permute(run: Pass, x: StackedTensor, *dims: Any) -> StackedTensor:
    tensor = x.stacked()
    return StackedTensor(tensor.permute(0, *(d % (tensor.dim() - 1) + 1 for d in many(dims))), x.rows)


def flatten(run: Pass, x: StackedTensor, start_dim: int = 0, end_dim: int = -1) -> StackedTensor:
    return StackedTensor(x.stacked().flatten(behind(start_dim), behind(end_dim)), x.rows)


def shape_of(run: Pass, x: StackedTensor, dim: int | None = None) -> Any:
    if x.is_folded:
        shape = torch.Size((x.tensor.shape[0], x.tensor.shape[1] // x.rows, *x.tensor.shape[2:]))
    else:
        shape = x.tensor.shape[1:]
    return shape if dim is None else shape[dim]


def attribute(run: Pass, x: Any, name: str) -> Any:
    if not isinstance(x, StackedTensor):  # several results with names
        return getattr(x, name)
    if name == "shape":
        return shape_of(run, x)
    if name in ("device", "dtype", "is_cuda"):
        return getattr(x.tensor, name)
    if name == "ndim":
        return len(shape_of(run, x))
    if name in ("T", "mT"):
        return StackedTensor(x.stacked().transpose(-2, -1), x.rows)
    raise NotStackable(f"attribute {name}")


def getitem(run: Pass, x: StackedTensor, index: Any) -> Any:
    if not isinstance(x, StackedTensor):
        return x[index]
    if type(index) is int:
        return StackedTensor(x.part(index), x.rows, of=(x, index))
    parts = index if isinstance(index, tuple) else (index,)
    if any(not (part is None or part is Ellipsis or isinstance(part, (int, slice))) for part in flat(parts)):
        raise TypeError
    return StackedTensor(x.stacked()[(slice(None), *parts)], x.rows)


def joined(function: Callable[..., Tensor]) -> Callable[..., StackedTensor]:
    """Runs torch.cat or torch.stack of many models."""

    def run_it(run: Pass, parts: Any, dim: int = 0) -> StackedTensor:
        if not all(isinstance(part, StackedTensor) for part in parts):
            raise TypeError
        return StackedTensor(function([part.stacked() for part in parts], dim=behind(dim)), parts[0].rows)

    return run_it


def split(name: str) -> Callable[..., tuple[StackedTensor, ...]]:
    def run_it(run: Pass, x: StackedTensor, size: Any = None, dim: int = 0) -> tuple[StackedTensor, ...]:
        given = (size,) if size is not None else ()
        return tuple(StackedTensor(part, x.rows) for part in getattr(x.stacked(), name)(*given, dim=behind(dim)))

    return run_it


def along(name: str, *needed: str) -> Callable[..., StackedTensor]:
    """Functions of one tensor whose integers are dimensions."""

    def run_it(run: Pass, x: StackedTensor, *dims: int) -> StackedTensor:
        if not dims or not isinstance(x, StackedTensor) or not all(isinstance(d, int) for d in dims):
            raise TypeError
        return StackedTensor(getattr(x.stacked(), name)(*(behind(d) for d in dims)), x.rows)

    return run_it


def softmax(name: str) -> Callable[..., StackedTensor]:
    def run_it(
        run: Pass, x: StackedTensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None
    ) -> StackedTensor:
        return StackedTensor(getattr(torch, name)(x.stacked(), behind(dim), dtype=dtype), x.rows)

    return run_it


def reduction(name: str) -> Callable[..., StackedTensor]:
    """Sums and means over dimensions that are named."""

    def run_it(run: Pass, x: StackedTensor, *dim: Any, keepdim: bool = False, **named: Any) -> StackedTensor:
        dims = many(named.pop("dim", ()) if not dim and isinstance(named.get("dim"), tuple) else dim)
        if "dim" in named:
            dims = many((named.pop("dim"),))
        if len(dims) == 2 and isinstance(dims[1], bool):
            dims, keepdim = many(dims[:1]), dims[1]
        if not dims or named or any(isinstance(d, bool) or not isinstance(d, int) for d in dims):
            raise TypeError
        if x.is_folded and all(d >= 2 or 2 - x.tensor.dim() <= d < 0 for d in dims):
            return (
                StackedTensor(getattr(x.tensor, name)(dims, keepdim), x.rows, True)
                if keepdim or x.tensor.dim() - len(dims) >= 2
                else x
            )
        return StackedTensor(getattr(x.stacked(), name)(tuple(behind(d) for d in dims), keepdim), x.rows)

    return run_it


def dropout(run: Pass, x: StackedTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> StackedTensor:
    """`functional.dropout`; `training` is what the model was traced with."""
    return StackedTensor(run.dropped(x.stacked(), p), x.rows) if training and run.training else x


HANDLED: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "bmm": matmul,
    "view": reshape,
    "reshape": reshape,
    "expand": expand,
    "permute": permute,
    "flatten": flatten,
    "size": shape_of,
    "getattr": attribute,
    "getitem": getitem,
    "cat": joined(torch.cat),
    "concat": joined(torch.cat),
    "stack": joined(torch.stack),
    "chunk": split("chunk"),
    "split": split("split"),
    "unbind": lambda run, x, dim=0: tuple(StackedTensor(part, x.rows) for part in x.stacked().unbind(behind(dim))),
    "transpose": along("transpose"),
    "unsqueeze": along("unsqueeze"),
    "squeeze": along("squeeze"),
    "softmax": softmax("softmax"),
    "log_softmax": softmax("log_softmax"),
    "mean": reduction("mean"),
    "sum": reduction("sum"),
    "amax": reduction("amax"),
    "dropout": dropout,
}
