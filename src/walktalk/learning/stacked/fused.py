"""What the fused kernels can do of a traced model: each recipe names the parts of the model that it is for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from walktalk.learning import kernels
from walktalk.learning.models import EvoNorm, PaddedShortcut
from walktalk.learning.stacked.tensors import Pass, StackedTensor


@dataclass(frozen=True)
class ConvUnit:
    """A convolution and its batch or group norm, if it has one, by their names in the model; then a ReLU."""

    x: fx.Node
    conv: str
    norm: str
    stride: int
    eps: float
    momentum: float
    groups: int = 0  # of a group norm; 0: it is a batch norm, or none
    has_bias: bool = False
    pooled: bool = False  # whether 2×2 maxima follow; of a group norm: whether they come before it
    is_tracked: bool = True  # whether a batch norm has running statistics


@dataclass(frozen=True)
class ResidualRecipe:
    """Two units and a shortcut around them."""

    first: ConvUnit
    second: ConvUnit
    new_before: int


@dataclass(frozen=True)
class EvoNormRecipe:
    """A convolution and its EvoNorm, by their names in the model."""

    x: fx.Node
    conv: str
    norm: str
    stride: int
    groups: int
    eps: float


@dataclass(frozen=True)
class BlockEndRecipe:
    """The second half of a residual block whose first ends with an EvoNorm."""

    unit: ConvUnit
    around: fx.Node
    new_before: int


@dataclass(frozen=True)
class LayerNormRecipe:
    """A layer norm by its name in the model."""

    x: fx.Node
    name: str
    eps: float
    for_products: bool  # whether nothing but linear layers sees the result, which casts it anyway


# How the fused kernels are called for a recipe.

FEW = 4  # channels that images may have; filled up to that number


def images(x: StackedTensor, run: Pass) -> Tensor:
    """As [W, B, H, W', C], dense in every row; few channels are filled up with zeros."""
    tensor = x.stacked().permute(0, 1, 3, 4, 2)
    if tensor.shape[-1] > FEW:
        return tensor.to(run.fused).contiguous()
    is_shared = tensor.stride(0) == 0 and len(tensor) > 1
    one = tensor[:1] if is_shared else tensor
    filled = torch.zeros((*one.shape[:-1], FEW), dtype=run.fused, device=tensor.device)
    filled[..., : one.shape[-1]] = one
    return filled.expand(len(tensor), *filled.shape[1:]) if is_shared else filled


def as_stacked(z: Tensor) -> StackedTensor:
    return StackedTensor(z.permute(0, 1, 4, 2, 3), len(z))


def unit(x: Tensor, recipe: ConvUnit, run: Pass) -> Tensor:
    into = place_of(recipe, run)
    bias = run.tensors[f"{recipe.conv}.bias"] if recipe.has_bias else None
    if not recipe.norm:
        weight = run.tensors[f"{recipe.conv}.weight"]
        plain: Tensor = kernels.ConvReLU.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, recipe.stride, recipe.pooled, into
        )
        return plain
    if recipe.groups:
        form = kernels.GroupNormSettings(recipe.stride, recipe.groups, recipe.eps, recipe.pooled)
        weight, gamma, beta = weights_of(recipe, run)
        done: Tensor = kernels.ConvGroupNorm.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, gamma, beta, form, into
        )
        return done
    settings = kernels.BatchNormSettings(recipe.stride, recipe.eps, recipe.momentum, 0, recipe.pooled)
    (weight, gamma, beta), running = parts(recipe, run)
    if not run.training and running is not None:
        return kernels.evaluated(x, weight, gamma, beta, running, settings, None, bias)
    result: Tensor = kernels.ConvBatchNorm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, gamma, beta, running, settings, into
    )
    return result


