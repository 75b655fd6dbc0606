"""Low-rank adapters (LoRA, Hu et al. 2021): W x + (α / r) · B A x, of which A and B train and W is frozen.

Layers and names are those of the format that `peft` writes (`peft_format`): `….q_proj.lora_A.weight`, [r, in], and
`….q_proj.lora_B.weight`, [out, r].
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from walktalk.core.errors import ModelError, SettingError
from walktalk.core.settings import complete, misfit, settings_of
from walktalk.learning.models import LoraLinear as LoraLinear
from walktalk.learning.models import Mixing as Mixing
from walktalk.learning.models import features_of
from walktalk.learning.stacked import RowLayout
from walktalk.learning.task import chosen_to_train, matches, sharing_copy

MIXINGS: tuple[Mixing, ...] = ("factors", "freeze-a", "product")
USUAL = ("q_proj", "v_proj"), ("query", "value"), ("c_attn",), ("query_key_value",), ("Wqkv",)
"""Names of attention's layers in models of transformers: the first of these that a model has are the usual targets."""


@dataclass(frozen=True)
class LoraSettings:
    """The settings of an adapter: rank, scaling, layers, and how adapters are mixed.

    Args:
        rank: r, of both factors.
        alpha: α; what the factors give is multiplied by α / r. None: twice the rank.
        targets: the linear layers that get one, by the ends of their names, or with `*`; None: attention's queries and
            values, as the model calls them.
        dropout: of what enters an adapter.
        also: parts that train as a whole and travel with the adapters, such as a new head.
        mixing: how models are averaged: `factors` averages A and B, `freeze-a` trains and sends B alone, `product`
            averages B A and cuts it to the rank.
    """

    rank: Annotated[int, Ge(1)] = 16
    alpha: float | None = None
    targets: tuple[str, ...] | str | None = None
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    also: tuple[str, ...] | str = ()
    mixing: Mixing = "factors"

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise misfit("adapter.rank", self.rank, "a whole number, 1 or more", ModelError)
        if not 0.0 <= self.dropout < 1.0:
            raise misfit("adapter.dropout", self.dropout, "a number from 0 to below 1", ModelError)
        if self.mixing not in MIXINGS:
            raise misfit("adapter.mixing", self.mixing, ", ".join(MIXINGS), ModelError)

    @property
    def scaling(self) -> float:
        """The factor α / r on what an adapter adds to its layer."""
        return (2 * self.rank if self.alpha is None else self.alpha) / self.rank


