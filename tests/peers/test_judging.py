"""What a neighbour sends is judged by its size: nonsense is refused, and what is small at first may grow."""

from __future__ import annotations

import pytest
import torch

from walktalk.runtimes.meaning import Encoded, Packed
from walktalk.runtimes.peers.judging import Judge, Refused


def packed(model: torch.Tensor, encoded: bool = False) -> Packed:
    return Packed("slot", Encoded("int8", model, None) if encoded else model, None, 4 * len(model))


@pytest.mark.parametrize("encoded", [False, True])
def test_differences_that_begin_with_zeros_may_grow(encoded: bool) -> None:
    """Those of a quantized protocol are zeros until somebody has trained."""
    judge = Judge(torch.full((10,), 0.1))
    for sender in range(3):
        judge.check(sender, "offer", packed(torch.zeros(10), encoded))
    judge.check(0, "offer", packed(torch.full((10,), 0.5), encoded))
    with pytest.raises(Refused, match="usual"):
        judge.check(0, "offer", packed(torch.full((10,), 1e4), encoded))
    with pytest.raises(Refused, match="finite"):
        judge.check(0, "offer", packed(torch.full((10,), float("nan")), encoded))
