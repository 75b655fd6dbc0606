"""The models of one node: flat float32 tensors. A tensor in a slot never changes: what is sent needs no copy of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from walktalk.codecs import Bytes, decode_model, encode_model, model_size
from walktalk.runtimes.meaning import Contents, Encoded, Packed, is_mean
from walktalk.runtimes.stacked import Averaging
from walktalk.screens import rule_named


class Tensors(Contents[Tensor]):
    """Contents of slots that are the numbers themselves, on the CPU."""

    def __init__(self, width: int, parameters: int, averaging: Averaging | None = None) -> None:
        self.width = width  # numbers of a model
        self.parameters = parameters  # what comes behind that many are statistics
        self.averaging = averaging  # how means of models are made; None: number by number

    def combined(
        self, here: Mapping[str, Tensor], terms: Mapping[str, float], statistics: Mapping[str, float] | None
    ) -> Tensor:
        """Added up in the order given, as the stacked executor does."""
        made = self.averaged(here, terms) if self.averaging is not None and is_mean(terms) else added_up(here, terms)
        if statistics is not None and self.parameters < self.width:
            made[self.parameters :] = added_up(here, statistics)[self.parameters :]
        return made

    def averaged(self, here: Mapping[str, Tensor], terms: Mapping[str, float]) -> Tensor:
        """A mean of models, as their kind asks for."""
        assert self.averaging is not None
        return self.averaging.combined(torch.stack([here[slot] for slot in terms]), torch.tensor([*terms.values()]))

    def screened(self, own: Tensor, others: Sequence[tuple[Tensor, float]], rule: str, key: int) -> Tensor:
        """As the stacked executor does, for one node."""
        around = torch.stack([other for other, _ in others]) if others else own.new_empty(0, len(own))
        weights = torch.tensor([[weight for _, weight in others]], dtype=own.dtype)
        keys = torch.tensor([key])
        return rule_named(rule).mixed(own[None], around[None], weights, keys, self.parameters)[0]

    def update(self, start: Tensor, trained: Tensor) -> Tensor:
        """Trained minus start; behind the parameters the trained numbers themselves."""
        change = trained - start
        change[self.parameters :] = trained[self.parameters :]
        return change

    def encoded(self, content: Tensor, codec: str, key: int) -> Encoded[Tensor]:
        """The bytes, and what they stand for."""
        data = encode_model(codec, content, self.parameters, key)
        return Encoded(codec, self.decoded(data, codec), data)

    def decoded(self, data: Bytes, codec: str) -> Tensor:
        """The model that a code and the statistics behind it stand for; `ValueError` where none is written so."""
        return decode_model(codec, data, self.parameters, self.width)

    def mean(self, contents: Iterable[Tensor]) -> Tensor:
        """The plain average."""
        rows = torch.stack(list(contents))
        if self.averaging is None or len(rows) == 1:
            return rows.mean(0)
        return self.averaging.combined(rows, torch.full((len(rows),), 1.0 / len(rows)))

    def from_wire(self, data: Bytes, into: str, codec: str) -> Packed:
        """What came with a message, from its bytes; `ValueError` where no codec writes such."""
        if codec:
            size = model_size(codec, self.parameters, self.width)
            code, rest = data[:size], data[size:]
            state = torch.from_numpy(rest.view("<f4").astype(np.float32)) if rest.size else None
            return Packed(into, Encoded(codec, self.decoded(code, codec), code), state, len(data))
        numbers = torch.from_numpy(data.view("<f4"))
        state = numbers[self.width :] if len(numbers) > self.width else None
        return Packed(into, numbers[: self.width], state, len(data))


def added_up(here: Mapping[str, Tensor], terms: Mapping[str, float]) -> Tensor:
    """A combination of models, as a new tensor."""
    total: Tensor | None = None
    for slot, weight in terms.items():
        total = here[slot] * weight if total is None else total.add_(here[slot], alpha=weight)
    if total is None:
        raise ValueError("a combination of nothing")
    return total


def to_wire(packed: Packed, state_width: int) -> Bytes | None:
    """What goes along with a message as bytes, a single model without a copy; None for nothing.

    `state_width`: of the optimizer state that goes behind the model; one that is not there yet is all zeros.
    """
    content = packed.content
    if content is None:
        return None
    coded = isinstance(content, Encoded)
    model: Bytes = content.data if coded else as_bytes(content.contiguous().numpy())
    if not state_width:
        return model
    state = np.zeros(state_width, "<f4") if packed.state is None else packed.state.numpy()
    return np.concatenate((model, as_bytes(state)))


def as_bytes(numbers: npt.NDArray[np.float32]) -> Bytes:
    """Numbers as they stand on the wire, without a copy where they stand so here."""
    return np.ascontiguousarray(numbers, dtype="<f4").view(np.uint8)
