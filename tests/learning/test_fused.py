"""Kernels of our own for stacked convolutional models: where they fit, and that they give what torch gives.

The numbers need Triton: on a GPU (`make test-gpu`), or, in its interpreter, on any machine where it is installed, with
TRITON_INTERPRET=1.
"""

import importlib.util
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.learning import Arithmetic, Extras, OptimizerSpec, Task, Trainer, TrainingRows, tasks
from walktalk.learning import kernels as fused
from walktalk.learning.models import resnet20, vgg11
from walktalk.learning.models.convolutional import Block, Convolution, normalization
from walktalk.learning.optimizers import Chosen
from walktalk.learning.stacked import TracedModel, use
from walktalk.learning.stacked.choice import gradients_of
from walktalk.learning.stacked.fused import ConvUnit, ResidualRecipe
from walktalk.learning.training.forms import InPlaceTraining
from walktalk.testing.bench.models import TextTransformer, VisionTransformer
from walktalk.transforms.codecs import Part

from . import plain

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def traced(module: nn.Module) -> TracedModel:
    return TracedModel(module, functional.cross_entropy)


def kinds(model: TracedModel) -> list[type]:
    return [type(recipe) for recipe in model.traced.plan.recipes.values()]


def test_a_resnet_is_one_unit_and_nine_blocks():
    assert sorted(k.__name__ for k in kinds(traced(resnet20()))) == ["ConvUnit"] + ["ResidualRecipe"] * 9


def test_with_group_norm_too():
    assert sorted(k.__name__ for k in kinds(traced(resnet20(norm="group")))) == ["ConvUnit"] + ["ResidualRecipe"] * 9


def test_with_evonorm_too():
    found = sorted(k.__name__ for k in kinds(traced(resnet20(norm="evonorm"))))
    assert found == ["BlockEndRecipe"] * 9 + ["EvoNormRecipe"] * 10


def small_resnet(norm) -> nn.Module:
    """The first layer and two blocks, the second with half as many pixels and twice as many channels."""
    first = Convolution(3, 16, 3, padding=1, bias=False), normalization(norm, 16, 4)
    relu = [] if norm == "evonorm" else [nn.ReLU()]
    blocks = Block(16, 16, 1, norm, 4), Block(16, 32, 2, norm, 4)
    return nn.Sequential(*first, *relu, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def test_one_norm_of_each_kind_is_no_block():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
            self.batch, self.group, self.out = nn.BatchNorm2d(16), nn.GroupNorm(4, 16), nn.Linear(16, 10)

        def forward(self, x):
            x = functional.relu(self.group(self.two(functional.relu(self.batch(self.one(x))))) + x)
            return self.out(x.mean((2, 3)))

    assert kinds(traced(Mixed())) == [ConvUnit]


def sequential(conv: nn.Module, norm: nn.Module) -> nn.Module:
    return nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 16, 7, padding=3, bias=False),
        nn.Conv2d(3, 16, 5, 2, padding=2, bias=False),
        nn.Conv2d(3, 16, 3, padding=0, bias=False),
        nn.Conv2d(3, 16, 3, 3, padding=1, bias=False),
        nn.Conv2d(3, 16, 3, padding=1, bias=False, padding_mode="circular"),
    ],
)
def test_other_convolutions_have_none(conv):
    assert kinds(traced(sequential(conv, nn.BatchNorm2d(16)))) == []


