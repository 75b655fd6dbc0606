"""Adapters: small parts of a large frozen model that are trained, sent and mixed in its place."""

from walktalk.learning.adapters.low_rank import (
    MIXINGS,
    LoraSettings,
    adapted_layers,
    lora,
    merged,
    settings_from,
    with_lora,
)
from walktalk.learning.adapters.mixing import ProductMixing, mixing_of
from walktalk.learning.adapters.peft_format import load_adapter, save_adapter
from walktalk.learning.models import LoraLinear, Mixing

__all__ = [
    "MIXINGS",
    "LoraLinear",
    "LoraSettings",
    "Mixing",
    "ProductMixing",
    "adapted_layers",
    "load_adapter",
    "lora",
    "merged",
    "mixing_of",
    "save_adapter",
    "settings_from",
    "with_lora",
]
