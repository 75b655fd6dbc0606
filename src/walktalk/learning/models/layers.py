"""Layers of our own: EvoNorm, and a linear layer with a low-rank adapter.

EvoNorm-S0 (Liu et al. 2020, "Evolving Normalization-Activation Layers") is a norm and its non-linearity in one.

x · σ(v x) / √(variance of the group + ε) · γ + β. There are no statistics of a batch, and none that have to travel.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

GROUPS = 32  # as the authors have it; fewer channels are a group each


class EvoNorm(nn.Module):
    """A layer in place of a normalization and the ReLU behind it."""

    def __init__(self, channels: int, groups: int = GROUPS, *, slope: bool = True, eps: float = 1e-5) -> None:
        """channels: C of [B, C, …]. groups: of channels, whose variance is taken. slope: whether v is learned, or 1."""
        super().__init__()
        self.groups, self.eps = min(groups, channels), eps
        if channels % self.groups:
            raise ValueError(f"{channels} channels cannot be cut into {self.groups} groups")
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.slope = nn.Parameter(torch.ones(channels)) if slope else None

    def forward(self, x: Tensor) -> Tensor:
        return evo_norm(x, self.groups, self.weight, self.bias, self.slope, self.eps)


def evo_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, slope: Tensor | None, eps: float) -> Tensor:
    """EvoNorm of [B, C, …] with tensors [C]; many models side by side in the channels have so many times the groups."""
    apart = x.float().unflatten(1, (groups, -1))  # a variance in 16 bits would be off by a quarter of a per cent
    spread = (apart.var(tuple(range(2, apart.dim())), correction=0, keepdim=True) + eps).rsqrt()
    shape = (-1, *[1] * (x.dim() - 2))
    swish = nn.functional.silu(x) if slope is None else x * torch.sigmoid(slope.view(shape).to(x.dtype) * x)
    normal = (swish.unflatten(1, (groups, -1)) * spread.to(x.dtype)).flatten(1, 2)
    out: Tensor = normal * weight.view(shape).to(x.dtype) + bias.view(shape).to(x.dtype)
    return out


# A frozen linear layer with a low-rank adapter (Hu et al. 2021): W x + (α / r) · B A x.

Mixing: TypeAlias = Literal["factors", "freeze-a", "product"]


class LoraLinear(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(
        self, base: nn.Module, rank: int, scaling: float, dropout: float = 0.0, mixing: Mixing = "factors"
    ) -> None:
        super().__init__()
        entering, leaving = features_of(base)
        self.base_layer = base
        self.lora_dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        weight: Any = base.weight
        self.lora_A = nn.Linear(entering, rank, bias=False, device=weight.device)
        self.lora_B = nn.Linear(rank, leaving, bias=False, device=weight.device)
        self.lora_A.weight.requires_grad_(mixing != "freeze-a")
        self.scaling, self.mixing = scaling, mixing
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts afresh as in the paper and in peft: A at random, B zero, so that training starts at the base."""
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x)
        change: Tensor = self.lora_B(self.lora_A(self.lora_dropout(x).to(self.lora_A.weight.dtype)))
        return out + (self.scaling * change).to(out.dtype)

    def product(self) -> Tensor:
        """The product that is added to the weight, in its own layout."""
        change = self.scaling * (self.lora_B.weight @ self.lora_A.weight)
        return change if isinstance(self.base_layer, nn.Linear) else change.T


def features_of(layer: nn.Module) -> tuple[int, int]:
    """How many features enter and leave a linear layer; GPT-2's own kind has its weight the other way round."""
    weight: Any = layer.weight
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return int(weight.shape[0]), int(weight.shape[1])