def is_linear(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"


def lora(
    model: nn.Module,
    rank: int = 16,
    *,
    alpha: float | None = None,
    targets: str | Sequence[str] | None = None,
    dropout: float = 0.0,
    also: str | Sequence[str] = (),
    mixing: Mixing = "factors",
) -> nn.Module:
    """A copy of a model with low-rank adapters, all else frozen: only the adapters are trained, sent and mixed.

    The frozen weights are the model's own memory, not a copy. `adapters.merged` puts adapters into plain weights,
    `adapters.save_adapter` writes them as `peft` does.

    Args:
        model: any module with linear layers.
        rank: r, of both factors.
        alpha: what the factors give is multiplied by alpha / rank; twice the rank if left out.
        targets: the linear layers that get one, by the ends of their names (`"q_proj"`), or with `*`; if left out,
            attention's queries and values, as models of transformers call them.
        dropout: of what enters an adapter.
        also: parts that train as a whole, such as a new head.
        mixing: `factors` averages A and B, `freeze-a` trains and sends B alone, `product` averages B A and cuts it to
            the rank.
    """
    chosen = targets if targets is None or isinstance(targets, str) else tuple(targets)
    whole = also if isinstance(also, str) else tuple(also)
    return with_lora(model, LoraSettings(rank, alpha, chosen, dropout, whole, mixing))


def settings_from(given: Mapping[str, Any]) -> LoraSettings:
    """The section `adapter` of a specification."""
    kind = given.get("kind", "lora")
    if kind != "lora":
        raise misfit("adapter.kind", kind, "lora", ModelError)
    try:
        values = complete({name: value for name, value in given.items() if name != "kind"}, settings_of(LoraSettings))
    except SettingError as error:
        raise ModelError(f"adapter.{error}") from error
    return LoraSettings(**values)


def with_lora(model: nn.Module, settings: LoraSettings, names: Sequence[str] | None = None) -> nn.Module:
    """A copy of the model with adapters, at the layers of exactly these names where they are given; see `lora`."""
    if names is None:  # else they are somebody's file, of whatever rank it is
        names = target_names(model, settings.targets)
        check_rank(model, names, settings.rank)
    also = (settings.also,) if isinstance(settings.also, str) else settings.also
    for pattern in also:
        if not any(matches(name, pattern) for name, _ in model.named_parameters()):
            raise ModelError(f"adapter.also: no part is called {pattern!r}")
    whole = [n for n, _ in model.named_parameters() if any(matches(n, pattern) for pattern in also)]
    copied = chosen_to_train(model, whole)
    for name in names:
        base = copied.get_submodule(name)
        put(copied, name, LoraLinear(base, settings.rank, settings.scaling, settings.dropout, settings.mixing))
    return copied


def check_rank(model: nn.Module, names: Sequence[str], rank: int) -> None:
    """Checks that no layer is smaller than the adapter's rank.

    Its product could be no fuller, with more numbers to send.
    """
    for name in names:
        entering, leaving = features_of(model.get_submodule(name))
        if rank > min(entering, leaving):
            raise ModelError(
                f"adapter.rank: {rank} is more than {name!r} has, which goes from {entering} to {leaving} numbers; "
                f"allowed: up to {min(entering, leaving)}, or other targets"
            )


def target_names(model: nn.Module, targets: str | Sequence[str] | None) -> list[str]:
    """The names of the linear layers that get an adapter."""
    targets = (targets,) if isinstance(targets, str) else targets
    linear = [name for name, part in model.named_modules() if name and is_linear(part)]
    if targets is None:
        for usual in USUAL:
            if all(any(ends_with(name, one) for name in linear) for one in usual):
                targets = usual
                break
        else:
            ends = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in linear))
            raise ModelError(f"adapter.targets: say which layers get one; the model's linear layers end in {ends}")
    found = [name for name in linear if any(ends_with(name, target) for target in targets)]
    for target in targets:
        if not any(ends_with(name, target) for name in linear):
            ends = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in linear)) or "none"
            raise ModelError(f"adapter.targets: no linear layer's name ends in {target!r}; there are {ends}")
    return found


def ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}") or ("*" in target and fnmatch.fnmatchcase(name, target))


def put(model: nn.Module, name: str, part: nn.Module) -> None:
    """Puts a module in the place of another."""
    place, _, last = name.rpartition(".")
    setattr(model.get_submodule(place), last, part)


def adapted_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers of a model that have adapters, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LoraLinear)}


def merged(model: nn.Module) -> nn.Module:
    """A copy with plain layers, adapters added to their weights: what other tools can load and run.

    Args:
        model: with adapters, such as `run.model`.
    """
    copied = sharing_copy(model)
    for name, layer in adapted_layers(copied).items():
        base = layer.base_layer
        weight: Any = base.weight
        with torch.no_grad():
            base.weight = nn.Parameter(weight + layer.product().to(weight.dtype), requires_grad=False)
        put(copied, name, base)
    return copied


# Averages of models with low-rank adapters.
#
# A mean of factors is no mean of models: mean(B) mean(A) is not mean(B A). Here the mean of the products is what is
# wanted, and the factors of the result are the nearest that the rank allows (Eckart and Young). The products
# themselves, as large as the base, are never made: with Bs = [w₁ B₁, …] side by side and As = [A₁; …] one above the
# other, QR of both leaves a small matrix to be decomposed.

TINY = 1e-12  # of the largest singular value: what is smaller has no weight


@dataclass(frozen=True)
class Pairs:
    """Where the factors of layers of one shape lie in a row."""

    rank: int
    a: tuple[slice, ...]
    b: tuple[slice, ...]