def residual(x: Tensor, recipe: ResidualRecipe, run: Pass) -> Tensor:
    one, two = recipe.first, recipe.second
    into = place_of(one, run), place_of(two, run)
    if one.groups:
        weights = *weights_of(one, run), *weights_of(two, run)
        settings = one.stride, (one.groups, two.groups), (one.eps, two.eps), recipe.new_before
        done: Tensor = kernels.GroupNormBlock.apply(x, *weights, *settings, into)  # type: ignore[no-untyped-call]
        return done
    first = kernels.BatchNormSettings(one.stride, one.eps, one.momentum)
    second = kernels.BatchNormSettings(1, two.eps, two.momentum, recipe.new_before)
    (weights1, running1), (weights2, running2) = parts(one, run), parts(two, run)
    if not run.training and running1 is not None and running2 is not None:
        middle = kernels.evaluated(x, *weights1, running1, first, None)
        return kernels.evaluated(middle, *weights2, running2, second, x)
    result: Tensor = kernels.BatchNormBlock.apply(  # type: ignore[no-untyped-call]
        x, *weights1, *weights2, running1, running2, first, second, into
    )
    return result


def evolved(x: Tensor, recipe: EvoNormRecipe, run: Pass) -> Tensor:
    get = run.tensors
    weights = get[f"{recipe.conv}.weight"], get[f"{recipe.norm}.weight"], get[f"{recipe.norm}.bias"]
    settings = kernels.GroupNormSettings(recipe.stride, recipe.groups, recipe.eps)
    into = None if run.places is None else run.places[f"{recipe.conv}.weight"]
    done: Tensor = kernels.ConvEvoNorm.apply(x, *weights, settings, into)  # type: ignore[no-untyped-call]
    return done


def end(x: Tensor, around: Tensor, recipe: BlockEndRecipe, run: Pass) -> Tensor:
    one = recipe.unit
    weights, running = parts(one, run)
    settings = kernels.BatchNormSettings(one.stride, one.eps, one.momentum, recipe.new_before)
    if not run.training and running is not None:
        return kernels.evaluated(x, *weights, running, settings, around)
    done: Tensor = kernels.BlockEnd.apply(  # type: ignore[no-untyped-call]
        x, *weights, around, running, settings, place_of(one, run)
    )
    return done


def token_norm(x: StackedTensor, recipe: LayerNormRecipe, run: Pass) -> StackedTensor:
    tensor, get = x.stacked(), run.tensors
    kind = (
        run.fused if run.fused is not None and recipe.for_products else torch.float32
    )  # as torch's own gives it among 16 bits
    out = kernels.layer_norm(tensor, get[f"{recipe.name}.weight"], get.get(f"{recipe.name}.bias"), recipe.eps, kind)
    return StackedTensor(out, x.rows)


def parts(recipe: ConvUnit, run: Pass) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    weights, get = weights_of(recipe, run), run.tensors
    if not run.with_buffers or not recipe.is_tracked:
        return weights, None
    return weights, (get[f"{recipe.norm}.running_mean"], get[f"{recipe.norm}.running_var"])


def place_of(recipe: ConvUnit, run: Pass) -> Tensor | None:
    """Where the gradient for a convolution's weights is to be."""
    return None if run.places is None else run.places[f"{recipe.conv}.weight"]


def weights_of(recipe: ConvUnit, run: Pass) -> tuple[Tensor, Tensor, Tensor]:
    get = run.tensors
    return get[f"{recipe.conv}.weight"], get[f"{recipe.norm}.weight"], get[f"{recipe.norm}.bias"]


# Which parts of a traced model the fused kernels can do.

CHANNELS = (16, 32, 64)  # what the kernels have tiles for
WIDE = (64, 128, 256, 512)  # what the kernels for many channels have, with stride 1
MOST_NORMED = 1024  # numbers that a layer norm may be over


