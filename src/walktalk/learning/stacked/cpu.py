"""Cases in which a CPU is better served otherwise than by torch's own way: products, convolutions.

What each brings, as `benchmarks/cpu_cases.py` measured it: how many times as long a training takes without it, in CPU
seconds by turns in one process. 2026-11-19, two cores of an AMD EPYC (family 26, AVX-512), torch 2.13, one thread, SGD
with momentum, five local steps, 2 s each (norms and attention 5 to 7 s); the machine had a load of 5, so that a few per
cent are noise.

| case | model, samples in a batch, rows at once | without over with |
| --- | --- | --- |
| products by numpy¹ | logistic regression, 32, 20 | 1.78 |
| | perceptron, 32 and 8, 20 | 1.51 and 1.50 |
| | small vision transformer, 32, 4 | 1.44 |
| channels last | LeNet-5 and ResNet-20, 32, 1 | 1.10 and 1.16 |
| | GN-LeNet and ResNet-20 with group norm, 32, 1 | 1.59 and 0.98 |
| small convolutions | small CNN and LeNet-5, 2, 1 | 2.09 and 1.47 |
| heavy convolutions | VGG-11, 4 and 32, 1 | 1.45 and 1.00 |
| norms in the next product¹ (`products.FoldedLinear`) | small vision transformer, 32, 4 and 8, 1 | 1.01 and 0.96² |
| attention step by step¹ (`attention.FEW_TOKENS`) | the same where it cannot be compiled | 1.12 and 0.98 |
| `MKL_CBWR` (`core/cpu.py`, for equal bits) | 20 products of [32, 64] and [64, 64] | 1.02 |
| `ONEDNN_MAX_CPU_ISA` (`core/cpu.py`, AMX) | training in 16 bits on some virtual machines | it crashes without |

¹ With `OPENBLAS_CORETYPE=SkylakeX`: by itself numpy's OpenBLAS took this CPU for a Haswell, and numpy is not used then.
² It brings nothing here; without it the last bits of such models' runs would be others.

Other cases live with what they are for. Numbers are from when they were made, 2026-11-15 to 18, on machines that others
used; no script of them was kept:

| case | where | without and with |
| --- | --- | --- |
| what a step frees stays with the process | `arithmetic.keep_freed_memory` | ResNet-20: 131.5 and 123.0 ms a step |
| rows of large models are laid out once | `training/forms.py` | language model, Adam: 2.03 and 1.12 s a step |
| biases added behind the product | `products.BatchedLinear` | the same in two thirds of the time |
| dropout's masks by numpy | `tensors.filled_with_masks` | the same in half of the time |
| RNN and GRU, backward passes written out | `recurrent.py` | GRU alone: 0.70 and 1.42 times a plain loop |
| batches and seeds drawn by numpy | `samples.py` | 20 rows: 81 and 30 µs |
| seeds without `torch.manual_seed` | `samples.seeded` | 82 and 2.7 µs a step |

A group norm for channels that come last was one of them, and brought nothing: 0.95 and 0.94 (GN-LeNet, ResNet-20) at a
load of 12, 0.89 and 0.92 on a core of its own of an Intel Xeon.

The case of numpy's products: on AMD's CPUs with AVX-512 MKL, which torch has, multiplies with half of the registers'
width. OpenBLAS, which numpy's own builds have, uses all of it: 240 Gflop/s on a thread of an AMD EPYC with Zen 5, where
MKL has 115, and where matrices are small, three times MKL's rate. numpy multiplies matrix by matrix, so that a model
has the same bits alone and in any wave. Which of the two it is follows from the CPU and from numpy's library, never
from a clock.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.cpu import cpu_says

AMD = "AuthenticAMD"
WIDE = ("SkylakeX", "Cooperlake", "SapphireRapids")  # OpenBLAS's kernels for AVX-512; with others MKL is as fast


@cache
def libraries() -> list[Any]:
    """The OpenBLAS that numpy multiplies with, if it does; and scipy's, should that be there, too."""
    from threadpoolctl import ThreadpoolController

    told: Any = np.show_config(mode="dicts")
    if "openblas" not in told["Build Dependencies"]["blas"]["name"]:
        return []
    return [one for one in ThreadpoolController().lib_controllers if one.internal_api == "openblas"]


@cache
def numpy_is_faster() -> bool:
    """Whether numpy's library is faster than torch's on this machine."""
    if cpu_says("vendor_id") != AMD or not libraries():
        return False
    return all(library.architecture in WIDE for library in libraries())


def numpy_multiplies(like: Tensor | None = None) -> bool:
    """Whether numpy is to multiply now: with one thread, as small models are trained; of numbers like these."""
    fits = like is None or (like.device.type == "cpu" and like.dtype == torch.float32)
    return fits and numpy_is_faster() and torch.get_num_threads() == 1


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """a b of matrices [W, …]."""
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy()))


