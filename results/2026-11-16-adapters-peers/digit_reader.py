"""A small transformer that reads scikit-learn's digits line by line: what benchmarks of adapters begin with."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

LINES, CLASSES, HEADS = 8, 10, 4


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm; layers have the names that they have in `transformers`."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(wide, wide) for _ in range(4))
        self.up, self.down = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        x = x + self.o_proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class DigitReader(nn.Module):
    """Two blocks of them."""

    def __init__(self, wide: int) -> None:
        """
        - `wide`: numbers for each line of an image.
        """
        super().__init__()
        self.lines, self.places = nn.Linear(LINES, wide), nn.Parameter(0.1 * torch.randn(LINES, wide))
        self.blocks = nn.Sequential(Block(wide), Block(wide))
        self.norm, self.head = nn.LayerNorm(wide), nn.Linear(wide, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.blocks(self.lines(images) + self.places)).mean(1))
        return out


def digits() -> tuple[Tensor, Tensor]:
    """All images, with numbers from 0 to 1, and what they show."""
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels / 16, dtype=torch.float32).view(-1, LINES, LINES), torch.tensor(labels)


def learned_reader(wide: int, seed: int, steps: int, held_out: int = 0) -> DigitReader:
    """One that has learned images as they are.

    - `wide`: numbers for each line of an image.
    - `seed`: of its first weights and its batches.
    - `steps`: of 64 images.
    - `held_out`: images at the end that it does not see.
    """
    torch.manual_seed(seed)
    model, (images, labels) = DigitReader(wide), digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        batch = torch.randint(0, len(images) - held_out, (64,))
        optimizer.zero_grad()
        functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    return model