@pytest.mark.parametrize("side", [3, 5])
def test_a_plain_convolution_is_a_unit(side):
    conv = nn.Conv2d(3, 16, side, padding=side // 2, bias=False)
    assert kinds(traced(sequential(conv, nn.BatchNorm2d(16)))) == [ConvUnit]


def gn_lenet(channels: int = 16, side: int = 16) -> nn.Module:
    """Two layers of GN-LeNet: maxima between a convolution and its norm."""
    layers: list[nn.Module] = []
    for entering, leaving in ((3, channels), (channels, channels)):
        layers += [nn.Conv2d(entering, leaving, 5, padding=2), nn.MaxPool2d(2), nn.GroupNorm(2, leaving), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (side // 4) ** 2, 10))


def test_maxima_before_a_group_norm_are_in_its_unit():
    recipes = traced(gn_lenet()).traced.plan.recipes.values()
    assert [(one.groups, one.has_bias, one.pooled) for one in recipes] == [(2, True, True)] * 2


def test_maxima_before_a_batch_norm_are_left_to_torch():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)
    )
    assert kinds(traced(model)) == []


def small_vgg(norm: bool) -> nn.Module:
    """Few and many channels, with and without 2×2 maxima behind them, biases everywhere."""
    layers: list[nn.Module] = []
    entering = 3
    for leaving, is_pooled in ((64, True), (128, True), (128, False), (64, True)):
        layers += [nn.Conv2d(entering, leaving, 3, padding=1), *([nn.BatchNorm2d(leaving)] if norm else []), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if is_pooled else []
        entering = leaving
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 64, 10))


@pytest.mark.parametrize("norm", [False, True])
def test_many_channels_a_bias_and_a_pool_are_units(norm):
    recipes = list(traced(small_vgg(norm)).traced.plan.recipes.values())
    assert [(bool(one.norm), one.has_bias, one.pooled) for one in recipes] == [
        (norm, True, is_pooled) for is_pooled in (True, True, False, True)
    ]


def test_all_of_vgg11_is_fused():
    assert kinds(traced(vgg11())) == [ConvUnit] * 8


@pytest.mark.parametrize("pool", [nn.MaxPool2d(3), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, ceil_mode=True)])
def test_other_pools_are_left_to_torch(pool):
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(10))
    model(torch.zeros(1, 3, 16, 16))
    assert [one.pooled for one in traced(model).traced.plan.recipes.values()] == [False]


def test_many_channels_make_no_residual_block():
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(128, 128, 3, padding=1, bias=False) for _ in range(2))
            self.first, self.second, self.out = nn.BatchNorm2d(128), nn.BatchNorm2d(128), nn.Linear(128, 10)

        def forward(self, x):
            x = functional.relu(self.second(self.two(functional.relu(self.first(self.one(x))))) + x)
            return self.out(x.mean((2, 3)))

    assert kinds(traced(Wide())) == [ConvUnit]


