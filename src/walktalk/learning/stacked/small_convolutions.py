"""Convolutions of few and small images, on a CPU, by torch's own kernel in place of oneDNN's.

oneDNN sets up every call anew: forward and backward pass of a layer take it 80 µs without any arithmetic, 110 where
inputs need a gradient. torch's kernel unfolds image by image, with their channels first, and begins at 25. With up to
2¹⁹ multiplications a batch it takes a third to three quarters of oneDNN's time in all layers that were measured, from
twice as many on it is slower in some (results/2026-11-18-executor-cpu-3). So the size of layers and batch decides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

FEW = 2**19  # multiplications of a layer's forward pass for a batch
_by_torch: Callable[..., Tensor] = torch._C._nn.thnn_conv2d  # type: ignore[attr-defined]


class SmallConv2d(nn.Conv2d):
    """A `Conv2d` that takes the way of small ones where images have their channels first, and oneDNN's elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        if not has_channels_first(x) or multiplications(self, x) > FEW:
            return super().forward(x)
        return _by_torch(x, self.weight, self.kernel_size, self.bias, self.stride, self.padding)


def has_channels_first(x: Tensor) -> bool:
    """Whether these are images in float32 on a CPU, channels first also where there is one channel."""
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and x.dim() == 4 and x.stride(1) != 1


def multiplications(layer: nn.Conv2d, x: Tensor) -> int:
    """Of a layer's forward pass for images x [B, channels, high, wide]."""
    samples, _, high, wide = x.shape
    (kernel_high, kernel_wide), (down, right), padding = layer.kernel_size, layer.stride, layer.padding
    assert not isinstance(padding, str), "`is_plain` says so"
    out_high = (high + 2 * padding[0] - kernel_high) // down + 1
    out_wide = (wide + 2 * padding[1] - kernel_wide) // right + 1
    return samples * layer.weight.numel() * out_high * out_wide


def is_plain(layer: nn.Module) -> bool:
    """Whether torch's kernel knows this convolution."""
    if type(layer) not in (nn.Conv2d, SmallConv2d):
        return False
    assert isinstance(layer, nn.Conv2d)
    padded = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return padded and layer.groups == 1 and layer.dilation == (1, 1)


def convolve_small_ones(module: nn.Module, inputs: Tensor) -> int:
    """Let the convolutions of a module take the way of small ones, where their images are given channels first.

    Returns up to how many samples all of them are small; 0 if one is not, or none is there.

    Args:
        module: Nobody else's.
        inputs: Samples [B, …] of its data; one is tried.
    """
    layers = [part for part in module.modules() if isinstance(part, nn.modules.conv._ConvNd)]
    if not layers or not all(is_plain(layer) and layer.weight.numel() <= FEW for layer in layers):
        return 0
    most = max(of_one_sample(module, inputs[:1]), default=0)
    if not 0 < most <= FEW:
        return 0
    for layer in layers:
        layer.__class__ = SmallConv2d
    return FEW // most


def of_one_sample(module: nn.Module, inputs: Tensor) -> list[int]:
    """Multiplications of each call of a convolution, for one sample."""
    found = list[int]()

    def note(layer: nn.Conv2d, x: Tensor, out: Tensor) -> None:
        found.append(multiplications(layer, x if x.dim() == 4 else x.unsqueeze(0)) // len(inputs))

    at_each_convolution(module, inputs, note)
    return found


def at_each_convolution(module: nn.Module, inputs: Tensor, note: Callable[[nn.Conv2d, Tensor, Tensor], None]) -> None:
    """Pass these through a copy of the module, and note what goes into each call of a convolution, and out of it."""
    probe = copy.deepcopy(module).eval()
    for part in probe.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda layer, given, out: note(layer, given[0], out))
    with torch.no_grad():
        probe(inputs)
