"""Adapters as `peft` writes and reads them: `adapter_model.safetensors` and `adapter_config.json` in a folder.

Nothing here needs `peft`. Of its kinds LoRA on linear layers is known, with parts that train as a whole
(`modules_to_save`); what else a folder asks for is refused in words, not left out.
"""

from __future__ import annotations

import json
import math
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.learning.adapters.low_rank import LoraSettings, adapted_layers, with_lora
from walktalk.learning.models import Mixing
from walktalk.learning.models.language import LanguageClassifier
from walktalk.learning.user_data import persons_module

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
UNKNOWN = ("use_dora", "use_qalora", "rank_pattern", "alpha_pattern", "layer_replication", "megatron_config")


def bare(model: nn.Module) -> nn.Module:
    """The person's model, without the adapter that calls it for a task."""
    model = persons_module(model)
    return model.inner if isinstance(model, LanguageClassifier) else model


def save_adapter(model: nn.Module, folder: str | PathLike[str], base: str | None = None) -> Path:
    """Writes a model's adapters, and the parts that train with them, as `peft` does, and gives back the folder.

    Args:
        model: with adapters, such as `run.model`.
        folder: where; it need not exist yet.
        base: the name or folder of the model that they belong to, for who loads them.
    """
    root = bare(model)
    layers = adapted_layers(root)
    if not layers:
        raise ModelError("the model has no adapters; wt.lora(model, …) gives it some")
    tensors = {
        f"{PREFIX}{name}.{factor}.weight": getattr(layer, factor).weight
        for name, layer in layers.items()
        for factor in ("lora_A", "lora_B")
    }
    factors = {id(tensor) for tensor in tensors.values()}
    whole = {name: p for name, p in root.named_parameters() if p.requires_grad and id(p) not in factors}
    tensors |= {PREFIX + name: parameter for name, parameter in whole.items()}
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, where / WEIGHTS, {"format": "pt"})
    first = next(iter(layers.values()))
    rank = first.lora_A.out_features
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base or getattr(getattr(root, "config", None), "_name_or_path", None) or None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": first.scaling * rank,
        "lora_dropout": first.lora_dropout.p if isinstance(first.lora_dropout, nn.Dropout) else 0.0,
        "target_modules": sorted(layers),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
        "bias": "none",
        "fan_in_fan_out": not isinstance(first.base_layer, nn.Linear),
        "use_rslora": False,
        "init_lora_weights": True,
    }
    (where / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return where


def load_adapter(model: nn.Module, folder: str | PathLike[str], mixing: Mixing = "factors") -> nn.Module:
    """A copy of a model with the adapters of a folder, ready to be trained on; the model's own memory is its base.

    Args:
        model: what they were trained for.
        folder: with `adapter_model.safetensors` and `adapter_config.json`.
        mixing: as in `wt.lora`.
    """
    config, tensors = read(Path(folder))
    root = bare(model)
    prefix = next(f"{name}." if name else "" for name, part in model.named_modules() if part is root)
    end = ".lora_A.weight"
    names = [name.removesuffix(end) for name in tensors if name.endswith(end)]
    whole = sorted({name.rpartition(".")[0] for name in tensors if ".lora_" not in name})
    known = dict(root.named_modules())
    for name in (*names, *whole):
        if name not in known:
            raise ModelError(f"adapter: {folder} has an adapter for {name}, which the model has not")
    rank = int(config["r"])
    scaling = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
    settings = LoraSettings(
        rank, scaling * rank, None, float(config.get("lora_dropout") or 0.0), tuple(prefix + n for n in whole), mixing
    )
    adapted = with_lora(model, settings, [prefix + name for name in names])
    there = dict(adapted.named_parameters())
    with torch.no_grad():
        for name, tensor in tensors.items():
            place = there.get(prefix + name)
            if place is None or place.shape != tensor.shape:
                raise ModelError(f"adapter: {name} of {folder} does not fit the model")
            place.copy_(tensor)
    return adapted


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Reads an adapter from a folder: its settings, and its tensors by the model's own names."""
    try:
        config = json.loads((folder / CONFIG).read_text())
        tensors: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"adapter: {folder} holds no adapter of peft ({' '.join(str(error).split())})") from error
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none":
        raise ModelError(f"adapter: {folder} is of kind {config.get('peft_type')}; only LORA with bias none is known")
    for name in UNKNOWN:
        if config.get(name):
            raise ModelError(f"adapter: {folder} uses {name}, which is not known here")
    return config, {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
