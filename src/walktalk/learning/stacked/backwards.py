"""Gradients by torch's engine itself: what `torch.autograd.grad` checks before takes a tenth of a small model's step.

`run_backward` is torch's own and no promise of theirs, but the same since 1.8. Where a torch no longer has it so, as a
first try of it shows, `torch.autograd.grad` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

Found: TypeAlias = tuple[Tensor | None, ...]


def gradients_of_loss(loss: Tensor, wanted: Sequence[Tensor]) -> Found:
    """Of a loss, one number, by these leaves, in their order; None for those that have no say in it."""
    if loss.numel() == 1 and is_known():
        return by_engine(loss, wanted)
    return torch.autograd.grad(loss, wanted, allow_unused=True)


def by_engine(loss: Tensor, wanted: Sequence[Tensor]) -> Found:
    engine: Any = torch.autograd.Variable._execution_engine
    found: Found = engine.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        False,  # the graph is not kept,
        False,  # and there is none of the gradients
        tuple(wanted),
        True,  # some may have no say
        accumulate_grad=False,
    )
    return found


@cache
def is_known() -> bool:
    """Whether this torch's engine is called like this."""
    with torch.inference_mode(False), torch.enable_grad():
        x, y, unused = (torch.full((2,), number, requires_grad=True) for number in (2.0, 3.0, 5.0))
        try:
            found = by_engine((x * x * y).sum(), [y, unused, x])
        except (AttributeError, TypeError, RuntimeError):
            return False
    numbers = [None if gradient is None else gradient.tolist() for gradient in found]
    return numbers == [[4.0, 4.0], None, [12.0, 12.0]] and x.grad is None