@dataclass
class Plan:
    """Nodes whose value a fused function gives, and nodes that are inside of one and have none."""

    recipes: dict[fx.Node, ConvUnit | ResidualRecipe | EvoNormRecipe | BlockEndRecipe | LayerNormRecipe] = field(
        default_factory=dict
    )
    inside: set[fx.Node] = field(default_factory=set)

    def value(self, node: fx.Node, values: dict[fx.Node, Any], run: Pass) -> StackedTensor:
        recipe = self.recipes[node]
        if isinstance(recipe, LayerNormRecipe):
            return token_norm(values[recipe.x], recipe, run)
        if isinstance(recipe, EvoNormRecipe):
            return as_stacked(evolved(images(values[recipe.x], run), recipe, run))
        if isinstance(recipe, BlockEndRecipe):
            x, around = (images(values[place], run) for place in (recipe.unit.x, recipe.around))
            return as_stacked(end(x, around, recipe, run))
        if isinstance(recipe, ConvUnit):
            x = images(values[recipe.x], run)
            return as_stacked(unit(x, recipe, run))
        x = images(values[recipe.first.x], run)
        return as_stacked(residual(x, recipe, run))


def plan(graph: fx.Graph, modules: dict[str, nn.Module]) -> Plan:
    """Finds relu(norm(conv(x))) and relu(conv(x)), with the 2×2 maxima of it where they follow, relu(group
    norm(pool(conv(x)))), and relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)); widest first."""
    found = Plan()
    units: dict[fx.Node, tuple[ConvUnit, set[fx.Node]]] = {}
    for node in graph.nodes:
        if is_relu(node, modules) and (one := unit_before(node.args[0], modules)) is not None:
            units[node] = one
    for node in graph.nodes:
        block = residual_before(node, modules, units) if is_relu(node, modules) else None
        if block is not None:
            recipe, inner = block
            found.recipes[node] = recipe
            found.inside |= inner
    for node in graph.nodes:
        if (one_ := evolved_at(node, modules)) is not None:
            found.recipes[node] = one_
            found.inside.add(node.args[0])
    for node in graph.nodes:
        if is_relu(node, modules) and (last_ := end_before(node, modules, found)) is not None:
            found.recipes[node], inner = last_
            found.inside |= inner
    for node, (recipe_, inner) in units.items():
        if node in found.inside:
            continue
        last, unit_ = node, recipe_
        if len(node.users) == 1 and not recipe_.groups and is_pool(after := next(iter(node.users)), modules):
            last, unit_ = after, replace(recipe_, pooled=True)
            found.inside.add(node)
        found.recipes[last] = unit_
        found.inside |= inner
    for node in graph.nodes:
        if is_module(node, nn.LayerNorm, modules) and has_token_kernel(modules[str(node.target)]):
            for_products = all(is_module(user, nn.Linear, modules) for user in node.users)
            eps: Any = modules[str(node.target)].eps
            found.recipes[node] = LayerNormRecipe(node.args[0], str(node.target), eps, for_products)
    return found


def has_token_kernel(norm: nn.Module) -> bool:
    """Whether there is a kernel for a layer norm: over the last dimension, and with weights that are trained."""
    if not isinstance(norm, nn.LayerNorm) or not norm.elementwise_affine or len(norm.normalized_shape) != 1:
        return False
    return norm.normalized_shape[0] <= MOST_NORMED and norm.weight.requires_grad


