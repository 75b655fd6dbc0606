"""EvoNorm-S0 (Liu et al. 2020, "Evolving Normalization-Activation Layers"): a norm and its non-linearity in one.

x · σ(v x) / √(variance of the group + ε) · γ + β. There are no statistics of a batch, and none that have to travel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROUPS = 32  # as the authors have it; fewer channels are a group each


class EvoNorm(nn.Module):
    """In place of a normalization and the ReLU behind it."""

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
    """Of [B, C, …] with tensors [C]; many models side by side in the channels have so many times the groups."""
    apart = x.float().unflatten(1, (groups, -1))  # a variance in 16 bits would be off by a quarter of a per cent
    spread = (apart.var(tuple(range(2, apart.dim())), correction=0, keepdim=True) + eps).rsqrt()
    shape = (-1, *[1] * (x.dim() - 2))
    swish = nn.functional.silu(x) if slope is None else x * torch.sigmoid(slope.view(shape).to(x.dtype) * x)
    normal = (swish.unflatten(1, (groups, -1)) * spread.to(x.dtype)).flatten(1, 2)
    out: Tensor = normal * weight.view(shape).to(x.dtype) + bias.view(shape).to(x.dtype)
    return out
