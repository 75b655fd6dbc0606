"""Gossip in 8 bits with error feedback: a codec and a protocol of one's own.

In every round a node sends its model, with what earlier messages left out added to it, rounded to one byte a number;
what the rounding leaves out this time is kept for the next (Seide et al. 2014; Tang et al. 2019). With x̂ what receivers
see,

    x̂_i = Q(x_i + e_i),   e_i ← x_i + e_i − x̂_i,   x_i ← x_i + Σ_j W_ij (x̂_j − x̂_i) − η g_i

so the mean of all x is moved by the gradients alone, whatever Q does. A quarter of the bytes of plain gossip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import walktalk as wt
from walktalk.protocols import (
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Context,
    Decode,
    Effect,
    Encode,
    Event,
    Forget,
    Machine,
    Message,
    NetworkView,
    Received,
    Record,
    Send,
    Started,
    Train,
    Trained,
)
from walktalk.transforms.codecs import Bytes

X, ERROR, CARRIED, SEEN, LEARNED = "x", "error", "carried", "seen", "learned"


@wt.register
class RoundedToBytes(wt.Codec):
    """Every number as a whole number of 127ths of the largest, rounded to the nearest."""

    name: ClassVar[str] = "rounded_to_bytes"

    def size(self, width: int) -> int:
        return 4 + width

    def encode(self, row: Tensor, key: int) -> Bytes:
        scale = max(float(row.abs().max()), 1e-30)
        numbers = (row / scale * 127).round().to(torch.int8).numpy().view(np.uint8)
        return np.concatenate((np.array([scale], "<f4").view(np.uint8), numbers))

    def decode(self, data: Bytes, width: int) -> Tensor:
        scale = float(data[:4].view("<f4")[0])
        if not np.isfinite(scale):
            raise ValueError("the scale is not a number")
        return torch.from_numpy(data[4:].view(np.int8).astype(np.float32)) * (scale / 127)


@wt.register
@dataclass(frozen=True)
class EightBitGossip(wt.Protocol):
    """Every node averages with its neighbours round by round, in a quarter of the bytes."""

    title: ClassVar[str] = "8-bit gossip"
    family: ClassVar[str] = "rounds"
    colour: ClassVar[str] = "#BC5090"
    conserves: ClassVar[tuple[str, ...]] = ("sum",)

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {"round": Arrival("round/{round}/{sender}", codec=RoundedToBytes.name)}

    def machine(self, network_view: NetworkView) -> Machine:
        return EightBitNode(network_view)


class EightBitNode(Machine):
    """One node; a neighbour may be a round ahead."""

    def __init__(self, around: NetworkView) -> None:
        self.around, self.round, self.trained = around, 0, False
        self.came: dict[int, set[int]] = {}

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Started):
            return [Combine(X, {INITIAL: 1.0}), Record(MEMBER, self.around.node, X), *self.begin()]
        if isinstance(event, Trained):
            self.trained = True
            return [Combine(LEARNED, {UPDATE: 1.0}), *self.finish()]
        if isinstance(event, Received):
            self.came.setdefault(event.message.round, set()).add(event.sender)
            return self.finish()
        return []

    def begin(self) -> list[Effect]:
        left = {ERROR: 1.0} if self.round else {}
        return [
            Combine(CARRIED, {X: 1.0, **left}, {X: 1.0}),
            Encode(CARRIED, "packed", RoundedToBytes.name),
            Decode("packed", SEEN),
            Combine(ERROR, {CARRIED: 1.0, SEEN: -1.0}),
            *(Send(peer, Message("round", round=self.round), "packed") for peer in self.around.neighbours),
            Train(X),
        ]

    def finish(self) -> list[Effect]:
        around, here = self.around, self.came.get(self.round, set())
        if not self.trained or len(here) < len(around.neighbours):
            return []
        own = len(around.neighbours)
        row = {p: 1.0 / (max(own, d) + 1) for p, d in zip(around.neighbours, around.degrees, strict=True)}
        rest = 1.0 - sum(row.values())
        unpack = [Decode(f"round/{self.round}/{peer}", f"of/{peer}") for peer in row]
        forget = [Forget(slot) for peer in row for slot in (f"round/{self.round}/{peer}", f"of/{peer}")]
        others = {f"of/{peer}": weight for peer, weight in row.items()}
        mix = Combine(X, {X: 1.0, **others, SEEN: rest - 1.0, LEARNED: 1.0}, {LEARNED: rest, **others})
        self.came.pop(self.round, None)
        self.round, self.trained = self.round + 1, False
        return [*unpack, mix, *forget, Record(MEMBER, around.node, X), *self.begin()]