def is_pool(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether a node takes 2×2 maxima that do not overlap."""
    if not is_module(node, nn.MaxPool2d, modules):
        return False
    one = modules[str(node.target)]
    assert isinstance(one, nn.MaxPool2d)
    sizes = all(value in (2, (2, 2)) for value in (one.kernel_size, one.stride))
    return sizes and one.padding in (0, (0, 0)) and one.dilation in (1, (1, 1)) and not one.ceil_mode


def is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[str(node.target)]) is nn.ReLU
    is_function = node.op == "call_function" and node.target in (functional.relu, torch.relu)
    return (is_function or (node.op == "call_method" and node.target == "relu")) and len(node.all_input_nodes) == 1


def unit_before(norm: Any, modules: dict[str, nn.Module]) -> tuple[ConvUnit, set[fx.Node]] | None:
    """The unit whose norm, or whose convolution, this node is, if nobody else looks inside it."""
    if is_module(norm, nn.Conv2d, modules) and len(norm.users) == 1:
        plain, before = modules[norm.target], norm.args[0]
        assert isinstance(plain, nn.Conv2d)
        if not fits_kernel(plain, before.op == "placeholder"):
            return None
        return ConvUnit(before, norm.target, "", plain.stride[0], 0.0, 0.0, 0, plain.bias is not None), {norm}
    if not any(is_module(norm, kind, modules) for kind in (nn.BatchNorm2d, nn.GroupNorm)) or len(norm.users) != 1:
        return None
    conv, inner = norm.args[0], {norm}
    if isinstance(conv, fx.Node) and is_pool(conv, modules) and len(conv.users) == 1:
        inner.add(conv)
        conv = conv.args[0]
    if not is_module(conv, nn.Conv2d, modules) or len(conv.users) != 1:
        return None
    has_pool = len(inner) == 2
    inner.add(conv)
    one, other = modules[conv.target], modules[norm.target]
    assert isinstance(one, nn.Conv2d)
    x = conv.args[0]
    if not fits_kernel(one, x.op == "placeholder") or not other.affine:
        return None
    if isinstance(other, nn.GroupNorm):
        if one.out_channels not in CHANNELS or one.in_channels > CHANNELS[-1]:
            return None
        form = other.num_groups, one.bias is not None, has_pool
        return ConvUnit(x, conv.target, norm.target, one.stride[0], other.eps, 0.0, *form), inner
    assert isinstance(other, nn.BatchNorm2d)
    if (other.momentum is None and other.track_running_stats) or has_pool:
        return None
    settings = one.stride[0], other.eps, other.momentum or 0.0, 0, one.bias is not None, False
    return ConvUnit(x, conv.target, norm.target, *settings, other.track_running_stats), inner


def fits_kernel(conv: nn.Conv2d, is_first: bool) -> bool:
    entering = conv.in_channels in CHANNELS or (is_first and conv.in_channels <= FEW)
    plain = conv.groups == 1 and conv.padding_mode == "zeros" and conv.dilation == (1, 1)
    three, five = (conv.kernel_size == (k, k) and conv.padding == (k // 2, k // 2) for k in (3, 5))
    wide = conv.in_channels in WIDE and conv.out_channels in WIDE and conv.stride == (1, 1)
    narrow = entering and conv.out_channels in CHANNELS
    strides = ((1, 1), (2, 2)) if three else ((1, 1),)
    return plain and ((narrow and (three or five) and conv.stride in strides) or (wide and three))


def residual_before(
    relu: fx.Node, modules: dict[str, nn.Module], units: dict[fx.Node, tuple[ConvUnit, set[fx.Node]]]
) -> tuple[ResidualRecipe, set[fx.Node]] | None:
    add = relu.args[0]
    if not isinstance(add, fx.Node) or not is_addition(add) or len(add.users) != 1:
        return None
    for last, around in (add.args, add.args[::-1]):
        second = unit_before(last, modules)
        if second is None or second[0].stride != 1 or second[0].x not in units or len(second[0].x.users) != 1:
            continue
        first = units[second[0].x]
        if not all(fits_block(one, modules) for one in (first[0], second[0])):
            continue
        if bool(first[0].groups) != bool(second[0].groups):
            continue  # one norm of each kind
        inner = {add, second[0].x, *first[1], *second[1]}
        entering, leaving = (getattr(modules[first[0].conv], name) for name in ("in_channels", "out_channels"))
        if entering < CHANNELS[0]:
            continue
        if isinstance(around, fx.Node) and around.op == "call_module" and len(around.users) == 1:
            module, source = modules[str(around.target)], around.args[0]
            if source is not first[0].x:
                continue
            if type(module) is PaddedShortcut and module.stride == first[0].stride == 2:
                return ResidualRecipe(first[0], second[0], module.before), inner | {around}
            if type(module) is nn.Identity and first[0].stride == 1 and entering == leaving:
                return ResidualRecipe(first[0], second[0], 0), inner | {around}
        elif around is first[0].x and first[0].stride == 1 and entering == leaving:
            return ResidualRecipe(first[0], second[0], 0), inner
    return None


def evolved_at(node: fx.Node, modules: dict[str, nn.Module]) -> EvoNormRecipe | None:
    """The convolution and EvoNorm that a node ends, if nobody else looks inside."""
    if not is_module(node, EvoNorm, modules) or not is_module(conv := node.args[0], nn.Conv2d, modules):
        return None
    assert isinstance(conv, fx.Node)
    one, norm = modules[str(conv.target)], modules[str(node.target)]
    assert isinstance(one, nn.Conv2d)
    assert isinstance(norm, EvoNorm)
    x = conv.args[0]
    if len(conv.users) != 1 or not isinstance(x, fx.Node) or norm.slope is not None or one.bias is not None:
        return None
    if not fits_kernel(one, x.op == "placeholder") or one.out_channels not in CHANNELS:
        return None
    return EvoNormRecipe(x, str(conv.target), str(node.target), one.stride[0], norm.groups, norm.eps)


def end_before(relu: fx.Node, modules: dict[str, nn.Module], found: Plan) -> tuple[BlockEndRecipe, set[fx.Node]] | None:
    """relu(norm(conv(evonorm(conv(x)))) + shortcut(x)), with a batch norm."""
    add = relu.args[0]
    if not isinstance(add, fx.Node) or not is_addition(add) or len(add.users) != 1:
        return None
    for last, around in (add.args, add.args[::-1]):
        second = unit_before(last, modules)
        first = None if second is None else found.recipes.get(second[0].x)
        if (
            second is None
            or not isinstance(first, EvoNormRecipe)
            or not fits_block(second[0], modules)
            or second[0].groups
        ):
            continue
        inner, module = {add, *second[1]}, None
        if isinstance(around, fx.Node) and around.op == "call_module" and len(around.users) == 1:
            module = modules[str(around.target)]
            if type(module) is nn.Identity or type(module) is PaddedShortcut:
                inner.add(around)
                around = around.args[0]
        same = (modules[first.conv].in_channels == modules[first.conv].out_channels) and first.stride == 1
        padded = type(module) is PaddedShortcut and module.stride == first.stride == 2
        if around is first.x and second[0].stride == 1 and (padded or (same and type(module) is not PaddedShortcut)):
            return BlockEndRecipe(second[0], first.x, module.before if isinstance(module, PaddedShortcut) else 0), inner
    return None


def fits_block(one: ConvUnit, modules: dict[str, nn.Module]) -> bool:
    """Whether a unit can be half of a residual block: with a norm, few channels, and a small kernel."""
    conv = modules[one.conv]
    assert isinstance(conv, nn.Conv2d)
    plain = bool(one.norm) and not one.has_bias and not one.pooled and conv.kernel_size == (3, 3)
    return plain and max(conv.in_channels, conv.out_channels) <= CHANNELS[-1]


def is_module(node: Any, kind: type[nn.Module], modules: dict[str, nn.Module]) -> bool:
    """Whether a node is a layer of that kind, subclasses with another start of their weights included."""
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return False
    module = modules[str(node.target)]
    same = ("forward", "_conv_forward")
    return isinstance(module, kind) and all(getattr(type(module), n, None) is getattr(kind, n, None) for n in same)


def is_addition(node: fx.Node) -> bool:
    functions: set[Callable[..., Any]] = {operator.add, operator.iadd, torch.add}
    return node.op == "call_function" and node.target in functions and len(node.args) == 2 and not node.kwargs
