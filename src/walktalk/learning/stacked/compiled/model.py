"""Models of linear layers, layer norms, attention and the like, their passes as lists of operations; on a CPU."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from walktalk.learning.stacked.attention import AttentionCall
from walktalk.learning.stacked.compiled.attention import (
    attention,
    bias_of,
    encoder,
    encoder_layer,
    multihead,
    normed,
    part_of,
)
from walktalk.learning.stacked.compiled.layers import (
    ACTIVATIONS,
    activation,
    added,
    averaged,
    dropped,
    embedding,
    linear,
    patches,
)
from walktalk.learning.stacked.compiled.program import Now, Program, Value, permuted, reshaped, selected
from walktalk.learning.stacked.cpu import numpy_multiplies
from walktalk.learning.stacked.functions import BINARY, IS_ATTENTION, behind, many, shared
from walktalk.learning.stacked.model import Gradients, TracedModel, is_cross_entropy, sum_of_losses
from walktalk.learning.stacked.tensors import NotStackable
from walktalk.learning.stacked.traced import is_patchwise
from walktalk.learning.task import Loss

# -- From a traced model to the operations of a program; raises `NotStackable` where one is not written here ----------

ACTIVATION_LAYERS = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.GELU: "gelu", nn.SiLU: "silu"}
WITH_ATTENTION: dict[type[nn.Module], Callable[..., Value]] = {
    nn.MultiheadAttention: multihead,
    nn.TransformerEncoderLayer: encoder_layer,
    nn.TransformerEncoder: encoder,
}


def emit(program: Program, nodes: list[fx.Node], modules: dict[str, nn.Module], prefix: str, inputs: Tensor) -> Value:
    """Writes the forward pass of a traced model, and prepares the backward pass; says where the outputs will be.

    nodes: of the graph in training. prefix: in front of the names of modules, not of parameters. inputs: [W, B, …].
    """
    values: dict[fx.Node, Any] = {}

    def filled(part: Any) -> Any:
        return fx.node.map_arg(part, lambda node: values[node])

    for node in nodes:
        args, kwargs = filled(node.args), filled(node.kwargs)
        if node.op == "placeholder":
            if any(isinstance(value, Value) for value in values.values()):
                raise NotStackable("more than one input")
            found: Any = Value(inputs, is_trained=False)
        elif node.op == "get_attr":
            name = str(node.target).removeprefix(prefix)
            found = program.parameter(name) if name in program.weights else constant(modules[""], str(node.target))
        elif node.op == "output":
            if not isinstance(args[0], Value):
                raise NotStackable("an output that is not one tensor")
            return args[0]
        elif node.op == "call_module":
            module = modules[str(node.target)]
            found = layer(program, node, module, f"{node.target}.".removeprefix(prefix), args, kwargs, modules)
        else:
            found = function(program, node, args, kwargs)
        if isinstance(found, Value) and len(node.users) != 1:
            found.is_free = False
        values[node] = found
    raise NotStackable("no output")


def layer(
    program: Program,
    node: fx.Node,
    module: nn.Module,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    modules: dict[str, nn.Module],
) -> Any:
    kind, x = type(module), args[0]
    if kind in WITH_ATTENTION:
        return with_attention(program, module, name, args, kwargs)
    if len(args) != 1 or kwargs or not isinstance(x, Value):
        raise NotStackable(f"layer {kind.__name__}")
    if isinstance(module, nn.Linear) and kind.forward is nn.Linear.forward:
        return linear(program, x, f"{name}weight", bias_of(module, name))
    if kind is nn.LayerNorm:
        users = [modules[str(user.target)] if user.op == "call_module" else None for user in node.users]
        return normed(program, module, name, x, len(users) == 1 and type(users[0]) is nn.Linear)
    if kind in ACTIVATION_LAYERS and getattr(module, "approximate", "none") == "none":
        return activation(program, x, ACTIVATION_LAYERS[kind])
    if isinstance(module, nn.Dropout) and kind is nn.Dropout:
        return dropped(program, x, module.p)
    if isinstance(module, nn.Embedding) and kind is nn.Embedding and is_plain_embedding(module):
        return embedding(program, x, f"{name}weight")
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d and is_patchwise(module) and module.padding_mode == "zeros":
        high, wide = module.kernel_size
        return patches(program, x, (high, wide), f"{name}weight", bias_of(module, name))
    if isinstance(module, nn.Flatten):
        return flattened(program, x, module.start_dim, module.end_dim)
    if kind is nn.Identity:
        return x
    raise NotStackable(f"layer {kind.__name__}")


def is_plain_embedding(module: nn.Embedding) -> bool:
    return module.max_norm is None and module.padding_idx is None and not (module.scale_grad_by_freq or module.sparse)


def with_attention(
    program: Program, module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The layers of `WITH_ATTENTION`, with a mask that is the same for all samples, or none."""
    given = dict(kwargs)
    names: tuple[str, ...] = ("src", "mask" if isinstance(module, nn.TransformerEncoder) else "src_mask")
    names = (*names, "src_key_padding_mask", "is_causal")
    if isinstance(module, nn.MultiheadAttention):
        if len(args) != 3 or args[0] is not args[1] or args[1] is not args[2]:
            raise NotStackable("attention to something else")
        args, names = args[:1], ("query",)
    given |= dict(zip(names, args, strict=False))
    padding = given.pop("src_key_padding_mask", None) is None and given.pop("key_padding_mask", None) is None
    mask = next((m for m in (given.pop(key, None) for key in ("mask", "src_mask", "attn_mask")) if m is not None), None)
    x, causal = given.pop(names[0]), bool(given.pop("is_causal", False))
    given.pop("need_weights", None)
    if not padding or given or isinstance(mask, Value):
        raise NotStackable("this kind of attention")
    out = WITH_ATTENTION[type(module)](program, module, name, x, None if causal else mask, causal)
    return (out, None) if isinstance(module, nn.MultiheadAttention) else out


