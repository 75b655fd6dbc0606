"""Averages of models with low-rank adapters.

A mean of factors is no mean of models: mean(B) mean(A) is not mean(B A). Here the mean of the products is what is
wanted, and the factors of the result are the nearest that the rank allows (Eckart and Young). The products themselves,
as large as the base, are never made: with Bs = [w₁ B₁, …] side by side and As = [A₁; …] one above the other, QR of both
leaves a small matrix to be decomposed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from walktalk.learning.adapters.low_rank import adapted_layers
from walktalk.learning.models import LoraLinear
from walktalk.learning.stacked import RowLayout

TINY = 1e-12  # of the largest singular value: what is smaller has no weight


@dataclass(frozen=True)
class Pairs:
    """Where the factors of layers of one shape lie in a row."""

    rank: int
    a: tuple[slice, ...]
    b: tuple[slice, ...]


class ProductMixing:
    """Combines rows so that the products of their factors are combined, and all else in them as always."""

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
