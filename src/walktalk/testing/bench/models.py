"""The models of `walktalk bench executor --model NAME`: what people train, written as they write it.

Each comes with noise in the shape of its data: the arithmetic is the same, and nothing has to be there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning import Task, lora, models, tasks

NODES, CLASSES = 20, 10
VOCABULARY, TOKENS = 1_000, 32


class PreNormBlock(nn.Module):
    """Attention and a perceptron, each behind a layer norm and with a shortcut around it."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class VisionTransformer(nn.Module):
    """Patches as tokens, a learned place for each, the mean of them as the answer."""

    def __init__(self, side: int, channels: int, patch: int, wide: int, blocks: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, wide, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, wide))
        self.blocks = nn.Sequential(*[PreNormBlock(wide, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(wide), nn.Linear(wide, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        out: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return out


class TextTransformer(nn.Module):
    """torch's own encoder, dropout included, behind an embedding."""

    def __init__(self, wide: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, wide)
        layer = nn.TransformerEncoderLayer(wide, heads, 2 * wide, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(wide, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.words(tokens)).mean(1))
        return out


class Recurrent(nn.Module):
    """An embedding, a recurrent layer, and its last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], wide: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 32)
        self.inner = kind(32, wide, batch_first=True)
        self.head = nn.Linear(wide, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.inner(self.words(tokens))
        out: Tensor = self.head(states[:, -1])
        return out


class CausalBlock(nn.Module):
    """A block of a language model, its layers named as such models have them."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(wide, wide) for _ in range(4))
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (
            f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(functional.silu(self.up(self.norm2(x))))
        return out


class CausalTransformer(nn.Module):
    """What adapters are put into: the answer is at the last token."""

    def __init__(self, wide: int = 256, heads: int = 4, blocks: int = 6) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(VOCABULARY, wide), nn.Linear(wide, CLASSES)
        self.blocks = nn.Sequential(*[CausalBlock(wide, heads) for _ in range(blocks)])

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.words(tokens))[:, -1])
        return out


def lenet5() -> nn.Module:
    """LeNet-5 of LeCun et al. (1998), with ReLU and max pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    )


def small_cnn() -> nn.Module:
    """About the smallest that anybody trains; a step of it is mostly what is beside its arithmetic."""
    layers: list[nn.Module] = []
    for entering, leaving in ((1, 8), (8, 16)):
        layers += [nn.Conv2d(entering, leaving, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, CLASSES))


def gn_lenet() -> nn.Module:
    """LeNet with group norm, as papers on decentralized learning have it (Hsieh et al. 2020)."""
    layers: list[nn.Module] = []
    for entering, leaving in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(entering, leaving, 5, padding=2), nn.MaxPool2d(2), nn.GroupNorm(2, leaving), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, CLASSES))


def vgg11_with_norm() -> nn.Module:
    """Simonyan and Zisserman (2015) for 32×32 images, with batch norm and one linear layer: 9.2 million parameters."""
    layers: list[nn.Module] = []
    entering = 3
    for leaving, pooled in ((64, 1), (128, 1), (256, 0), (256, 1), (512, 0), (512, 1), (512, 0), (512, 1)):
        layers += [nn.Conv2d(entering, leaving, 3, padding=1), nn.BatchNorm2d(leaving), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * pooled
        entering = leaving
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))


@dataclass(frozen=True)
class BenchModel:
    """A model that the executor benchmark trains, and its random data."""

    title: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of a sample; () for a text of TOKENS words

    def task(self, samples: int = 2_000) -> Task:
        generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.make()
        if self.shape:
            inputs = torch.randn(samples, *self.shape, generator=generator)
        else:
            inputs = torch.randint(0, VOCABULARY, (samples, TOKENS), generator=generator)
        targets = torch.randint(0, CLASSES, (samples,), generator=generator)
        parts = np.array_split(np.arange(samples), NODES)
        return Task(self.title, model, functional.cross_entropy, inputs, targets, parts)


@dataclass(frozen=True)
class ResNet20:
    """ResNet-20 with crops and flips, as the paper's figures train it."""

    title: str
    norm: Literal["batch", "group", "evonorm"]

    def task(self, samples: int = 2_000) -> Task:
        return tasks.random_images(NODES, samples, norm=self.norm)


PICTURE = (3, 32, 32)
MODELS: dict[str, BenchModel | ResNet20] = {
    "logistic": BenchModel("logistic regression, 784-10", lambda: nn.Linear(784, CLASSES), (784,)),
    "perceptron": BenchModel(
        "perceptron, 3072-512-10",
        lambda: nn.Sequential(nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, CLASSES)),
        (3072,),
    ),
    "small-cnn": BenchModel("small CNN with dropout (8 and 16 channels, 8×8 pixels)", small_cnn, (1, 8, 8)),
    "lenet5": BenchModel("LeNet-5", lenet5, (1, 28, 28)),
    "gn-lenet": BenchModel("GN-LeNet", gn_lenet, PICTURE),
    "tiny-vit": BenchModel(
        "tiny ViT (32 wide, 2 blocks, 16 tokens)", lambda: VisionTransformer(8, 1, 2, 32, 2, 4), (1, 8, 8)
    ),
    "vit": BenchModel(
        "small ViT (96 wide, 4 blocks, 64 tokens)", lambda: VisionTransformer(32, 3, 4, 96, 4, 4), PICTURE
    ),
    "text": BenchModel("text transformer (64 wide, 2 layers, 32 tokens, dropout)", TextTransformer, ()),
    "adapter": BenchModel(
        "rank-16 adapters in a frozen transformer (256 wide, 6 blocks, 32 tokens)",
        lambda: lora(CausalTransformer(), 16, also="head"),
        (),
    ),
    "lstm": BenchModel("LSTM (64 wide, 32 tokens)", lambda: Recurrent(nn.LSTM), ()),
    "gru": BenchModel("GRU (64 wide, 32 tokens)", lambda: Recurrent(nn.GRU), ()),
    "resnet20": ResNet20("ResNet-20 with batch norm, augmented", "batch"),
    "resnet20-gn": ResNet20("ResNet-20 with group norm, augmented", "group"),
    "resnet20-evonorm": ResNet20("ResNet-20 with EvoNorm, augmented", "evonorm"),
    "vgg11": BenchModel("VGG-11 with batch norm", vgg11_with_norm, PICTURE),
    "vgg11-plain": BenchModel("VGG-11 without norm, with dropout", models.vgg11, PICTURE),
}
