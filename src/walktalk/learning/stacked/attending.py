"""Attention of our own in models of `transformers`: they look up by a name in their configuration who does it."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import Tensor, nn

from walktalk.learning.stacked.fused.heads import attend_in_groups, can_attend_in_groups

NAME = "walktalk_short_texts"
THEIRS = "sdpa"
WISHES = ("position_bias", "cache", "s_aux", "sliding_window", "softcap", "output_attentions")  # not met by our kernel


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls, with their names: [N, T, heads, D]; by torch's own wherever ours does not fit."""
    wished = any(more.get(name) is not None and more.get(name) is not False for name in WISHES)
    if attention_mask is not None or dropout or wished or not can_attend_in_groups(query, key, value):
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        theirs: tuple[Tensor, None] = _functions()[THEIRS](module, query, key, value, attention_mask, **given, **more)
        return theirs
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend_in_groups(query, key, value, scale, causal), None


def attend_by_ours(worker: nn.Module) -> bool:
    """From now on attention in this model is ours; whether it has any that can be."""
    functions, made = _functions(), dict[int, Any]()
    for part in worker.modules():
        config = vars(part).get("config")
        if functions is None or not hasattr(part, "is_causal") or not _is(config, THEIRS):
            continue
        if id(config) not in made:  # theirs stays what it is: masks are made by it
            made[id(config)] = copy.copy(config)
            made[id(config)]._attn_implementation = NAME
        part.config = made[id(config)]
    if made:
        functions.register(NAME, attend)
    return bool(made)


def attend_by_theirs(worker: nn.Module) -> None:
    """Back to torch's own."""
    for part in worker.modules():
        config: Any = vars(part).get("config")
        if _is(config, NAME):
            config._attn_implementation = THEIRS


def _is(config: Any, name: str) -> bool:
    return getattr(config, "_attn_implementation", None) == name


def _functions() -> Any:
    """The attention functions that transformers knows; None where it is not in use, or too old to have them."""
    return getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
