"""Optimizers on rows do what torch.optim does on each model alone: several steps, own rates, state over visits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from walktalk.core.errors import ModelError
from walktalk.learning import OptimizerSpec
from walktalk.learning.optimizers import (
    NOT_ELEMENT_WISE,
    RowTorch,
    Spread,
    element_wise,
    row_optimizer,
    to_rows,
    to_vector,
)

ROWS, SIZES = 3, (4, 1, 6)
SPREAD = Spread(ROWS, SIZES)
LRS = torch.tensor([0.01, 0.05, 0.002])

SPECS = {
    "sgd": OptimizerSpec("sgd", 0.05),
    "sgd-decay": OptimizerSpec("sgd", 0.05, weight_decay=0.1),
    "sgd-momentum": OptimizerSpec("sgd", 0.05, momentum=0.9),
    "sgd-nesterov": OptimizerSpec("sgd", 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd-dampening": OptimizerSpec("sgd", 0.05, momentum=0.9, extra={"dampening": 0.3}),
    "adam-decay": OptimizerSpec("adam", 0.01, weight_decay=0.1),
    "adam-betas": OptimizerSpec("adam", 0.01, betas=(0.5, 0.7), eps=1e-3),
    "adam-amsgrad": OptimizerSpec("adam", 0.01, extra={"amsgrad": True}),
    "adamw-decay": OptimizerSpec("adamw", 0.01, weight_decay=0.1),
    "rmsprop-momentum": OptimizerSpec("rmsprop", 0.01, momentum=0.9),
    **{name: OptimizerSpec(name, 0.01) for name in sorted(element_wise()) if name != "sgd"},
}


def gradients(step: int) -> Tensor:
    return torch.randn(ROWS, sum(SIZES), generator=torch.Generator().manual_seed(100 + step))


def reference(spec: OptimizerSpec, rows: Tensor, visits: int, steps: int) -> Tensor:
    """torch.optim on each row alone, never interrupted."""
    out = []
    for k in range(ROWS):
        parameter = rows[k].clone().requires_grad_()
        given = {name: getattr(spec, name) for name in ("momentum", "nesterov", "betas", "eps") if getattr(spec, name)}
        if spec.weight_decay or spec.name == "adamw":
            given["weight_decay"] = spec.weight_decay
        optimizer = element_wise()[spec.name]([parameter], lr=float(LRS[k]), **given, **spec.extra)
        for step in range(visits * steps):
            parameter.grad = gradients(step)[k].clone()
            optimizer.step()
        out.append(parameter.detach())
    return torch.stack(out)


@pytest.mark.parametrize("name", list(SPECS))
def test_rows_are_stepped_as_torch_steps_each_alone(name):
    spec, start = SPECS[name], torch.randn(ROWS, sum(SIZES), generator=torch.Generator().manual_seed(0))
    optimizer = row_optimizer(spec)
    rows = start.clone()
    state = torch.zeros(ROWS, optimizer.state_width(sum(SIZES)))
    for visit in range(3):  # the state is packed into rows and carried from visit to visit
        wave = optimizer.begin(LRS, state, SPREAD)
        weights = to_vector(rows, SPREAD)
        for step in range(4):
            wave.step(weights, to_vector(gradients(4 * visit + step), SPREAD))
        rows, state = to_rows(weights, SPREAD), wave.state()
        assert state.shape == (ROWS, optimizer.state_width(sum(SIZES)))
    expected = reference(spec, start, 3, 4)
    assert torch.allclose(rows, expected, rtol=2e-5, atol=2e-6), (rows - expected).abs().max()


@pytest.mark.parametrize("name", ["sgd-nesterov", "adam-decay", "adamw-decay", "rmsprop"])
def test_equal_rates_take_the_short_way_and_give_the_same(name):
    spec, rows = SPECS[name], torch.randn(ROWS, sum(SIZES))
    results = []
    for lr in (torch.full((ROWS,), 0.05), torch.tensor([0.05, 0.05, 0.9])):
        optimizer = row_optimizer(spec)
        wave = optimizer.begin(lr, torch.zeros(ROWS, optimizer.state_width(sum(SIZES))), SPREAD)
        weights = to_vector(rows, SPREAD)
        for step in range(3):
            wave.step(weights, to_vector(gradients(step), SPREAD))
        results.append(to_rows(weights, SPREAD)[:2])
    assert torch.allclose(*results, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("settings", [(0.0, False, 0.0), (0.9, False, 0.0), (0.9, True, 0.0), (0.9, True, 0.01)])
def test_a_rows_bytes_do_not_depend_on_its_neighbours_rates_or_their_number(settings):
    """Equal rates go through torch's fused kernel, others do not; what is left after its last register is padding."""
    optimizer = row_optimizer(OptimizerSpec("sgd", 0.05, *settings))
    rows, found = (torch.randn(40, 37, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    results = []
    for count, last in ((1, 0.05), (3, 0.05), (3, 0.04), (40, 0.05), (40, 0.04)):
        spread, lr = Spread(count, (30, 7)), torch.full((count,), 0.05)
        lr[count - 1] = last
        wave, weights = optimizer.begin(lr, None, spread), to_vector(rows[:count], spread)
        for _ in range(3):
            wave.step(weights, to_vector(found[:count], spread))
        results.append(torch.cat((to_rows(weights, spread), wave.state()), 1)[0])
    assert all(torch.equal(result, results[0]) for result in results[1:])


def test_the_end_of_a_vector_is_zeros_and_never_comes_back():
    spread = Spread(3, (4, 1))
    vector = to_vector(torch.ones(3, 5), spread)
    assert len(vector) == spread.length == 16
    assert vector.tolist() == [1.0] * 15 + [0.0]
    assert to_rows(vector, spread).tolist() == [[1.0] * 5] * 3


def test_a_fresh_row_beside_an_old_one():
    """A walk's first visit and another's tenth in one wave: Adam's step counts differ."""
    optimizer, spread = row_optimizer(OptimizerSpec("adam", 0.01)), Spread(2, (5,))
    gradient, start = torch.randn(5), torch.zeros(1, optimizer.state_width(5))
    one = Spread(1, (5,))
    old = optimizer.begin(torch.tensor([0.01]), start, one)
    for _ in range(9):
        old.step(torch.zeros(one.length), to_vector(gradient[None], one))
    both = torch.cat((old.state(), start))
    wave, weights = optimizer.begin(torch.full((2,), 0.01), both, spread), torch.zeros(spread.length)
    wave.step(weights, to_vector(gradient.expand(2, 5), spread))
    assert wave.state()[:, -1].tolist() == [10, 1]
    assert torch.allclose(to_rows(weights, spread)[1], -0.01 * gradient.sign(), atol=1e-5)


def test_every_element_wise_optimizer_of_torch_is_there_and_no_other():
    names = {name.lower() for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)}
    known = set(element_wise())
    assert {
        "sgd",
        "adam",
        "adamw",
        "rmsprop",
        "adagrad",
        "adadelta",
        "adamax",
        "nadam",
        "radam",
        "asgd",
        "rprop",
    } <= known
    assert known <= names
    for refused in NOT_ELEMENT_WISE:
        with pytest.raises(ModelError, match=r"not possible; allowed: .*element-wise: .*sgd"):
            OptimizerSpec(refused.lower())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.0}, "optimizer.lr: 0.0"),
        ({"lr": -1.0}, "optimizer.lr: -1.0"),
        ({"lr": math.nan}, "optimizer.lr: nan"),
        ({"momentum": -0.1}, "optimizer.momentum"),
        ({"weight_decay": -1e-4}, "optimizer.weight_decay"),
        ({"nesterov": True}, "optimizer.nesterov: true needs a momentum"),
        ({"name": "adam", "betas": (0.9, 1.0)}, "optimizer.betas"),
        ({"name": "adam", "eps": 0.0}, "optimizer.eps"),
        ({"name": "sdg"}, "'sdg' is not possible"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ModelError, match=words):
        OptimizerSpec(**settings)


def test_a_setting_that_the_optimizer_does_not_have_is_refused():
    with pytest.raises(ModelError, match=r"optimizer.bogus: rmsprop has no such setting"):
        row_optimizer(OptimizerSpec("rmsprop", 0.01, extra={"bogus": 1}))


def test_vector_and_rows_are_each_others_inverse():
    rows = torch.randn(ROWS, sum(SIZES))
    assert torch.equal(to_rows(to_vector(rows, SPREAD), SPREAD), rows)


def test_a_state_is_packed_where_its_row_is():
    """torch keeps counts of steps on the CPU, wherever the parameters are; "meta" is a device that is everywhere."""
    settings, spread = RowTorch(torch.optim.Adagrad, {}), Spread(1, (3,))
    wave = settings.begin(torch.tensor([0.1]), None, spread)
    wave.parameters = [torch.zeros(3, device="meta")]
    wave.optimizer.state[wave.parameters[0]] = {"step": torch.tensor(1.0), "sum": torch.zeros(3, device="meta")}
    assert wave.state().device.type == "meta"
