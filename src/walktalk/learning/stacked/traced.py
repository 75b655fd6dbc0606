"""Any module that torch.fx can trace, run for many rows at once with the layers of `layers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from walktalk.learning.models import EvoNorm, PaddedShortcut, evo_norm
from walktalk.learning.stacked.attention import encoder, encoder_layer, multihead_attention
from walktalk.learning.stacked.functions import IS_ATTENTION, call
from walktalk.learning.stacked.fused import plan
from walktalk.learning.stacked.products import batched_linear, linear_of, normed, normed_for_products
from walktalk.learning.stacked.recurrent import recurrent
from walktalk.learning.stacked.tensors import NotStackable, Pass, StackedTensor
from walktalk.learning.task import still_parts, to_training

# -- Layers for many models at once: the same arithmetic as torch.nn's, with weights that differ from row to row ------

Get: TypeAlias = Callable[[str], Tensor]  # name of a parameter or buffer of the layer -> [W, *shape]


def linear(x: StackedTensor, module: nn.Linear, get: Get, run: Pass) -> StackedTensor:
    return StackedTensor(linear_of(x, get("weight"), None if module.bias is None else get("bias")), x.rows)


def convolution(x: StackedTensor, module: Any, get: Get, run: Pass) -> StackedTensor:
    if module.padding_mode != "zeros":
        raise NotStackable(f"padding_mode {module.padding_mode}")
    if is_patchwise(module) and (x.rows > 1 or not x.tensor.is_cuda):
        return patches(x, module, get)
    weight = get("weight").flatten(0, 1)
    bias = None if module.bias is None else get("bias").flatten()
    inputs, two = x.folded(), isinstance(module, nn.Conv2d)
    if two and run.channels_last:
        inputs, weight = (t.contiguous(memory_format=torch.channels_last) for t in (inputs, weight))
    call = functional.conv2d if two else functional.conv1d
    out = call(inputs, weight, bias, module.stride, module.padding, module.dilation, module.groups * x.rows)
    return StackedTensor(out, x.rows, True)


def is_patchwise(module: Any) -> bool:
    """Whether a convolution looks at every pixel once: then it is a linear layer on patches."""
    plain = module.groups == 1 and set(module.dilation) == {1} and module.padding in ((0, 0), "valid")
    return isinstance(module, nn.Conv2d) and plain and module.stride == module.kernel_size


def patches(x: StackedTensor, module: nn.Conv2d, get: Get) -> StackedTensor:
    images, (high, wide) = x.stacked(), module.kernel_size
    w, b, c, h, v = images.shape
    down, across = h // high, v // wide
    cut = images[..., : down * high, : across * wide].reshape(w, b, c, down, high, across, wide)
    flat = cut.permute(0, 1, 3, 5, 2, 4, 6).reshape(w, b, down * across, c * high * wide)
    out = batched_linear(flat, get("weight").flatten(2), None if module.bias is None else get("bias"))
    return StackedTensor(out.unflatten(2, (down, across)).permute(0, 1, 4, 2, 3), x.rows)


def batch_norm(x: StackedTensor, module: Any, get: Get, run: Pass) -> StackedTensor:
    """Statistics of each row alone; running statistics are the row's own and are brought up to date in place."""
    mean = var = None
    if module.track_running_stats and run.with_buffers:
        mean, var = get("running_mean"), get("running_var")
        if module.momentum is None:
            raise NotStackable("BatchNorm with a cumulative average")
    weight = get("weight").reshape(-1) if module.affine else None
    bias = get("bias").reshape(-1) if module.affine else None
    use_batch = run.training or mean is None
    # Brought up to date through copies: the row's own are views with gaps, and autograd must not see them change.
    flat_mean = None if mean is None else mean.flatten().clone()
    flat_var = None if var is None else var.flatten().clone()
    out = functional.batch_norm(
        x.folded(), flat_mean, flat_var, weight, bias, use_batch, module.momentum or 0.0, module.eps
    )
    if run.training and mean is not None and var is not None and flat_mean is not None and flat_var is not None:
        with torch.no_grad():
            mean.copy_(flat_mean.view_as(mean))
            var.copy_(flat_var.view_as(var))
    return StackedTensor(out, x.rows, True)


def group_norm(x: StackedTensor, module: nn.GroupNorm, get: Get, run: Pass) -> StackedTensor:
    weight = get("weight").reshape(-1) if module.affine else None
    bias = get("bias").reshape(-1) if module.affine else None
    out = functional.group_norm(x.folded(), module.num_groups * x.rows, weight, bias, module.eps)
    return StackedTensor(out, x.rows, True)