class _Inside:
    """How many trainings go on, and how many threads the libraries had before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.trainings = 0
        self.before: list[int] = []


_inside = _Inside()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, numpy multiplies with one thread, where it is taken: torch's threads are not its own.

    It also keeps to itself what torch would: that numbers overflow. Who watches a run says so, and what to do.
    """
    if not numpy_multiplies():
        yield
        return
    with _inside.lock:
        if _inside.trainings == 0:
            _inside.before = [library.get_num_threads() for library in libraries()]
            set_threads([1] * len(_inside.before), _inside.before)
        _inside.trainings += 1
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        with _inside.lock:
            _inside.trainings -= 1
            if _inside.trainings == 0:
                set_threads(_inside.before, [1] * len(_inside.before))


def set_threads(wanted: list[int], present: list[int]) -> None:
    for library, count, now in zip(libraries(), wanted, present, strict=True):
        if count != now:
            library.set_num_threads(count)


# Convolutions of few and small images, on a CPU, by torch's own kernel in place of oneDNN's.
#
# oneDNN sets up every call anew: forward and backward pass of a layer take it 80 µs without any arithmetic, 110 where
# inputs need a gradient. torch's kernel unfolds image by image, with their channels first, and begins at 25. With up to
# 2¹⁹ multiplications a batch it takes a third to three quarters of oneDNN's time in all layers that were measured, from
# twice as many on it is slower in some (results/2026-11-18-executor-cpu). So the size of layers and batch decides.

FEW_MULTIPLICATIONS = 2**19  # multiplications of a layer's forward pass for a batch
convolve_by_torch: Callable[..., Tensor] = torch._C._nn.thnn_conv2d  # type: ignore[attr-defined]


class SmallConv2d(nn.Conv2d):
    """A `Conv2d` that takes the way of small ones where images have their channels first, and oneDNN's elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        if not has_channels_first(x) or multiplications(self, x) > FEW_MULTIPLICATIONS:
            return super().forward(x)
        return convolve_by_torch(x, self.weight, self.kernel_size, self.bias, self.stride, self.padding)


def has_channels_first(x: Tensor) -> bool:
    """Whether these are images in float32 on a CPU, channels first also where there is one channel."""
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and x.dim() == 4 and x.stride(1) != 1


def multiplications(layer: nn.Conv2d, x: Tensor) -> int:
    """Counts those of a layer's forward pass for images x [B, channels, high, wide]."""
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
    if not layers or not all(is_plain(layer) and layer.weight.numel() <= FEW_MULTIPLICATIONS for layer in layers):
        return 0
    most = max(of_one_sample(module, inputs[:1]), default=0)
    if not 0 < most <= FEW_MULTIPLICATIONS:
        return 0
    for layer in layers:
        layer.__class__ = SmallConv2d
    return FEW_MULTIPLICATIONS // most


def of_one_sample(module: nn.Module, inputs: Tensor) -> list[int]:
    """Multiplications of each call of a convolution, for one sample."""
    found = list[int]()

    def count(layer: nn.Conv2d, x: Tensor, out: Tensor) -> None:
        found.append(multiplications(layer, x if x.dim() == 4 else x.unsqueeze(0)) // len(inputs))

    at_each_convolution(module, inputs, count)
    return found


def at_each_convolution(module: nn.Module, inputs: Tensor, note: Callable[[nn.Conv2d, Tensor, Tensor], None]) -> None:
    """Pass these through a copy of the module, and note what goes into each call of a convolution, and out of it."""
    probe = copy.deepcopy(module).eval()
    for part in probe.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda layer, given, out: note(layer, given[0], out))
    with torch.no_grad():
        probe(inputs)


# Convolutional models whose weights outnumber what they put out, on a CPU: images are given channels first.
#
# With channels last oneDNN's passes over images are faster, but weights and their gradients, which lie in rows channels
# first, have to be turned in every step. Which counts for more was measured with VGG-11 at a quarter, half, three
# quarters and all of its channels, batches of 4 to 64 (results/2026-11-18-executor-cpu): the wider it is, the less
# images gain. The rule takes the faster way in all of them but where both are within 3 %.

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


# The order in which images are given to convolutions.


@dataclass
class ImageOrder:
    """Whether a CPU is given the channels of images last, or first where that is faster, by the size of a batch."""

    small_up_to: int = 0  # samples up to which oneDNN is not worth it (`SmallConv2d`): first
    heavy_up_to: int = 0  # samples up to which weights count for more than images (`heavy_up_to`): first

    def ordered(self, inputs: Tensor, in_16_bits: bool) -> Tensor:
        """Inputs in that order; what is no batch of images, or on another device, as it is."""
        if inputs.is_cuda or inputs.dim() != 4 or len(inputs) <= self.heavy_up_to:
            return inputs
        if len(inputs) <= self.small_up_to and not in_16_bits:
            return inputs
        if inputs.shape[1] == 1:  # the same memory in either order; torch has to be told which one is meant
            high, wide = inputs.shape[2:]
            return inputs.contiguous().as_strided(inputs.shape, (high * wide, 1, wide, 1))
        return inputs.contiguous(memory_format=torch.channels_last)


def prepared_for_images(module: nn.Module, inputs: Tensor) -> ImageOrder:
    """Prepares a convolutional module, which must be nobody else's, for a CPU, and says how it is given images."""
    return ImageOrder(convolve_small_ones(module, inputs), heavy_up_to(module, inputs))