def function(program: Program, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "").strip("_")
    x = args[0] if args else None
    if not has_value((args, kwargs)):
        return shared(target, name, args, kwargs)
    if target is IS_ATTENTION:
        return attended(program, AttentionCall(*args, **kwargs))
    if name in BINARY and len(args) == 2 and not kwargs:
        return summed(program, name, *args)
    if not isinstance(x, Value):
        if name == "getitem" and isinstance(x, tuple):
            return x[args[1]]
        raise NotStackable(f"function {name}")
    if name in ACTIVATIONS and len(args) == 1 and all(kwargs[key] in (False, "none") for key in kwargs):
        return activation(program, x, name)  # neither in place nor approximate
    if name not in SHAPES:
        raise NotStackable(f"function {name}")
    try:
        return SHAPES[name](program, x, *args[1:], **kwargs)
    except TypeError as error:
        raise NotStackable(f"this way to call {name}") from error


def constant(module: nn.Module, name: str) -> Tensor:
    """A tensor that is no parameter, such as a mask: the same for every row."""
    place, _, last = name.rpartition(".")
    found: Tensor = getattr(module.get_submodule(place), last)
    return found.detach()


def has_value(part: Any) -> bool:
    if isinstance(part, (tuple, list)):
        return any(has_value(one) for one in part)
    return any(has_value(one) for one in part.values()) if isinstance(part, dict) else isinstance(part, Value)


def attended(program: Program, call: AttentionCall) -> Value:
    if call.enable_gqa or isinstance(call.attn_mask, Value):
        raise NotStackable("this kind of attention")
    return attention(
        program, (call.query, call.key, call.value), call.attn_mask, call.dropout_p, call.is_causal, call.scale
    )


