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
from torch import nn

from walktalk.errors import ModelError, SettingError
from walktalk.learning.frozen import chosen_to_train, matches, sharing_copy
from walktalk.learning.models import LoraLinear, Mixing, features_of
from walktalk.settings import complete, settings_of

MIXINGS: tuple[Mixing, ...] = ("factors", "freeze-a", "product")
USUAL = ("q_proj", "v_proj"), ("query", "value"), ("c_attn",), ("query_key_value",), ("Wqkv",)
"""Names of attention's layers in models of transformers: the first of these that a model has are the usual targets."""


@dataclass(frozen=True)
class LoraSettings:
    """What an adapter is made of.

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
            raise ModelError(f"adapter.rank: {self.rank} is not possible; at least 1 is needed")
        if not 0.0 <= self.dropout < 1.0:
            raise ModelError(f"adapter.dropout: {self.dropout} is not possible; allowed: 0 to less than 1")
        if self.mixing not in MIXINGS:
            raise ModelError(f"adapter.mixing: {self.mixing!r} is unknown; allowed: {', '.join(MIXINGS)}")

    @property
    def scaling(self) -> float:
        """α / r."""
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
        raise ModelError(f"adapter.kind: {kind!r} is unknown; allowed: lora")
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
    """That no layer is smaller than the adapter's rank: its product could be no fuller, with more numbers to send."""
    for name in names:
        entering, leaving = features_of(model.get_submodule(name))
        if rank > min(entering, leaving):
            raise ModelError(
                f"adapter.rank: {rank} is more than {name!r} has, which goes from {entering} to {leaving} numbers; "
                f"allowed: up to {min(entering, leaving)}, or other targets"
            )


def target_names(model: nn.Module, targets: str | Sequence[str] | None) -> list[str]:
    """The linear layers that are meant."""
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
    """Put a part in the place of another."""
    place, _, last = name.rpartition(".")
    setattr(model.get_submodule(place), last, part)


def adapted_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """Its layers with adapters, by name."""
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
