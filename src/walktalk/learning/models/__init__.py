"""Architectures that tasks use, one a file."""

from walktalk.learning.models.batch_softmax_conv import BatchSoftmaxConv
from walktalk.learning.models.evonorm import EvoNorm, evo_norm
from walktalk.learning.models.lora_linear import LoraLinear, Mixing, features_of
from walktalk.learning.models.resnet20 import PaddedShortcut, resnet20
from walktalk.learning.models.small_conv import small_conv
from walktalk.learning.models.vgg11 import vgg11

__all__ = [
    "BatchSoftmaxConv",
    "EvoNorm",
    "LoraLinear",
    "Mixing",
    "PaddedShortcut",
    "evo_norm",
    "features_of",
    "resnet20",
    "small_conv",
    "vgg11",
]
