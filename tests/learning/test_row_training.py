"""Large models: the same training in memory that is used again, and no more of a text than there is."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning import OptimizerSpec, Trainer, TrainingRows, tasks
from walktalk.learning.optimizers import row_optimizer
from walktalk.learning.samples import seeded
from walktalk.learning.stacked import SequentialModel
from walktalk.learning.stacked.choice import is_random
from walktalk.learning.stacked.sequential import seeds_of
from walktalk.transforms.codecs import hashed

MEMORY = sys.modules["walktalk.learning.arithmetic"]
OPTIMIZERS = {
    "sgd": OptimizerSpec("sgd", 0.05),
    "nesterov": OptimizerSpec("sgd", 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": OptimizerSpec("adam", 0.01, weight_decay=0.1),
    # A bias before a BatchNorm has the gradient zero but for rounding: without this eps Adam would blow that up.
    "adamw": OptimizerSpec("adamw", 0.01, weight_decay=0.1, eps=1e-3),
    "rmsprop": OptimizerSpec("rmsprop", 0.01, eps=1e-3),
}


@pytest.fixture
def one_by_one(monkeypatch):
    monkeypatch.setattr("walktalk.learning.stacked.choice.STACKED_UP_TO", 1)


def normalizing(name: str, **settings) -> Trainer:
    """A model with buffers and dropout."""
    model = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 10))
    digits = tasks.digits(nodes=3, alpha=1.0)
    task = replace(digits, model=model)
    return Trainer(task, batch_size=16, local_steps=3, optimizer=OPTIMIZERS[name], **settings)


def given(trainer: Trainer, count: int) -> tuple[Tensor, ...]:
    rows = torch.stack([trainer.initial_row(k) for k in range(count)])
    return rows, torch.arange(count) % 3, torch.arange(count) * 7919, torch.full((count,), 0.01)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_row_alone_is_trained_as_in_a_wave(one_by_one, name):
    trainer = normalizing(name)
    assert type(trainer.model) is SequentialModel
    rows, parts, keys, lr = given(trainer, 2)
    state = torch.rand(2, trainer.state_width) if name == "nesterov" else torch.zeros(2, trainer.state_width)
    kept, kept_state = rows.clone(), state.clone()
    found, found_state = trainer.train(TrainingRows(rows, parts, keys, lr, state))
    expected, expected_state = trainer.forms.stacked(
        TrainingRows(rows, parts, keys, lr, state)
    )  # the general way, any number of rows
    plain.close(found - rows, expected - rows, 1e-4)
    if trainer.state_width:
        plain.close(found_state, expected_state, 1e-4)
    assert torch.equal(rows, kept)
    assert torch.equal(state, kept_state)


def test_what_is_lent_is_overwritten_and_what_is_given_is_not(one_by_one):
    trainer = normalizing("adam")
    rows, parts, keys, lr = given(trainer, 2)
    state = torch.zeros(2, trainer.state_width)
    both, both_state = trainer.train(TrainingRows(rows, parts, keys, lr, state))
    assert not torch.equal(both[0], both[1])
    first, first_state = trainer.train(TrainingRows(rows[:1], parts[:1], keys[:1], lr[:1], state[:1]))
    lent, lent_state = trainer.train(TrainingRows(rows[1:], parts[1:], keys[1:], lr[1:], state[1:], on_loan=True))
    assert torch.equal(first, both[:1])
    assert torch.equal(first_state, both_state[:1])
    assert torch.equal(lent, both[1:])
    assert torch.equal(lent_state, both_state[1:])
    again, _ = trainer.train(TrainingRows(rows[:1], parts[:1], keys[:1], lr[:1], state[:1], on_loan=True))
    assert again.data_ptr() == lent.data_ptr()  # no memory was got for it
    fresh, none = trainer.train(TrainingRows(rows[:1], parts[:1], keys[:1], lr[:1], on_loan=True))
    assert none is None  # and a state of before is not used again
    assert torch.equal(fresh, both[:1])


@pytest.mark.parametrize("decoupled", [False, True])
def test_without_torchs_kernel_adam_is_the_same_to_rounding(decoupled, monkeypatch):
    optimizer = row_optimizer(OptimizerSpec("adamw" if decoupled else "adam", 0.01, weight_decay=0.1))
    results = []
    for kernel in (True, False):
        if not kernel:
            monkeypatch.setattr("walktalk.learning.optimizers.sgd_and_adam.fused", lambda decoupled, device: None)
        numbers = torch.Generator().manual_seed(0)
        weights, state = torch.randn(37, generator=numbers), torch.zeros(75)
        for _ in range(4):
            optimizer.step_alone(weights, torch.randn(37, generator=numbers), state, 0.01)
        assert state[-1] == 4
        results.append(torch.cat((weights, state)))
    plain.close(results[0][None], results[1][None], 1e-6)


class Padded(nn.Module):
    """Notes how much of a text it was given; padding has no part in what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 3)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.append(tuple(tokens.shape))
        there = tokens.ne(0).unsqueeze(2)
        return self.head((self.words(tokens) * there).sum(1) / there.sum(1))


def test_padding_is_left_out_of_evaluations(one_by_one):
    numbers = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 40, (200,), generator=numbers)
    tokens = torch.randint(1, 9, (200, 40), generator=numbers) * (torch.arange(40) < lengths.view(-1, 1))
    targets = torch.randint(0, 3, (200,), generator=numbers)
    parts = list(zip(tokens.split(100), targets.split(100), strict=True))
    task = tasks.torch(Padded(), functional.cross_entropy, parts, (tokens, targets))
    whole = Trainer(task)
    short = Trainer(replace(task, lengths=lambda given: given.ne(0).sum(1)))
    rows = whole.initial_row(0)[None]
    short.model.worker.seen.clear()
    for a, b in zip(short.evaluate(rows), whole.evaluate(rows), strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-5)
    shapes = short.model.worker.seen
    assert sum(samples for samples, _ in shapes) == 400
    assert sum(samples * words for samples, words in shapes) < 0.75 * 400 * 40
    assert set(short.evaluator.sample.tolist()) == set(range(200))


