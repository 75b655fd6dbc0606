"""What a neighbour sends is judged by its size: nonsense is refused, and what is small at first may grow."""

from __future__ import annotations

import pytest
import torch

from walktalk.runtimes.peers.node.models import HELD, Implausible, Plausibility
from walktalk.runtimes.semantics import Encoded, Packed


def packed(model: torch.Tensor, encoded: bool = False) -> Packed:
    return Packed("slot", Encoded("int8", model, None) if encoded else model, None, 4 * len(model))


@pytest.mark.parametrize("encoded", [False, True])
def test_differences_that_begin_with_zeros_may_grow(encoded: bool) -> None:
    """Those of a quantized protocol are zeros until somebody has trained."""
    judge = Plausibility(torch.full((10,), 0.1))
    for sender in range(3):
        judge.check(sender, "offer", packed(torch.zeros(10), encoded))
    judge.check(0, "offer", packed(torch.full((10,), 0.5), encoded))
    with pytest.raises(Implausible, match="usual"):
        judge.check(0, "offer", packed(torch.full((10,), 1e4), encoded))
    with pytest.raises(Implausible, match="finite"):
        judge.check(0, "offer", packed(torch.full((10,), float("nan")), encoded))


def test_no_neighbour_fills_the_memory() -> None:
    """What came from one and was not used yet is a few models at most; what was used makes room."""
    judge, slots = Plausibility(torch.ones(3)), [f"in/{number}" for number in range(2 * HELD)]
    for slot in slots[:HELD]:
        judge.check_room(1, slot, slots)
    with pytest.raises(Implausible, match="wait to be used already"):
        judge.check_room(1, slots[HELD], slots)
    judge.check_room(1, slots[0], slots)  # in place of one that waits
    judge.check_room(2, slots[HELD], slots)  # another neighbour has room of its own
    judge.check_room(1, slots[HELD], slots[1:])