class ProductMixing:
    """Combines rows so that the products of their factors are combined, and all else in them as always."""

    has_distances = True

    def __init__(self, layers: dict[str, LoraLinear], layout: RowLayout) -> None:
        where = {entry.name: slice(entry.start, entry.end) for entry in layout.parameters}
        shapes: dict[tuple[int, int, int], list[str]] = {}
        for name, layer in layers.items():
            shape = (layer.lora_A.out_features, layer.lora_A.in_features, layer.lora_B.out_features)
            shapes.setdefault(shape, []).append(name)
        self.alike = [
            Pairs(
                rank,
                tuple(where[f"{name}.lora_A.weight"] for name in names),
                tuple(where[f"{name}.lora_B.weight"] for name in names),
            )
            for (rank, _, _), names in shapes.items()
        ]

    def refusal(self, label: str) -> str:
        """What is said of an algorithm that adds up other things than models."""
        return (
            f"task.adapter.mixing: product is for walks and gossip; {label} mixes more than models, so take factors or "
            "freeze-a"
        )

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Σ_k weights[k] · model k, as one row.

        Args:
            rows: the models, [K, width].
            weights: one for each; they are those of a mean, but may be negative.
        """
        out = torch.einsum("k,kn->n", weights.to(rows.dtype), rows)
        for pairs in self.alike:
            a = torch.stack([rows[:, place].view(len(rows), pairs.rank, -1) for place in pairs.a])
            b = torch.stack([rows[:, place].view(len(rows), -1, pairs.rank) for place in pairs.b])
            for place_a, place_b, new_b, new_a in zip(pairs.a, pairs.b, *mean_products(b, a, weights), strict=True):
                out[place_a], out[place_b] = new_a.reshape(-1), new_b.reshape(-1)
        return out


def mean_products(b: Tensor, a: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the best approximations of Σ_k w_k B_k A_k with the same rank, of L layers at once.

    Args:
        b: [L, K, out, r].
        a: [L, K, r, in].
        weights: [K].

    Both factors get the root of the singular values, so that neither grows at the other's cost. Any rotation between
    them leaves the product as it is: the one is taken that leaves A nearest to the mean of the A's.
    """
    rank, exact = a.shape[2], weights.double()
    wide = (exact.view(-1, 1, 1) * b.double()).transpose(1, 2).flatten(2)
    q_b, r_b = torch.linalg.qr(wide)
    q_a, r_a = torch.linalg.qr(a.double().flatten(1, 2).mT)
    u, values, v = torch.linalg.svd(r_b @ r_a.mT)
    kept = min(rank, values.shape[1])
    values = values[:, :kept]
    roots = values.clamp(min=0.0).sqrt()
    new_b, new_a = q_b @ u[:, :, :kept] * roots[:, None], roots[:, :, None] * (v[:, :kept] @ q_a.mT)
    near = torch.einsum("k,lkri->lri", exact, a.double())
    turned = nearest_turn(new_a, near) if kept == rank else None
    full = (values > TINY * values[:, :1].clamp(min=1e-30)).all(1) if kept == rank else values.new_zeros(len(values))
    made = []
    for layer, is_full in enumerate(full.tolist()):
        if is_full and turned is not None:
            made.append((new_b[layer] @ turned[layer].T, turned[layer] @ new_a[layer]))
        else:
            # Of lower rank than there is room for, as at the start, where B is zero: what has no weight yet keeps the
            # A's mean, for an A and a B that are both zero would never learn.
            made.append(padded(new_b[layer], new_a[layer], values[layer], near[layer], rank))
    return torch.stack([one for one, _ in made]).to(b.dtype), torch.stack([other for _, other in made]).to(a.dtype)


def nearest_turn(new_a: Tensor, near: Tensor) -> Tensor:
    """The rotations T with T · new_a nearest to other matrices (Procrustes): B Tᵀ T A is still B A."""
    u, _, v = torch.linalg.svd(near @ new_a.mT)
    found: Tensor = u @ v
    return found


def padded(new_b: Tensor, new_a: Tensor, values: Tensor, near: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factors with fewer directions than the rank, filled up with directions of the mean A that B gives no weight."""
    there = int((values > TINY * values[:1].clamp(min=1e-30)).sum()) if len(values) else 0
    new_b, new_a = new_b[:, :there], new_a[:there]
    rest = near - (near @ torch.linalg.pinv(new_a)) @ new_a if there else near
    directions = torch.linalg.svd(rest, full_matrices=False)
    more = rank - there
    filled = directions.S[:more, None] * directions.Vh[:more]
    a = torch.cat((new_a, filled, new_a.new_zeros(more - len(filled), new_a.shape[1])))
    return torch.cat((new_b, new_b.new_zeros(len(new_b), more)), 1), a


def mixing_of(module: nn.Module, layout: RowLayout) -> ProductMixing | None:
    """How rows of this model are combined; None: number by number."""
    layers = {name: layer for name, layer in adapted_layers(module).items() if layer.mixing == "product"}
    return ProductMixing(layers, layout) if layers else None
