"""Convolutional models whose weights outnumber what they put out, on a CPU: images are given channels first.

With channels last oneDNN's passes over images are faster, but weights and their gradients, which lie in rows channels
first, have to be turned in every step. Which counts for more was measured with VGG-11 at a quarter, half, three
quarters and all of its channels, batches of 4 to 64 (results/2026-11-18-executor-cpu-3): the wider it is, the less
images gain. The rule takes the faster way in all of them but where both are within 3 %.
"""

from __future__ import annotations

from torch import Tensor, nn

from walktalk.learning.stacked.small_convolutions import at_each_convolution

WEIGHTS_TO_OUTPUTS = 3000.0  # where weights^1.5 is so many times the outputs of a batch, both ways take as long


def heavy_up_to(module: nn.Module, inputs: Tensor) -> int:
    """Up to how many samples in a batch images are better given channels first; 0: never.

    Args:
        module: With convolutions.
        inputs: Samples [B, …] of its data; one is tried.
    """
    weights = sum(part.weight.numel() for part in module.modules() if isinstance(part, nn.Conv2d))
    outputs = outputs_of_one_sample(module, inputs[:1])
    return int(weights**1.5 / (WEIGHTS_TO_OUTPUTS * outputs)) if outputs else 0


def outputs_of_one_sample(module: nn.Module, inputs: Tensor) -> int:
    """How many numbers the convolutions put out for one sample, all of them together."""
    found = list[int]()
    at_each_convolution(module, inputs, lambda layer, x, out: found.append(out.numel()))
    return sum(found)
