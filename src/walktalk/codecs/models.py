"""Whole models in a codec's form: parameters go through the codec, and running statistics behind them as they are.

A variance may be far from all weights, and would spoil the scale that they share. Where a codec leaves a part of a
model, that part of the statistics goes along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from walktalk.codecs.codec import Bytes, approximated, codec_named
from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


def model_size(codec: str, parameters: int, width: int) -> int:
    """Bytes of a model in a codec's form.

    Args:
        codec: its name with its settings.
        parameters: how many of the numbers are parameters; those behind are statistics.
        width: how many numbers a model has.
    """
    chosen, coded = codec_named(codec), _coded(codec, parameters, width)
    beside, left = chosen.for_statistics(parameters), width - coded
    return chosen.size(coded) + (4 * left if beside is None else beside.size(left))


def encode_model(codec: str, model: Tensor, parameters: int, key: int) -> Bytes:
    """The bytes of a model; all that is random in them follows from the key.

    Args:
        codec: a codec's name, with its settings as in a specification.
        model: a row: its parameters, then its running statistics.
        parameters: how many of its numbers are parameters; the others go as the codec says of statistics.
        key: of the random numbers.
    """
    chosen, coded = codec_named(codec), _coded(codec, parameters, len(model))
    code = chosen.encode(model[:coded], key)
    if coded == len(model):
        return code
    beside = chosen.for_statistics(parameters)
    statistics = model[coded:]
    return np.concatenate((code, as_they_are(statistics) if beside is None else beside.encode(statistics, key)))


def decode_model(codec: str, data: Bytes, parameters: int, width: int) -> Tensor:
    """The model that these bytes stand for; `ValueError` where none is written so.

    Args:
        codec: what it was encoded with.
        data: from `encode_model`.
        parameters: how many of the model's numbers are parameters.
        width: how many numbers it has in all.
    """
    chosen, coded = codec_named(codec), _coded(codec, parameters, width)
    end = chosen.size(coded)
    model = chosen.decode(data[:end], coded)
    if coded == width:
        return model
    beside, rest = chosen.for_statistics(parameters), data[end:]
    if beside is None:
        return torch.cat((model, torch.from_numpy(rest.view("<f4").astype(np.float32))))
    return torch.cat((model, beside.decode(rest, width - coded)))


def seen_models(codec: str, rows: Tensor, parameters: int, keys: Tensor) -> Tensor:
    """What the receivers of these models see, each encoded with its own key.

    Args:
        codec: what they are encoded with.
        rows: the models, [W, width].
        parameters: how many of a model's numbers are parameters.
        keys: of the random numbers, one a model.
    """
    chosen, coded = codec_named(codec), _coded(codec, parameters, rows.shape[1])
    seen = approximated(chosen, rows[:, :coded], keys)
    if coded == rows.shape[1]:
        return seen
    beside, statistics = chosen.for_statistics(parameters), rows[:, coded:]
    return torch.cat((seen, statistics if beside is None else approximated(beside, statistics, keys)), 1)


def as_they_are(numbers: Tensor) -> Bytes:
    """Numbers of 32 bits."""
    return numbers.numpy().astype("<f4").view(np.uint8)


def _coded(codec: str, parameters: int, width: int) -> int:
    """How many numbers go through the codec."""
    return width if codec_named(codec).takes_statistics else parameters
