"""Any module that torch.fx can trace, run for many rows at once with the layers of `layers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx, nn

from walktalk.learning.stacked.functions import IS_ATTENTION, call
from walktalk.learning.stacked.fused import plan
from walktalk.learning.stacked.layers import MANY, layer_of
from walktalk.learning.stacked.products import normed_for_products
from walktalk.learning.stacked.tensors import NotStackable, Pass, StackedTensor
from walktalk.learning.task import still_parts, to_training

SHAPES_REMEMBERED = 64  # of inputs

Find: TypeAlias = (
    "Callable[[str], Tensor | StackedTensor]"  # a parameter or buffer; one that does not travel is a plain tensor
)


class LayerTracer(fx.Tracer):
    """A tracer that does not look inside of what has a stacked form."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_known(m) or super().is_leaf_module(m, module_qualified_name)


def is_known(module: nn.Module) -> bool:
    return type(module) in MANY or layer_of(module) is not None


class Traced:
    """A module's graph in training and in evaluation; raises `NotStackable` where something has no stacked form."""

    def __init__(self, module: nn.Module) -> None:
        root = nn.Sequential(module) if is_known(module) else module  # a layer alone is not looked into either
        self.prefix = "0." if root is not module else ""
        self.module = module
        self.training, self.evaluation = (Graph(root, training) for training in (True, False))
        self.modules = self.training.modules
        self.plan = self.training.plan
        encoders = (nn.TransformerEncoder, nn.TransformerEncoderLayer)  # they call kernels of our own themselves
        self.attends = any(node.target is IS_ATTENTION for node in self.training.nodes) or any(
            type(part) in (nn.MultiheadAttention, *encoders) for part in self.modules.values()
        )
        self.is_fusible = bool(self.plan.recipes) or any(type(part) in encoders for part in self.modules.values())

    def __call__(self, inputs: Tensor, run: Pass) -> Tensor:
        """Outputs [W, B, …] for inputs [W, B, …]."""
        rows = len(inputs)

        def find(name: str) -> Tensor | StackedTensor:
            name = name.removeprefix(self.prefix)
            found = run.tensors.get(name)
            return own(self.module, name) if found is None else StackedTensor(found, rows)

        return (self.training if run.training else self.evaluation)(inputs, run, find)


def own(module: nn.Module, name: str) -> Tensor:
    place, _, last = name.rpartition(".")
    found: Tensor = getattr(module.get_submodule(place), last).detach()
    return found


class Plain(NamedTuple):
    """What is not a tensor in a pass, such as a size: it depends on the shape of the inputs alone."""

    values: dict[fx.Node, Any]
    left: list[fx.Node]  # all others: in some models two thirds of all


