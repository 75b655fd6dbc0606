"""A mean of models with adapters: of their factors, or of the products, cut to the rank."""

from __future__ import annotations

import pytest
import torch

import walktalk as wt
from tests.learning.test_adapters import Transformer, task_of, with_noise
from walktalk.core.errors import SpecError
from walktalk.learning import Trainer
from walktalk.learning.adapters.low_rank import mean_products
from walktalk.protocols import FedAvg
from walktalk.runtimes.peers.node.models import Tensors
from walktalk.runtimes.stacked import Executor
from walktalk.runtimes.stacked.waves import CombineStep


def mean_product(b: torch.Tensor, a: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one layer."""
    new_b, new_a = mean_products(b[None], a[None], weights)
    return new_b[0], new_a[0]


def factors(count: int, rank: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    b = torch.randn(count, 7, rank, generator=generator)
    return b, torch.randn(count, rank, 5, generator=generator)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [1.0, 0.25, -0.25], [0.2] * 5])
def test_the_mean_is_the_best_of_its_rank(weights):
    b, a = factors(len(weights))
    new_b, new_a = mean_product(b, a, torch.tensor(weights))
    wanted = torch.einsum("k,kor,kri->oi", torch.tensor(weights), b, a)
    u, values, v = torch.linalg.svd(wanted, full_matrices=False)
    torch.testing.assert_close(new_b @ new_a, u[:, :3] * values[:3] @ v[:3], rtol=1e-4, atol=1e-4)
    assert new_b.shape == b.shape[1:]
    torch.testing.assert_close(new_a @ new_a.T, new_b.T @ new_b, rtol=1e-3, atol=1e-3)  # neither at the other's cost


def test_equal_models_are_their_own_mean():
    b, a = factors(1)
    new_b, new_a = mean_product(b.expand(3, -1, -1), a.expand(3, -1, -1), torch.full((3,), 1 / 3))
    torch.testing.assert_close(new_b @ new_a, b[0] @ a[0], rtol=1e-4, atol=1e-5)


def test_what_has_no_weight_yet_can_still_learn():
    b, a = factors(2)
    new_b, new_a = mean_product(torch.zeros_like(b), a, torch.tensor([0.5, 0.5]))
    assert float(new_b.abs().max()) == 0.0
    assert int(torch.linalg.matrix_rank(new_a)) == 3
    b[:, :, 1:] = 0.0  # of rank one
    b[1] = b[0]
    a[1] = a[0]
    new_b, new_a = mean_product(b, a, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(new_b @ new_a, b[0] @ a[0], rtol=1e-4, atol=1e-5)
    assert int(torch.linalg.matrix_rank(new_a)) == 3


def test_both_runtimes_make_the_same_mean():
    torch.manual_seed(0)
    task = task_of(with_noise(wt.lora(Transformer(), 3, mixing="product", also="head")))
    trainer = Trainer(task, batch_size=4, local_steps=1)
    assert trainer.averaging is not None
    rows = trainer.initial_row(0).repeat(3, 1) + 0.1 * torch.randn(3, trainer.width)
    tensors = Tensors(trainer.width, trainer.parameters, trainer.averaging)
    here = dict(zip("abc", rows, strict=True))
    executor = Executor(trainer, lambda run: torch.eye(1))
    executor.models.reserve(6)
    executor.models.data[:3] = rows
    step = CombineStep([3, 4], [0, 1, 2, 0, 1], [1.0, 0.5, -0.5, 1.0, 1.0], [0, 3], averaged=[0])
    executor.carry_out([step])
    mixed = tensors.combined(here, {"a": 1.0, "b": 0.5, "c": -0.5}, None)
    torch.testing.assert_close(executor.models.data[3], mixed)
    torch.testing.assert_close(executor.models.data[4], tensors.combined(here, {"a": 1.0, "b": 1.0}, None))
    torch.testing.assert_close(executor.models.data[4], rows[0] + rows[1])  # an update: number by number
    places = {entry.name: slice(entry.start, entry.end) for entry in trainer.model.layout.parameters}
    head = places["head.weight"]
    torch.testing.assert_close(mixed[head], rows[0][head] + 0.5 * (rows[1] - rows[2])[head])
    first = "blocks.0.q_proj.lora_A.weight"
    assert not torch.allclose(mixed[places[first]], (rows[0] + 0.5 * (rows[1] - rows[2]))[places[first]], atol=1e-3)


@pytest.mark.parametrize("protocol", [wt.MultiWalk(walks=2), wt.AsyncGossip()])
def test_a_run_with_means_of_products_learns(protocol):
    torch.manual_seed(0)
    task = task_of(wt.lora(Transformer(), 2, targets=["q_proj", "v_proj", "up", "head"], mixing="product"))
    run = wt.train(
        task, protocol, wt.graphs.complete(4), optimizer=wt.Adam(lr=0.02), local_steps=2, stop=40, evaluate=40
    )
    assert run.history["train_loss"].iloc[-1] < 0.9 * run.history["train_loss"].iloc[0]


def test_who_adds_up_more_than_models_is_told():
    task = task_of(wt.lora(Transformer(), 2, mixing="product"))
    with pytest.raises(SpecError, match="product is for walks and gossip"):
        wt.train(task, FedAvg(), wt.graphs.complete(4), stop=4)
