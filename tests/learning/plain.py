"""The reference: one model after the other, in a plain PyTorch loop. Shares nothing with the stacked code."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (1, 3, 17)


def close(a: Tensor, b: Tensor, relative: float) -> None:
    """Equal up to a share of the reference's norm, row by row."""
    error = (a.double() - b.double()).flatten(1).norm(dim=1) / (b.double().flatten(1).norm(dim=1) + 1e-12)
    assert error.max() <= relative, f"relative error {float(error.max()):.2e}"


def close_but_for_kinks(a: Tensor, b: Tensor, relative: float) -> None:
    """As `close`, for deep networks of ReLUs: one whose input is within rounding of 0 may fall on either side in any
    row, and moves that row's gradient by a thousandth or so. Most rows have none.
    """
    error = (a.double() - b.double()).flatten(1).norm(dim=1) / (b.double().flatten(1).norm(dim=1) + 1e-12)
    assert error.median() <= relative, f"median relative error {float(error.median()):.2e}"
    assert error.max() <= 0.03, f"relative error {float(error.max()):.2e}"


def margin(module: nn.Module, inputs: Tensor) -> float:
    """How near any ReLU's input is to its kink at 0, in units of its layer's spread; in float64, in training mode."""
    nearest: list[float] = []
    relu = functional.relu

    def watched(x: Tensor, inplace: bool = False) -> Tensor:
        nearest.append(float(x.detach().abs().min() / x.detach().std()))
        return relu(x)

    functional.relu = watched
    try:
        copy.deepcopy(module).double().train()(inputs.double())
    finally:
        functional.relu = relu
    return min(nearest)


def copies(module: nn.Module, count: int, seed: int = 0) -> list[nn.Module]:
    """Models of one architecture with different weights."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        one = copy.deepcopy(module)
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        made.append(one.train())
    return made


def numbers(module: nn.Module) -> Tensor:
    """Parameters, then float buffers, as one row."""
    buffers = [b for b in module.buffers() if b.is_floating_point()]
    return torch.cat([t.detach().reshape(-1).float() for t in (*module.parameters(), *buffers)])


def gradient(module: nn.Module, loss, inputs: Tensor, targets: Tensor) -> Tensor:
    module.zero_grad()
    loss(module(inputs), targets).backward()
    return torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(-1) for p in module.parameters()])


def train(module: nn.Module, optimizer: torch.optim.Optimizer, loss, batches) -> None:
    """One optimizer step a batch. A parameter that a step did not use has gradient zero, and decays like any other."""
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(module(inputs), targets).backward()
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        optimizer.step()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 5))


class Residual(nn.Module):
    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        make = nn.BatchNorm2d if norm == "batch" else (lambda c: nn.GroupNorm(2, c))
        self.first, self.second = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)
        self.one, self.two = make(channels), make(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.one(self.first(x)))
        out = self.two(self.second(out))
        return functional.relu(out + x)


class ConvNet(nn.Module):
    """Convolutions (one of them grouped), normalization, residuals, pools."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.block = Residual(6, norm)
        self.pool = nn.MaxPool2d(2)
        self.wide = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2)
        self.act = nn.GELU()
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.block(self.stem(x)))
        x = self.act(self.wide(x))
        x = functional.adaptive_avg_pool2d(x, 1)
        return self.head(torch.flatten(x, 1))


class Words(nn.Module):
    """Embedding, LayerNorm, a mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.LayerNorm(6)
        self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(self.norm(self.embed(x))))
        return self.head(h.mean(1))


class Weird(nn.Module):
    """Nothing that a table of layers would know: a bilinear form, a sort, a parameter without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.form = nn.Parameter(0.2 * torch.randn(5, 12, 12, generator=torch.Generator().manual_seed(3)))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        ordered = torch.sort(x, dim=-1).values
        return torch.einsum("bi,kij,bj->bk", x, self.form, ordered) / self.temperature.exp()


class Branching(nn.Module):
    """A forward that looks at numbers: neither torch.fx nor vmap can follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(12, 5), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.large(x) if x.sum().item() > 0 else self.small(x)


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes(*shape: int, seed: int = 1, count: int = 5) -> Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))
