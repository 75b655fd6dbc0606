"""Any module that torch.fx can trace, run for many rows at once with the layers of `layers`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from walktalk.learning.stacked.fused import plan
from walktalk.learning.stacked.layers import Laid, NotStackable, Pass, flatten, layer_of

BINARY: set[Any] = {
    operator.add,
    operator.iadd,
    operator.sub,
    operator.mul,
    operator.truediv,
    torch.add,
    torch.sub,
    torch.mul,
}
UNARY: set[Any] = {
    functional.relu,
    torch.relu,
    functional.gelu,
    functional.silu,
    functional.leaky_relu,
    functional.elu,
    torch.tanh,
    functional.tanh,
    torch.sigmoid,
    functional.sigmoid,
    functional.softplus,
    torch.exp,
    operator.neg,
}
UNARY_METHODS = {"relu", "relu_", "tanh", "sigmoid", "contiguous", "clone", "float"}
POOL_FUNCTIONS: set[Any] = {
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
    functional.adaptive_max_pool2d,
}


class LayerTracer(fx.Tracer):
    """Does not look inside what has a stacked form."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return layer_of(m) is not None or super().is_leaf_module(m, module_qualified_name)


class Traced:
    """A module's graph; raises `NotStackable` where something in it has no stacked form."""

    def __init__(self, module: nn.Module) -> None:
        try:
            self.graph = LayerTracer().trace(module)
        except Exception as error:  # whatever a person's forward does
            raise NotStackable(f"torch.fx cannot trace it: {error}") from error
        self.modules = dict(module.named_modules())
        self.plan = plan(self.graph, self.modules)
        self.nodes = list(self.graph.nodes)
        for node in self.nodes:
            if node.op == "call_module" and layer_of(self.modules[node.target]) is None:
                raise NotStackable(f"layer {type(self.modules[node.target]).__name__}")
            if node.op == "get_attr":
                raise NotStackable(f"attribute {node.target}")

    def __call__(self, inputs: Tensor, run: Pass) -> Tensor:
        """Outputs [W, B, …] for inputs [W, B, …]."""
        values: dict[fx.Node, Any] = {}
        for node in self.nodes:
            if node.op == "placeholder":
                if values:
                    raise NotStackable("more than one input")
                values[node] = Laid(inputs, inputs.shape[0])
            elif node.op == "output":
                result = fx.node.map_arg(node.args[0], lambda n: values[n])
                if not isinstance(result, Laid):
                    raise NotStackable("an output that is not one tensor")
                return result.stacked()
            elif run.fused is not None and node in self.plan.recipes:
                values[node] = self.plan.value(node, values, run)
            elif run.fused is None or node not in self.plan.inside:
                values[node] = self.call(node, values, run)
        raise NotStackable("no output")

    def call(self, node: fx.Node, values: dict[fx.Node, Any], run: Pass) -> Any:
        args = fx.node.map_arg(node.args, lambda n: values[n])
        kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n])
        if node.op == "call_module":
            name = str(node.target)
            module, layer = self.modules[name], layer_of(self.modules[name])
            assert layer is not None
            inputs: Any = args[0]
            return layer(inputs, module, lambda part: run.tensors[f"{name}.{part}" if name else part], run)
        if node.op == "call_function":
            return call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        return call_method(str(node.target), args, kwargs)


def call_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if function in BINARY and not kwargs and len(args) == 2:
        return binary(function, *args)
    if function in UNARY and isinstance(x, Laid):
        return x.like(function(x.tensor, *args[1:], **kwargs))
    if function in POOL_FUNCTIONS and isinstance(x, Laid):
        return Laid(function(x.folded(), *args[1:], **kwargs), x.rows, True)
    if function is torch.flatten and isinstance(x, Laid):
        return flatten(x, *args[1:], **renamed(kwargs))
    if function is getattr and args[1] == "shape" and isinstance(x, Laid):
        return x.stacked().shape[1:]
    if function is operator.getitem and isinstance(x, (tuple, torch.Size)):
        return x[args[1]]
    raise NotStackable(f"function {getattr(function, '__name__', function)}")


def call_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if not isinstance(x, Laid):
        raise NotStackable(f"method {name}")
    if name in UNARY_METHODS:
        return x.like(getattr(x.tensor, name.removesuffix("_"))(*args[1:], **kwargs))
    if name == "size":
        shape = x.stacked().shape[1:]
        return shape[args[1]] if len(args) > 1 else shape
    if name in ("view", "reshape") and not kwargs:
        return reshape(x, args[1] if isinstance(args[1], (tuple, list)) else args[1:])
    if name == "flatten":
        return flatten(x, *args[1:], **renamed(kwargs))
    if name == "mean":
        return mean(x, *args[1:], **kwargs)
    raise NotStackable(f"method {name}")


def binary(function: Callable[..., Any], a: Any, b: Any) -> Any:
    if isinstance(a, Laid) and isinstance(b, Laid):
        if a.is_folded == b.is_folded:
            return a.like(function(a.tensor, b.tensor))
        return Laid(function(a.stacked(), b.stacked()), a.rows)
    if isinstance(a, Laid) and isinstance(b, (int, float)):
        return a.like(function(a.tensor, b))
    if isinstance(b, Laid) and isinstance(a, (int, float)):
        return b.like(function(a, b.tensor))
    if isinstance(a, int) and isinstance(b, int):
        return function(a, b)  # shapes
    raise NotStackable("arithmetic between an activation and something else")


def reshape(x: Laid, shape: Any) -> Laid:
    """A view that keeps the batch dimension first."""
    tensor = x.stacked()
    if not shape or shape[0] not in (-1, tensor.shape[1]) or (shape[0] == -1 and -1 in shape[1:]):
        raise NotStackable("a reshape of the batch dimension")
    return Laid(tensor.reshape(x.rows, tensor.shape[1], *shape[1:]), x.rows)


def mean(x: Laid, dim: Any = None, keepdim: bool = False) -> Laid:
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if any(d is None or d == 0 for d in dims):
        raise NotStackable("a mean over the batch")
    if x.is_folded and all(d >= 2 or d < 0 for d in dims) and x.tensor.dim() - len(dims) >= 2:
        return Laid(x.tensor.mean(dims, keepdim), x.rows, True)
    return Laid(x.stacked().mean(tuple(d + 1 if d > 0 else d for d in dims), keepdim), x.rows)


def renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key.removesuffix("_dim"): value for key, value in kwargs.items()}
