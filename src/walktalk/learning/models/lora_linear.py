"""A frozen linear layer with a low-rank adapter (Hu et al. 2021): W x + (α / r) · B A x."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

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
        """As in the paper and in peft: A at random, B zero, so that training starts at the base."""
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x)
        change: Tensor = self.lora_B(self.lora_A(self.lora_dropout(x).to(self.lora_A.weight.dtype)))
        return out + (self.scaling * change).to(out.dtype)

    def product(self) -> Tensor:
        """What is added to the weight, in its own layout."""
        change = self.scaling * (self.lora_B.weight @ self.lora_A.weight)
        return change if isinstance(self.base_layer, nn.Linear) else change.T


def features_of(layer: nn.Module) -> tuple[int, int]:
    """What enters and leaves a linear layer; GPT-2's own kind has its weight the other way round."""
    weight: Any = layer.weight
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return int(weight.shape[0]), int(weight.shape[1])
