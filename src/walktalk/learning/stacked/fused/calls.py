"""How the fused kernels are called for a recipe."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.learning.stacked.fused.recipes import End, Evolved, Residual, TokenNorm, Unit
from walktalk.learning.stacked.laid import Laid, Pass

FEW = 4  # channels that images may have; filled up to that number


def images(x: Laid, run: Pass) -> Tensor:
    """As [W, B, H, W', C], dense in every row; few channels are filled up with zeros."""
    tensor = x.stacked().permute(0, 1, 3, 4, 2)
    if tensor.shape[-1] > FEW:
        return tensor.to(run.fused).contiguous()
    is_shared = tensor.stride(0) == 0 and len(tensor) > 1
    one = tensor[:1] if is_shared else tensor
    filled = torch.zeros((*one.shape[:-1], FEW), dtype=run.fused, device=tensor.device)
    filled[..., : one.shape[-1]] = one
    return filled.expand(len(tensor), *filled.shape[1:]) if is_shared else filled


def as_laid(z: Tensor) -> Laid:
    return Laid(z.permute(0, 1, 4, 2, 3), len(z))


def unit(x: Tensor, recipe: Unit, run: Pass) -> Tensor:
    from walktalk.learning.stacked.fused import functions, group_functions

    into = place_of(recipe, run)
    bias = run.tensors[f"{recipe.conv}.bias"] if recipe.has_bias else None
    if not recipe.norm:
        weight = run.tensors[f"{recipe.conv}.weight"]
        plain: Tensor = functions.PlainLayer.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, recipe.stride, recipe.pooled, into
        )
        return plain
    if recipe.groups:
        form = group_functions.GroupSettings(recipe.stride, recipe.groups, recipe.eps, recipe.pooled)
        weight, gamma, beta = weights_of(recipe, run)
        done: Tensor = group_functions.GroupLayer.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, gamma, beta, form, into
        )
        return done
    settings = functions.Settings(recipe.stride, recipe.eps, recipe.momentum, 0, recipe.pooled)
    (weight, gamma, beta), running = parts(recipe, run)
    if not run.training and running is not None:
        return functions.evaluated(x, weight, gamma, beta, running, settings, None, bias)
    result: Tensor = functions.Layer.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, gamma, beta, running, settings, into
    )
    return result


def residual(x: Tensor, recipe: Residual, run: Pass) -> Tensor:
    from walktalk.learning.stacked.fused import functions, group_functions

    one, two = recipe.first, recipe.second
    into = place_of(one, run), place_of(two, run)
    if one.groups:
        weights = *weights_of(one, run), *weights_of(two, run)
        settings = one.stride, (one.groups, two.groups), (one.eps, two.eps), recipe.new_before
        done: Tensor = group_functions.GroupBlock.apply(x, *weights, *settings, into)  # type: ignore[no-untyped-call]
        return done
    first = functions.Settings(one.stride, one.eps, one.momentum)
    second = functions.Settings(1, two.eps, two.momentum, recipe.new_before)
    (weights1, running1), (weights2, running2) = parts(one, run), parts(two, run)
    if not run.training and running1 is not None and running2 is not None:
        middle = functions.evaluated(x, *weights1, running1, first, None)
        return functions.evaluated(middle, *weights2, running2, second, x)
    result: Tensor = functions.Block.apply(  # type: ignore[no-untyped-call]
        x, *weights1, *weights2, running1, running2, first, second, into
    )
    return result


def evolved(x: Tensor, recipe: Evolved, run: Pass) -> Tensor:
    from walktalk.learning.stacked.fused import evo_functions, group_functions

    get = run.tensors
    weights = get[f"{recipe.conv}.weight"], get[f"{recipe.norm}.weight"], get[f"{recipe.norm}.bias"]
    settings = group_functions.GroupSettings(recipe.stride, recipe.groups, recipe.eps)
    into = None if run.places is None else run.places[f"{recipe.conv}.weight"]
    done: Tensor = evo_functions.EvoLayer.apply(x, *weights, settings, into)  # type: ignore[no-untyped-call]
    return done


def end(x: Tensor, around: Tensor, recipe: End, run: Pass) -> Tensor:
    from walktalk.learning.stacked.fused import evo_functions, functions

    one = recipe.unit
    weights, running = parts(one, run)
    settings = functions.Settings(one.stride, one.eps, one.momentum, recipe.new_before)
    if not run.training and running is not None:
        return functions.evaluated(x, *weights, running, settings, around)
    done: Tensor = evo_functions.Ending.apply(  # type: ignore[no-untyped-call]
        x, *weights, around, running, settings, place_of(one, run)
    )
    return done


def token_norm(x: Laid, recipe: TokenNorm, run: Pass) -> Laid:
    from walktalk.learning.stacked.fused import tokens

    tensor, get = x.stacked(), run.tensors
    kind = run.fused if recipe.for_products else torch.float32  # as torch's own gives it among 16 bits
    out: Tensor = tokens.LayerNorm.apply(  # type: ignore[no-untyped-call]
        tensor, get[f"{recipe.name}.weight"], get.get(f"{recipe.name}.bias"), recipe.eps, kind
    )
    return Laid(out, x.rows)


def parts(recipe: Unit, run: Pass) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    weights, get = weights_of(recipe, run), run.tensors
    if not run.with_buffers or not recipe.is_tracked:
        return weights, None
    return weights, (get[f"{recipe.norm}.running_mean"], get[f"{recipe.norm}.running_var"])


def place_of(recipe: Unit, run: Pass) -> Tensor | None:
    """Where the gradient for a convolution's weights is to be."""
    return None if run.places is None else run.places[f"{recipe.conv}.weight"]


def weights_of(recipe: Unit, run: Pass) -> tuple[Tensor, Tensor, Tensor]:
    get = run.tensors
    return get[f"{recipe.conv}.weight"], get[f"{recipe.norm}.weight"], get[f"{recipe.norm}.bias"]