def test_what_a_seed_draws_is_what_torch_draws_from_it_and_no_other_device_is_told(one_by_one, monkeypatch):
    expected = []
    for seed in (0, 2**63 - 1, -5):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            expected.append(torch.rand(5))
    trainer = normalizing("sgd")
    wave = given(trainer, 1)
    before = torch.get_rng_state()
    with monkeypatch.context() as patch:
        for device in ("cuda", "xpu", "mtia"):  # which keep what is asked of them, and from where, until there is one
            patch.setattr(
                f"torch.{device}.manual_seed_all", lambda seed: pytest.fail("another device was seeded"), raising=False
            )
        for seed, wanted in zip((0, 2**63 - 1, -5), expected, strict=True):
            with seeded(seed, torch.device("cpu")):
                assert torch.equal(torch.rand(5), wanted)
        trainer.train(TrainingRows(*wave))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="inside"), seeded(3, torch.device("cpu")):
        raise ValueError("inside")
    assert torch.equal(torch.get_rng_state(), before)


class WithoutASay(nn.Module):
    """33 parameters, some of which have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.unused = nn.Linear(2, 10), nn.Parameter(torch.ones(3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.dropout(inputs[:, 20:22], 0.2, self.training))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_zeros_behind_a_row_change_no_bit_of_it(one_by_one, monkeypatch, momentum):
    task = replace(tasks.digits(nodes=3, alpha=1.0), model=WithoutASay())
    results = []
    for padded in (True, False):
        if not padded:
            monkeypatch.setattr("walktalk.learning.training.forms.RowTraining.lengths", lambda self, device: (33, 33))
        spec = OptimizerSpec("sgd", 0.05, momentum=momentum, weight_decay=0.01)
        trainer = Trainer(task, batch_size=16, local_steps=3, optimizer=spec)
        rows, parts, keys, lr = given(trainer, 2)
        trained, state = trainer.train(TrainingRows(rows, parts, keys, lr, torch.ones(2, trainer.state_width)))
        assert trained.shape == rows.shape
        assert state is not None
        assert state.shape == (2, trainer.state_width)
        assert len(trainer.forms.by_row.weights) == (48 if padded else 33)
        results.append(torch.cat((trained, state), dim=1))
    assert torch.equal(*results)


def test_seeds_of_a_few_keys_are_those_of_many():
    keys = torch.tensor([0, 1, -1, 2**62, -(2**63), 7919])
    for counter in (0, 7919, 2**40):
        assert seeds_of(keys, counter) == hashed(keys, torch.full_like(keys, counter)).tolist()


class DropsByItself(nn.Module):
    """Dropout without a layer of that name, of so few units that two seeds often drop the same ones."""

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.dropout(inputs[:, :2], 0.2, self.training)


def test_dropout_of_a_few_units_is_seen():
    """Else its draws would come from wherever torch's generator happens to be, and no training could be repeated."""
    with torch.random.fork_rng():
        for seed in range(20):
            torch.manual_seed(seed)
            layered = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Dropout(0.01))
            assert is_random(layered, torch.randn(2, 3))
            assert is_random(DropsByItself(), torch.randn(2, 3))
            assert not is_random(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), torch.randn(2, 3))


@pytest.mark.parametrize("local_steps", [3, 9])  # the masks of eight steps are drawn at once
@pytest.mark.parametrize("layer", [nn.LayerNorm(8), nn.Dropout(0.3)])
def test_alone_a_row_goes_through_torchs_own_layers_and_has_the_masks_and_norms_of_a_wave(layer, local_steps):
    model = nn.Sequential(
        nn.Linear(64, 8), layer, nn.ELU(), nn.Dropout(0.5), nn.Linear(8, 10)
    )  # ELU is not written out
    trainer = Trainer(replace(tasks.digits(nodes=3, alpha=1.0), model=model), local_steps=local_steps)
    rows = torch.stack([trainer.initial_row(k) for k in range(3)])
    keys, rates = torch.tensor([5, 7, 5]), torch.full((3,), 0.1)
    wave, _ = trainer.train(TrainingRows(rows, keys % 3, keys, rates))
    single = trainer.forms.same_bits.single
    assert single is not None
    for k in range(3):
        alone, _ = single(TrainingRows(rows[k : k + 1], keys[k : k + 1] % 3, keys[k : k + 1], rates[:1]))
        assert torch.allclose(alone[0], wave[k], atol=1e-5)


def test_what_is_dropped_inside_of_a_layer_is_left_to_the_wave():
    model = nn.Sequential(nn.Unflatten(1, (8, 8)), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten())
    model.append(nn.Linear(64, 10))
    assert Trainer(replace(tasks.digits(nodes=3, alpha=1.0), model=model)).forms.same_bits is None


@pytest.mark.parametrize("known", [True, False], ids=["glibc", "another system"])
def test_what_a_step_frees_is_kept_where_the_system_lets_us(monkeypatch, known):
    asked = []

    class System:
        def __init__(self, name: None) -> None:
            if known:
                self.mallopt = lambda option, value: asked.append((option, value))

    monkeypatch.setattr(MEMORY.sys, "platform", "linux")
    monkeypatch.setattr(MEMORY.ctypes, "CDLL", System)
    MEMORY.keep_freed_memory.__wrapped__()
    assert asked == ([(-1, 2**29), (-3, 2**25)] if known else [])
