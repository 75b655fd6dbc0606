"""What the fused kernels can do of a traced model: each recipe names the parts of the model that it is for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx


@dataclass(frozen=True)
class Unit:
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
class Residual:
    """Two units and a shortcut around them."""

    first: Unit
    second: Unit
    new_before: int


@dataclass(frozen=True)
class Evolved:
    """A convolution and its EvoNorm, by their names in the model."""

    x: fx.Node
    conv: str
    norm: str
    stride: int
    groups: int
    eps: float


@dataclass(frozen=True)
class End:
    """The second half of a residual block whose first ends with an EvoNorm."""

    unit: Unit
    around: fx.Node
    new_before: int


@dataclass(frozen=True)
class TokenNorm:
    """A layer norm by its name in the model."""

    x: fx.Node
    name: str
    eps: float
    for_products: bool  # whether nothing but linear layers sees the result, which casts it anyway