def evolved_norm(x: StackedTensor, module: EvoNorm, get: Get, run: Pass) -> StackedTensor:
    """Channels by themselves, and groups of them: rows side by side are only more of both."""
    slope = None if module.slope is None else get("slope").reshape(-1)
    tensors = get("weight").reshape(-1), get("bias").reshape(-1), slope
    return StackedTensor(evo_norm(x.folded(), module.groups * x.rows, *tensors, module.eps), x.rows, True)


def layer_norm(x: StackedTensor, module: nn.LayerNorm, get: Get, run: Pass) -> StackedTensor:
    return StackedTensor(normed(x.stacked(), module, get), x.rows)


def embedding(x: StackedTensor, module: nn.Embedding, get: Get, run: Pass) -> StackedTensor:
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise NotStackable("this kind of Embedding")
    weight, places = get("weight"), x.stacked()
    if x.rows == 1:
        one = functional.embedding(places.squeeze(0), weight.squeeze(0), module.padding_idx)
        return StackedTensor(one.unsqueeze(0), 1)
    offsets = torch.arange(x.rows, device=places.device).view(-1, *[1] * (places.dim() - 1)) * weight.shape[1]
    found = functional.embedding(places + offsets, weight.flatten(0, 1))
    if module.padding_idx is not None:  # that entry is looked up but never trained
        found = torch.where((places != module.padding_idx).unsqueeze(-1), found, found.detach())
    return StackedTensor(found, x.rows)


def dropout(x: StackedTensor, module: nn.Dropout, get: Get, run: Pass) -> StackedTensor:
    return x if not run.training or module.p == 0.0 else StackedTensor(run.dropped(x.stacked(), module.p), x.rows)


def channel_dropout(x: StackedTensor, module: nn.Dropout2d, get: Get, run: Pass) -> StackedTensor:
    """Whole channels of a sample are dropped; of images alone."""
    if not run.training or module.p == 0.0:
        return x
    images = x.stacked()
    if images.dim() != 5:
        raise NotStackable("Dropout2d on something else than images")
    kept = run.dropped(torch.ones(images.shape[:3], dtype=images.dtype, device=images.device), module.p)
    if not x.is_folded:
        return StackedTensor(images * kept[..., None, None], x.rows)
    return x.like(x.tensor * kept.transpose(0, 1).flatten(1)[..., None, None])


def flatten(x: StackedTensor, module: nn.Flatten, get: Get, run: Pass) -> StackedTensor:
    start, end = (dim if dim < 0 else dim + 1 for dim in (module.start_dim, module.end_dim))
    return StackedTensor(x.stacked().flatten(start, end), x.rows)


def as_it_is(x: StackedTensor, module: nn.Module, get: Get, run: Pass) -> StackedTensor:
    """Element-wise: the layout does not matter."""
    return x.like(module(x.tensor))


def on_folded(x: StackedTensor, module: nn.Module, get: Get, run: Pass) -> StackedTensor:
    """Pools: every channel by itself."""
    if not x.is_folded and isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
        return x.like(x.tensor.mean((-2, -1), keepdim=True))  # of one channel, wherever it lies
    return StackedTensor(module(x.folded()), x.rows, True)


def padded_shortcut(x: StackedTensor, module: PaddedShortcut, get: Get, run: Pass) -> StackedTensor:
    return StackedTensor(module.stacked(x.folded(), x.rows, run.channels_last), x.rows, True)


ELEMENT_WISE = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Identity,
)
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.MaxPool1d, nn.AvgPool1d)

Layer: TypeAlias = Callable[[StackedTensor, Any, Get, Pass], Any]
LAYERS: dict[type[nn.Module], Layer] = {
    nn.Linear: linear,
    nn.Conv2d: convolution,
    nn.Conv1d: convolution,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    EvoNorm: evolved_norm,
    nn.Embedding: embedding,
    nn.Dropout: dropout,
    nn.Dropout2d: channel_dropout,
    nn.Flatten: flatten,
    PaddedShortcut: padded_shortcut,
    **dict.fromkeys(ELEMENT_WISE, as_it_is),
    **dict.fromkeys(POOLS, on_folded),
}


# Layers that may be given more than one tensor, and may give back several: (args, kwargs, module, get, run).
MANY: dict[type[nn.Module], Callable[[list[Any], dict[str, Any], Any, Get, Pass], Any]] = {
    nn.MultiheadAttention: multihead_attention,
    nn.TransformerEncoderLayer: encoder_layer,
    nn.TransformerEncoder: encoder,
    nn.RNN: recurrent,
    nn.LSTM: recurrent,
    nn.GRU: recurrent,
}


def layer_of(module: nn.Module) -> Layer | None:
    """The stacked form of a layer. A subclass has its parent's, if it changes nothing but how weights start."""
    for kind in type(module).__mro__:
        if kind in LAYERS:
            return LAYERS[kind]
        if "forward" in vars(kind) or "_conv_forward" in vars(kind):
            return None
    return None


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