class LookedAt(nn.Module):
    """The convolution's output is used twice, so nothing may swallow it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        inside = self.conv(x)
        return self.out((functional.relu(self.norm(inside)) + inside).mean((2, 3)))


def test_what_is_used_elsewhere_is_not_swallowed():
    assert kinds(traced(LookedAt())) == []


def test_a_block_keeps_apart_from_a_shortcut_to_elsewhere():
    """A shortcut that starts before the block is added by torch; the two units are still fused."""

    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.one, self.two = (
                nn.Sequential(nn.Conv2d(c, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)) for c in (3, 16, 16)
            )
            self.out = nn.Linear(16, 10)

        def forward(self, x):
            start = self.stem(x)  # before its ReLU
            inner = functional.relu(self.one(functional.relu(start)))
            return self.out(functional.relu(self.two(inner) + start).mean((2, 3)))

    assert ResidualRecipe not in kinds(traced(Long()))


class Mixer(nn.Module):
    """Three linear layers around a causal attention, a norm in front of it and one behind it."""

    def __init__(self, wide: int = 24, heads: int = 2) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.q, self.k, self.v, self.head = (nn.Linear(wide, n) for n in (wide, wide, wide, 10))
        self.patches, self.heads = nn.Conv2d(3, wide, 4, 4), heads

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.before(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.behind(x + mixed.transpose(1, 2).flatten(2))
        return self.head(x[:, 0] + x.mean(1))


def test_layer_norms_are_known_and_where_their_results_go():
    recipes = traced(Mixer()).traced.plan.recipes.values()
    assert [(one.name, one.for_products) for one in recipes] == [("before", True), ("behind", False)]


@pytest.mark.parametrize("norm", [nn.LayerNorm(24, elementwise_affine=False), nn.LayerNorm((1, 24))])
def test_other_layer_norms_are_left_to_torch(norm):
    assert kinds(traced(nn.Sequential(nn.Flatten(), nn.Linear(768, 24), norm, nn.Linear(24, 10)))) == []


def two_rows(model: TracedModel, device: str) -> torch.Tensor:
    rows = torch.stack([model.layout.row(model.module)] * 2).to(device)
    rows[1, : model.layout.parameter_width] *= 1.05
    return rows


MODELS = {
    "batch": lambda: small_resnet("batch"),
    "group": lambda: small_resnet("group"),
    "vgg": lambda: small_vgg(False),
    "vgg-norm": lambda: small_vgg(True),
    "gn-lenet": gn_lenet,
    "five": lambda: sequential(nn.Conv2d(3, 16, 5, padding=2), nn.BatchNorm2d(16)),
    "evonorm": lambda: small_resnet("evonorm"),
    "untracked": lambda: sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16, track_running_stats=False)),
    "vit": lambda: VisionTransformer(16, 3, 4, 24, 1, 2),
    "mixer": Mixer,
    "group-bias": lambda: sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)),
}


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter: TRITON_INTERPRET=1")
@pytest.mark.parametrize("name", MODELS)
def test_in_full_precision_they_are_torchs(name):
    torch.manual_seed(0)
    model = traced(MODELS[name]())
    rows, x, y = (
        two_rows(model, "cpu"),
        plain.images(4, 3, 16, 16).view(2, 2, 3, 16, 16),
        torch.tensor([[1, 2], [3, 4]]),
    )
    expected = gradients_of(model, rows, x, y).clone()
    model.fused = torch.float32
    assert torch.allclose(gradients_of(model, rows, x, y), expected, rtol=1e-4, atol=1e-5 * float(expected.norm()))
    fused = model.outputs(rows, x[0])
    model.fused = None
    assert torch.allclose(fused, model.outputs(rows, x[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_they_are_as_near_as_torchs_16_bits():
    task = tasks.random_images(2, 256)
    trainer = Trainer(task, device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16  # `use` compared it with torch's own
    use(trainer.model, Arithmetic("bf16", fused=False), trainer.data.inputs, trainer.data.targets)
    assert trainer.model.fused is None


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("width", [2, 7, 33])
def test_a_row_is_the_same_again_and_alone(width):
    task = tasks.random_images(2, 256)
    optimizer = OptimizerSpec("sgd", 0.05, 0.9, True, 1e-4)
    trainer = Trainer(task, optimizer=optimizer, device="cuda", arithmetic=Arithmetic("bf16"))
    rows = torch.stack([trainer.initial_row(k) for k in range(width)])
    keys = torch.arange(width, device="cuda")
    lr = torch.full((width,), 0.05, device="cuda")
    first, again = (trainer.train(TrainingRows(rows, keys % 2, keys, lr))[0] for _ in range(2))
    assert torch.equal(first, again)
    assert bool(torch.isfinite(first).all())
    alone = trainer.train(TrainingRows(rows[:1], keys[:1] % 2, keys[:1], lr[:1]))[0]
    # The kernels' sums do not depend on the width; the last layer's product, which is torch's, may.
    assert float((alone - first[:1]).norm()) <= 1e-3 * float((first[:1] - rows[:1]).norm())


@pytest.mark.gpu
@needs_gpu
def test_sgd_in_one_pass_is_torchs():
    from walktalk.learning.optimizers import Spread, row_optimizer

    torch.manual_seed(0)
    spread = Spread(3, (5, 300))
    length = spread.length  # a little more than the 915 numbers
    for spec in (
        OptimizerSpec("sgd", 0.1),
        OptimizerSpec("sgd", 0.1, 0.9, False, 1e-3),
        OptimizerSpec("sgd", 0.1, 0.9, True),
    ):
        results = []
        for device in ("cpu", "cuda"):
            generator = torch.Generator().manual_seed(1)
            weights = torch.randn(length, generator=generator).to(device)
            optimizer = row_optimizer(spec)
            wave = optimizer.begin(
                torch.tensor([0.1, 0.2, 0.3], device=device),
                torch.zeros(3, optimizer.state_width(305), device=device),
                spread,
            )
            for _ in range(3):
                wave.step(weights, torch.randn(length, generator=generator).to(device))
            results.append((weights.cpu(), wave.state().cpu()))
        assert torch.allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
        assert torch.allclose(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


def large_task(nodes: int = 2, samples: int = 128) -> Task:
    """Noise for VGG-11."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = vgg11()
    inputs = torch.randn(samples, 3, 32, 32, generator=generator)
    targets = torch.randint(0, 10, (samples,), generator=generator)
    return Task("noise", model, functional.cross_entropy, inputs, targets, np.array_split(np.arange(samples), nodes))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("norm", [False, True])
