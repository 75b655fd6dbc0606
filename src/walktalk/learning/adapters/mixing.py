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


@dataclass(frozen=True)
class Pair:
    """Where the factors of one layer lie in a row."""

    a: slice
    b: slice
    rank: int


class ProductMixing:
    """Combines rows so that the products of their factors are combined, and all else in them as always."""

    def __init__(self, layers: dict[str, LoraLinear], layout: RowLayout) -> None:
        where = {entry.name: slice(entry.start, entry.end) for entry in layout.parameters}
        self.pairs = [
            Pair(where[f"{name}.lora_A.weight"], where[f"{name}.lora_B.weight"], layer.lora_A.out_features)
            for name, layer in layers.items()
        ]

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Σ_k weights[k] · model k, as one row.

        Args:
            rows: the models, [K, width].
            weights: one for each; they are those of a mean, but may be negative.
        """
        out = torch.einsum("k,kn->n", weights.to(rows.dtype), rows)
        for pair in self.pairs:
            a = rows[:, pair.a].view(len(rows), pair.rank, -1)
            b = rows[:, pair.b].view(len(rows), -1, pair.rank)
            new_b, new_a = mean_product(b, a, weights)
            out[pair.a], out[pair.b] = new_a.reshape(-1), new_b.reshape(-1)
        return out


def mean_product(b: Tensor, a: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the best approximation of Σ_k w_k B_k A_k with the same rank.

    Args:
        b: [K, out, r].
        a: [K, r, in].
        weights: [K].

    Both factors get the root of the singular values, so that neither grows at the other's cost. The signs of singular
    vectors are not unique: they are turned so that A stays as near as it can to the mean of the A's.
    """
    rank = a.shape[1]
    wide, high = (weights.to(b.dtype).view(-1, 1, 1) * b).transpose(0, 1).flatten(1), a.flatten(0, 1)
    q_b, r_b = torch.linalg.qr(wide.double())
    q_a, r_a = torch.linalg.qr(high.double().T)
    u, values, v = torch.linalg.svd(r_b @ r_a.T)
    kept = min(rank, len(values))
    roots = values[:kept].clamp(min=0.0).sqrt()
    new_b, new_a = q_b @ u[:, :kept] * roots, roots[:, None] * (v[:kept] @ q_a.T)
    near = torch.einsum("k,kri->ri", weights.double(), a.double())
    if kept < rank or bool((values[:kept] <= 1e-12 * values[:1].clamp(min=1e-30)).any()):
        # Of lower rank than there is room for, as at the start, where B is zero: what has no weight yet keeps the A's
        # mean, for an A and a B that are both zero would never learn.
        return padded(new_b, new_a, values[:kept], near, rank, b.dtype)
    turn = nearest_turn(new_a, near)
    return (new_b @ turn.T).to(b.dtype), (turn @ new_a).to(a.dtype)


def nearest_turn(new_a: Tensor, near: Tensor) -> Tensor:
    """The rotation T with T · new_a nearest to another matrix (Procrustes): B Tᵀ T A is still B A."""
    u, _, v = torch.linalg.svd(near @ new_a.T)
    found: Tensor = u @ v
    return found


def padded(
    new_b: Tensor, new_a: Tensor, values: Tensor, near: Tensor, rank: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Factors with fewer directions than the rank, filled up with directions of the mean A that B gives no weight."""
    there = int((values > 1e-12 * values[:1].clamp(min=1e-30)).sum()) if len(values) and float(values[0]) > 0 else 0
    new_b, new_a = new_b[:, :there], new_a[:there]
    rest = near - (near @ torch.linalg.pinv(new_a)) @ new_a if there else near
    directions = torch.linalg.svd(rest, full_matrices=False)
    more = rank - there
    filled = directions.S[:more, None] * directions.Vh[:more]
    a = torch.cat((new_a, filled, new_a.new_zeros(more - len(filled), new_a.shape[1])))
    b = torch.cat((new_b, new_b.new_zeros(len(new_b), more)), 1)
    return b.to(dtype), a.to(dtype)


def mixing_of(module: nn.Module, layout: RowLayout) -> ProductMixing | None:
    """How rows of this model are combined; None: number by number."""
    layers = {name: layer for name, layer in adapted_layers(module).items() if layer.mixing == "product"}
    return ProductMixing(layers, layout) if layers else None
