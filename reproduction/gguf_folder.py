"""Turns a GGUF file of a Llama into a folder that `transformers` reads: 16-bit weights, a tokenizer from elsewhere.

    python reproduction/gguf_folder.py MODEL.gguf FOLDER --tokenizer FOLDER

`task: {name: mnli, model: MODEL.gguf}` does this by itself where `transformers` can; this needs nothing but `gguf`, and
the folder loads in a second.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
IN_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with the tokenizer's files")
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.file)
    config = config_of(reader)
    weights = dict(converted(tensor, config) for tensor in reader.tensors)
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    options.folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, options.folder / "model.safetensors", {"format": "pt"})
    (options.folder / "config.json").write_text(json.dumps(config, indent=1))
    for file in options.tokenizer.iterdir():
        shutil.copyfile(file, options.folder / file.name)
    print(f"{sum(w.numel() for w in weights.values()):,} numbers in {len(weights)} tensors: {options.folder}")


def config_of(reader: Any) -> dict[str, Any]:
    """transformers' names for what the file says of itself."""

    def told(key: str) -> Any:
        return reader.fields[key].contents()

    heads, theta = told("llama.attention.head_count"), float(told("llama.rope.freq_base"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": told("llama.embedding_length"),
        "num_hidden_layers": told("llama.block_count"),
        "intermediate_size": told("llama.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": told("llama.attention.head_count_kv"),
        "head_dim": told("llama.embedding_length") // heads,
        "max_position_embeddings": told("llama.context_length"),
        "rms_norm_eps": float(told("llama.attention.layer_norm_rms_epsilon")),
        "vocab_size": len(told("tokenizer.ggml.tokens")),
        "bos_token_id": told("tokenizer.ggml.bos_token_id"),
        "eos_token_id": told("tokenizer.ggml.eos_token_id"),
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "dtype": "float16",
        "torch_dtype": "float16",
    }


def converted(tensor: Any, config: dict[str, Any]) -> tuple[str, Tensor]:
    """One tensor under transformers' name, dequantized."""
    numbers = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type)))
    stem = tensor.name.removesuffix(".weight")
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if found is None:
        return f"{WHOLE[stem]}.weight", numbers.half()
    layer, part = found.groups()
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(part)
    if heads:  # llama.cpp turns neighbouring pairs of numbers, transformers the two halves of a head
        numbers = numbers.reshape(heads, -1, 2, numbers.shape[1]).swapaxes(1, 2).reshape(numbers.shape)
    return f"model.layers.{layer}.{IN_LAYER[part]}.weight", numbers.half().contiguous()


if __name__ == "__main__":
    main()
