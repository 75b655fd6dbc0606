"""What a codec is: a smaller form of a model for the wire, of a size that is known before the model is.

When things happen never depends on the numbers in a model, so the size of a message must not either.

Of a whole model the parameters go through the codec, and the running statistics behind them go as they are: a variance
may be far from all weights, and would spoil the scale that they share. Where a codec leaves a part of a model, that
part of the statistics goes along.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from walktalk.core.errors import SpecError
from walktalk.core.lazy import later
from walktalk.core.plugins import Registry, made_by_name

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")

Bytes = npt.NDArray[np.uint8]


class Codec(ABC):
    """Encodes one row of numbers into bytes, and back.

    A codec may also have a method `approximate(rows, keys) -> rows`: what decoding gives after encoding, for many rows
    on their device at once and equal to it to the bit. Without it the executor goes through bytes, row by row.
    """

    name: ClassVar[str]  # in specifications
    takes_statistics: ClassVar[bool] = (
        False  # running statistics behind the parameters go through it, too; not as they are
    )
    wants_feedback: ClassVar[bool] = False  # leaves out so much that a wrapper takes error feedback unless told not to

    @abstractmethod
    def size(self, width: int) -> int:
        """Bytes of an encoded row of so many numbers."""

    @abstractmethod
    def encode(self, row: Tensor, key: int) -> Bytes:
        """A row (float32, on the CPU) as exactly `size` bytes; all that is random in it follows from the key."""

    @abstractmethod
    def decode(self, data: Bytes, width: int) -> Tensor:
        """The row that these bytes stand for; `ValueError` where no row is encoded like that."""

    def for_statistics(self, parameters: int) -> Codec | None:
        """What running statistics behind so many parameters go through; None: they go as they are."""
        return None

    def followed_by(self, other: Codec) -> Codec:
        """What this codec leaves, encoded by another; `ValueError` where it leaves no numbers that one could encode."""
        raise ValueError(f"{self.name} is a code already, and no part of a model")


CODECS: Registry[type[Codec]] = Registry(
    "codec",
    "a codec is a class that inherits walktalk.Codec",
    lambda thing: isinstance(thing, type) and issubclass(thing, Codec) and thing is not Codec,
)
"""Every codec by name: its class, which is called with the settings that stand in parentheses behind the name."""

_MADE: dict[str, Codec] = {}


def codec_named(text: str, key: str = "codec", offered: Callable[[], Iterable[str]] | None = None) -> Codec:
    """The codec with this name and settings, e.g. "int8" or "top_k(0.01)"; `SpecError` at the key where there is none.

    "part(0, 4)+int8" is the second codec on the numbers that the first leaves.

    - `offered`: the names that the error lists, where not all may stand at the key.
    """
    if text not in _MADE:
        _MADE[text] = _chained(text, key, offered) if "+" in text else made_by_name(CODECS, text, key, offered)
    return _MADE[text]


def _chained(text: str, key: str, offered: Callable[[], Iterable[str]] | None) -> Codec:
    first, _, second = text.partition("+")
    made = codec_named(first, key, offered), codec_named(second, key, offered)
    try:
        return made[0].followed_by(made[1])
    except ValueError as error:
        raise SpecError(f"{key}: {text!r} is not possible: {error}") from error


def approximated(codec: Codec, rows: Tensor, keys: Tensor) -> Tensor:
    """What the receivers of these rows see, each encoded with its own key."""
    fast: Callable[[Tensor, Tensor], Tensor] | None = getattr(codec, "approximate", None)
    if fast is not None:
        return fast(rows, keys)
    width = rows.shape[1]
    seen = [codec.decode(codec.encode(row, int(key)), width) for row, key in zip(rows.cpu(), keys, strict=True)]
    return torch.stack(seen).to(rows.device)


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
    """The bytes of numbers that no codec encodes, 32 bits each."""
    return numbers.numpy().astype("<f4").view(np.uint8)


def _coded(codec: str, parameters: int, width: int) -> int:
    """How many numbers go through the codec."""
    return width if codec_named(codec).takes_statistics else parameters