class Graph:
    """A module's forward as torch.fx sees it in one mode: what hangs on `self.training` is decided while tracing."""

    def __init__(self, module: nn.Module, training: bool) -> None:
        modes = {part: part.training for part in module.modules()}
        try:
            to_training(module) if training else module.eval()
            self.graph = LayerTracer().trace(module)
        except Exception as error:  # whatever a person's forward does
            raise NotStackable(f"torch.fx cannot trace it: {error}") from error
        finally:
            for part, mode in modes.items():
                part.training = mode
        self.modules = dict(module.named_modules())
        self.still = set(still_parts(module))  # whose statistics are frozen
        self.plan = plan(self.graph, self.modules)
        self.nodes = list(self.graph.nodes)
        self.layers = {
            node: layer_of(self.modules[str(node.target)]) for node in self.nodes if node.op == "call_module"
        }
        self.widest = widest_products(self.nodes, self.modules)
        self.plain: dict[torch.Size, Plain] = {}  # by the inputs' shape
        for node in self.layers:
            if not is_known(self.modules[str(node.target)]):
                raise NotStackable(f"layer {type(self.modules[str(node.target)]).__name__}")

    def __call__(self, inputs: Tensor, run: Pass, find: Find) -> Tensor:
        known = self.plain.get(inputs.shape)
        if known is not None:
            return self.passed(inputs, run, find, known.values.copy(), known.left)
        values: dict[fx.Node, Any] = {}
        result = self.passed(inputs, run, find, values, self.nodes)
        if run.fused is None:  # else some nodes have no value
            if len(self.plain) >= SHAPES_REMEMBERED:
                self.plain.clear()
            plain = {node: value for node, value in values.items() if is_plain(value)}
            self.plain[inputs.shape] = Plain(plain, [node for node in self.nodes if node not in plain])
        return result

    def passed(self, inputs: Tensor, run: Pass, find: Find, values: dict[fx.Node, Any], left: list[fx.Node]) -> Tensor:
        """The output, by way of all nodes that are left; their values are put with the others."""
        rows, begun = len(inputs), False
        for node in left:
            if node.op == "placeholder":
                if begun:
                    raise NotStackable("more than one input")
                values[node], begun = StackedTensor(inputs, rows), True
            elif node.op == "get_attr":
                values[node] = find(str(node.target))
            elif node.op == "output":
                result = fx.node.map_arg(node.args[0], lambda n: values[n])
                if not isinstance(result, StackedTensor):
                    raise NotStackable("an output that is not one tensor")
                return result.stacked()
            elif run.fused is not None and node in self.plan.recipes:
                values[node] = self.plan.value(node, values, run)
            elif run.fused is None or node not in self.plan.inside:
                values[node] = self.value(node, values, run, find)
        raise NotStackable("no output")

    def value(self, node: fx.Node, values: dict[fx.Node, Any], run: Pass, find: Find) -> Any:
        args = tuple(filled(part, values) for part in node.args)
        kwargs = {name: filled(part, values) for name, part in node.kwargs.items()}
        if node.op != "call_module":
            return call(node.target, args, kwargs, run)
        name = str(node.target)
        module = self.modules[name]

        def get(part: str) -> Tensor:
            found = find(f"{name}.{part}" if name else part)
            return found.tensor if isinstance(found, StackedTensor) else found.expand(args[0].rows, *found.shape)

        if type(module) in MANY:
            return MANY[type(module)](list(args), kwargs, module, get, run)
        if name in self.still:
            run = replace(run, training=False, with_buffers=True)
        if node in self.widest and len(args) == 1 and not kwargs:
            return normed_for_products(args[0], module, get, self.widest[node])
        layer = self.layers[node]
        if layer is None or len(args) != 1 or kwargs:
            raise NotStackable(f"layer {type(module).__name__}")
        return layer(args[0], module, get, run)


def widest_products(nodes: list[fx.Node], modules: dict[str, nn.Module]) -> dict[fx.Node, int]:
    """Layer norms whose results linear layers alone see, with the most outputs that one of these has."""
    found = {}
    for node in nodes:
        if node.op != "call_module" or type(modules[str(node.target)]) is not nn.LayerNorm:
            continue
        users = [modules[str(user.target)] if user.op == "call_module" else None for user in node.users]
        linear = [user for user in users if type(user) is nn.Linear]
        if linear and len(linear) == len(users):
            found[node] = max(user.out_features for user in linear)
    return found


def is_plain(value: Any) -> bool:
    """A number, a word, or a sequence of those: nothing that holds a tensor or could change."""
    if isinstance(value, tuple):  # sizes, too
        return all(is_plain(part) for part in value)
    return value is None or isinstance(value, (int, float, str, torch.dtype, torch.device))


def filled(part: Any, values: dict[fx.Node, Any]) -> Any:
    """An argument with the values of the nodes in it."""
    if isinstance(part, fx.Node):
        return values[part]
    if isinstance(part, (int, float, str, torch.dtype)) or part is None:
        return part
    return fx.node.map_arg(part, lambda n: values[n])