def summed(program: Program, name: str, a: Any, b: Any) -> Value:
    """Sums of tensors; parameters have no dimension of samples, so that dimensions are put in behind the row."""
    if name not in ("add", "iadd") or not isinstance(a, Value) or not isinstance(b, Value):
        raise NotStackable(f"function {name}")
    more = max(a.tensor.dim(), b.tensor.dim())

    def wide(value: Value) -> Value:
        own = tuple(value.tensor.shape)
        new = (own[0], *[1] * (more - len(own)), *own[1:])
        return value if new == own else reshaped(program, value, new)

    return added(program, wide(a), wide(b))


# -- dimensions -------------------------------------------------------------------------------------------------------


def flattened(program: Program, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    shape = tuple(x.tensor.shape)
    first, last = (behind(dim) % len(shape) for dim in (start_dim, end_dim))
    return reshaped(program, x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def unflattened(program: Program, x: Value, dim: int, sizes: Any) -> Value:
    shape = tuple(x.tensor.shape)
    place = behind(dim) % len(shape)
    return reshaped(program, x, (*shape[:place], *sizes, *shape[place + 1 :]))


def turned(program: Program, x: Value, one: int, other: int) -> Value:
    order = list(range(x.tensor.dim()))
    one, other = behind(one) % len(order), behind(other) % len(order)
    order[one], order[other] = other, one
    return permuted(program, x, tuple(order))


def ordered(program: Program, x: Value, *dims: Any) -> Value:
    return permuted(program, x, (0, *(d % (x.tensor.dim() - 1) + 1 for d in many(dims))))


def shaped(program: Program, x: Value, *shape: Any) -> Value:
    return reshaped(program, x, (program.rows, *many(shape)))


def item(program: Program, x: Value, index: Any) -> Value:
    if type(index) is int:
        return part_of(program, x, index)
    parts = index if isinstance(index, tuple) else (index,)
    if any(not (part is None or part is Ellipsis or isinstance(part, (int, slice))) for part in parts):
        raise NotStackable("this kind of index")
    return selected(program, x, (slice(None), *parts))


def size(program: Program, x: Value, dim: int | None = None) -> Any:
    shape = x.tensor.shape[1:]
    return shape if dim is None else shape[dim]


def attribute(program: Program, x: Value, name: str) -> Any:
    if name not in ("shape", "device", "dtype"):
        raise NotStackable(f"attribute {name}")
    return size(program, x) if name == "shape" else getattr(x.tensor, name)


def reduction(is_sum: bool) -> Callable[..., Value]:
    def write(program: Program, x: Value, dim: Any, keepdim: bool = False) -> Value:
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        return averaged(program, x, tuple(behind(d) % x.tensor.dim() for d in dims), keepdim, is_sum)

    return write


def functional_dropout(program: Program, x: Value, p: float = 0.5, training: bool = True) -> Value:
    return dropped(program, x, p) if training else x


SHAPES: dict[str, Callable[..., Any]] = {
    "view": shaped,
    "reshape": shaped,
    "permute": ordered,
    "transpose": turned,
    "flatten": flattened,
    "unflatten": unflattened,
    "getitem": item,
    "size": size,
    "getattr": attribute,
    "mean": reduction(False),
    "sum": reduction(True),
    "contiguous": lambda program, x: x,
    "dropout": functional_dropout,
}


# -- Models of linear layers, layer norms, attention and the like, their passes as lists of operations; on a CPU ------

BYTES_KEPT = 2**27  # of programs that nobody runs


@dataclass(eq=False)
class Ready:
    """A program and what is put into it and taken out of it; `kind` says for which waves it is."""

    kind: tuple[Any, ...]
    run: Program
    inputs: Tensor
    weights: Tensor
    gradients: Tensor


class CompiledModel(TracedModel):
    """Models of linear layers, layer norms, attention and the like, which train by a `Program`."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        if self.layout.buffers or len(self.layout.parameters) != sum(1 for _ in module.parameters()):
            raise NotStackable("statistics or frozen weights")
        kinds = {nn.Dropout: "p", nn.MultiheadAttention: "dropout"}
        self.dropouts = [(part, kinds[type(part)]) for part in module.modules() if type(part) in kinds]
        self.idle: OrderedDict[Ready, None] = OrderedDict()  # the one that was used last comes last
        self.busy = threading.Lock()

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        if weights.is_cuda or self.arithmetic.precision == "bf16":
            return super().wave(weights, buffers, keys)
        return Wave(self, weights, keys)

    def ready_for(self, length: int, inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        """A program for waves like this one that nobody else runs; the length is that of the vector of weights."""
        shares = tuple(getattr(part, name) for part, name in self.dropouts)
        kind = length, inputs.shape, inputs.dtype, targets.dtype, shares, numpy_multiplies()
        with self.busy:
            found = next((ready for ready in reversed(self.idle) if ready.kind == kind), None)
            if found is not None:
                del self.idle[found]
                return found
        return self.compiled(kind, inputs, targets, keys)

    def give_back(self, ready: Ready) -> None:
        with self.busy:
            self.idle[ready] = None
            while len(self.idle) > 1 and sum(one.run.bytes for one in self.idle) > BYTES_KEPT:
                self.idle.popitem(last=False)

    def compiled(self, kind: tuple[Any, ...], inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        rows, graph = len(keys), self.traced.training
        weights, found = torch.zeros(kind[0]), torch.zeros(kind[0])
        views, places = (self.layout.dense_views(vector, rows) for vector in (weights, found))
        own = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        program = Program(rows, Now(targets, keys), views, places, kind[-1])
        outputs = emit(program, graph.nodes, graph.modules, self.traced.prefix, own)
        if not outputs.is_trained:
            raise NotStackable("outputs that no weight has a say in")
        self.write_loss(program, outputs)
        program.finish()
        return Ready(kind, program, own, weights, found)

    def write_loss(self, program: Program, outputs: Value) -> None:
        """Writes the gradient of the sum of all rows' losses by the outputs."""
        scores, now = outputs.tensor, program.now
        into = torch.empty(scores.shape)
        outputs.given.append((into, True))
        if is_cross_entropy(self.loss) and scores.dim() == 3 and not now.targets.is_floating_point():
            minus = torch.full((1, 1, 1), -1.0).expand(*scores.shape[:2], 1)
            batch = torch.tensor(float(scores.shape[1]))
            program.do(torch.softmax, scores, -1, out=into)
            program.operations.append(lambda: into.scatter_add_(2, now.targets.unsqueeze(2), minus).div_(batch))
            return

        def by_autograd() -> None:
            with torch.enable_grad():
                leaf = scores.detach().requires_grad_()
                into.copy_(torch.autograd.grad(sum_of_losses(self.loss, leaf, now.targets), leaf)[0])

        program.operations.append(by_autograd)


class Wave:
    """The gradients of a wave, by a program that is its own as long as it lasts: two threads may train at once."""

    def __init__(self, model: CompiledModel, weights: Tensor, keys: Tensor) -> None:
        self.model, self.weights, self.keys = model, weights, keys
        self.ready: Ready | None = None

    def __call__(self, inputs: Tensor, targets: Tensor, step: int) -> Tensor:
        with torch.no_grad():
            ready = self.ready
            if ready is None or ready.inputs.shape != inputs.shape:
                self.end()
                ready = self.ready = self.model.ready_for(len(self.weights), inputs, targets, self.keys)
            ready.weights.copy_(self.weights)
            ready.inputs.copy_(inputs)
            now = ready.run.now
            now.targets, now.keys, now.step = targets, self.keys, step
            ready.run()
        return ready.gradients

    def end(self) -> None:
        if self.ready is not None:
            self.model.give_back(self.ready)
            self.ready = None

    def __del__(self) -> None:
        self.end()