def test_many_channels_are_as_near_as_torchs_16_bits(norm):
    task = large_task()
    if norm:
        task = replace(task, model=small_vgg(True), inputs=task.inputs[..., ::2, ::2].contiguous())
    trainer = Trainer(task, device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16  # `use` compared it with torch's own


@pytest.mark.gpu
@needs_gpu
def test_evonorm_is_as_near_as_torchs_16_bits():
    trainer = Trainer(tasks.random_images(2, 256, norm="evonorm"), device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("make", [lambda: VisionTransformer(32, 3, 4, 96, 2, 4), lambda: Mixer(80, 5)])
def test_transformers_are_as_near_as_torchs_16_bits(make):
    trainer = Trainer(replace(large_task(), model=make()), device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16


@pytest.mark.gpu
@needs_gpu
def test_an_encoder_of_torchs_is_as_near_as_its_16_bits():
    task = replace(large_task(), model=TextTransformer(), inputs=torch.randint(0, 1000, (128, 32)))
    trainer = Trainer(task, device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16


@pytest.mark.gpu
@needs_gpu
def test_five_by_five_is_as_near_as_torchs_16_bits():
    task = replace(large_task(), model=gn_lenet(32, 32))
    trainer = Trainer(task, device="cuda", arithmetic=Arithmetic("bf16"))
    assert trainer.model.fused == torch.bfloat16  # `use` compared it with torch's own


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("momentum", "local_steps"), [(0.0, 1), (0.9, 1), (0.9, 2)])
def test_training_rows_where_they_lie_is_training_copies(momentum, local_steps):
    optimizer = OptimizerSpec("sgd", 0.05, momentum, momentum > 0, 1e-4)
    trainer = Trainer(
        large_task(), optimizer=optimizer, local_steps=local_steps, device="cuda", arithmetic=Arithmetic("bf16")
    )
    width = 5  # is padded to 6
    models = torch.stack([trainer.initial_row(k) for k in range(2 * width)])
    states = torch.randn(2 * width, trainer.state_width, device="cuda") * 1e-3
    keys = torch.arange(width, device="cuda")
    lr = torch.full((width,), 0.05, device="cuda")
    state = states[:width].clone() if momentum else None
    expected, velocity = trainer.train(TrainingRows(models[:width], keys % 2, keys, lr, state))
    columns = [keys, keys + width, keys % 2, keys, lr]
    assert trainer.train_in_place(models, columns, None, (states, keys, keys + width) if momentum else None)
    assert torch.equal(models[width:], expected)
    assert velocity is None or torch.equal(states[width:], velocity)


@pytest.mark.gpu
@needs_gpu
def test_combinations_of_rows_are_sums():
    torch.manual_seed(0)
    data = torch.randn(6, 5000, device="cuda")
    before = data.clone()
    outs, sources = torch.tensor([4, 5], device="cuda"), torch.tensor([0, 1, 2, 3], device="cuda")
    weights, starts = torch.tensor([0.5, 0.25, 0.25, -2.0], device="cuda"), torch.tensor([0, 3], device="cuda")
    fused.combine_rows(data, outs, sources, weights, starts)
    assert torch.allclose(data[4], 0.5 * before[0] + 0.25 * before[1] + 0.25 * before[2], atol=1e-6)
    assert torch.equal(data[5], -2.0 * before[3])
    assert torch.equal(data[:4], before[:4])


@pytest.mark.gpu
@needs_gpu
def test_parts_of_rows_are_combined_where_they_lie():
    torch.manual_seed(0)
    data = torch.randn(9, 5001, device="cuda")
    before, even = data.clone(), (torch.arange(5001, device="cuda") % 2 == 0).float()
    outs, sources = torch.tensor([4, 8, 5], device="cuda"), torch.tensor([0, 1, 2, 3, 2], device="cuda")
    weights, starts = torch.tensor([0.5, 0.25, 2.0, -2.0, 3.0], device="cuda"), torch.tensor([0, 3, 4], device="cuda")
    fused.combine_rows(data, outs, sources, weights, starts, torch.tensor([-1, 0, 1, -1, 1], device="cuda"), 2)
    expected = 0.5 * before[0] + 0.25 * even * before[1] + 2.0 * (1.0 - even) * before[2]
    assert torch.allclose(data[4], expected, atol=1e-6)
    assert torch.equal(data[8], -2.0 * before[3])
    assert torch.allclose(data[5], 3.0 * (1.0 - even) * before[2])
    left = [0, 1, 2, 3, 6, 7]
    assert torch.equal(data[left], before[left])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("first", [0, 1])
def test_a_part_of_rows_is_what_the_codec_leaves(first):
    torch.manual_seed(0)
    data = torch.randn(5, 5001, device="cuda")
    expected = Part(first, 2).approximate(data[1:3], torch.zeros(2))
    fused.keep_part(data, torch.tensor([4, 0], device="cuda"), torch.tensor([1, 2], device="cuda"), first, 2)
    assert torch.equal(data[[4, 0]], expected)


def check_spreading(device):
    """Rows as a vector, and numbers over it, by one kernel, are what a copy for each parameter makes of them."""
    from walktalk.learning import kernels
    from walktalk.learning.optimizers import Spread

    sizes = (5, 3000, 1, 4096, 77)
    spread, rows = Spread(3, sizes), torch.randn(3, sum(sizes) + 9).to(device)[:, :-9]
    numbers, (found, views), (over, wide) = rows[:, 0].contiguous(), spread.empty(rows), spread.empty(rows)
    kernels.spread_out(rows, sizes, found)
    kernels.spread_over(numbers, sizes, over)
    for view, part, several in zip(views, rows.split(sizes, dim=1), wide, strict=True):
        assert torch.equal(view, part)
        assert torch.equal(several, numbers.view(-1, 1).expand_as(several))


@pytest.mark.gpu
@needs_gpu
def test_rows_are_spread_by_one_kernel():
    check_spreading("cuda")


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter: TRITON_INTERPRET=1")
def test_interpreted_too_rows_are_spread_by_one_kernel():
    check_spreading("cpu")


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter: TRITON_INTERPRET=1")
@pytest.mark.parametrize(("momentum", "local_steps"), [(0.0, 1), (0.9, 1), (0.9, 2)])
@pytest.mark.parametrize("corrected", [False, True])
def test_interpreted_too_training_rows_where_they_lie_is_training_copies(momentum, local_steps, corrected):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10), nn.BatchNorm1d(10))
    task = replace(large_task(2, 64), model=model)
    optimizer = OptimizerSpec("sgd", 0.05, momentum, momentum > 0, 1e-4)
    trainer = Trainer(task, optimizer=optimizer, local_steps=local_steps, device="cpu")
    keys, lr = torch.arange(3), torch.tensor([0.01, 0.02, 0.03])
    models = torch.stack([trainer.initial_row(k) for k in range(9)])
    states = torch.randn(6, trainer.state_width) * 1e-2 if momentum else None
    extras = Extras(local_steps, False, models[6:]) if corrected else None
    state = None if states is None else states[:3].clone()
    expected, velocity = trainer.forms.stacked(TrainingRows(models[:3].clone(), keys % 2, keys, lr, state, extras))
    pair = None if states is None else (Chosen(states, keys), Chosen(states, keys + 3))
    training = InPlaceTraining(trainer.forms.stacked, trainer.optimizer)
    training.train(TrainingRows(models, (keys, keys + 3, keys % 2, keys, lr), keys + 6 if corrected else None, pair))
    assert torch.allclose(models[3:6], expected, atol=1e-6)
    assert velocity is None or torch.allclose(states[3:], velocity, atol=1e-6)
