"""Products by numpy have plain gradients, and a model the same bits alone and in any wave, with any numpy's library."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.learning import plain
from tests.learning.test_chain_training import SPECS, perceptron, trainer_for, wave
from tests.learning.test_compiled_model import LABELS, MODELS, SAMPLES, WORDS, encoder
from walktalk.learning import Task, Trainer, TrainingRows
from walktalk.learning.stacked import CompiledModel, one_thread, stack
from walktalk.learning.stacked import cpu as products
from walktalk.learning.stacked.choice import gradients_of
from walktalk.testing.bench.models import MODELS as BENCHED


@pytest.fixture
def taken(monkeypatch):
    """Numpy multiplies, whatever the CPU; says how often it did."""
    before, counted = torch.get_num_threads(), []
    torch.set_num_threads(1)
    monkeypatch.setattr(products, "numpy_is_faster", lambda: True)
    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *args, **named: counted.append(1) or matmul(*args, **named))
    yield counted
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_step_has_the_gradients_of_a_plain_loop(taken, name):
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = stack(make(), functional.cross_entropy, inputs, LABELS)
    assert type(model) is CompiledModel
    for step, (width, batch) in enumerate(((3, 8), (1, 8), (3, 5))):
        models = plain.copies(model.module, width, seed=step)
        rows = torch.stack([plain.numbers(one) for one in models])
        picks = plain.classes(width, batch, seed=step, count=SAMPLES)
        taken.clear()
        found = model.layout.gather(gradients_of(model, rows, inputs[picks], LABELS[picks]), width)
        assert taken
        expected = [
            plain.gradient(one, functional.cross_entropy, inputs[pick], LABELS[pick])
            for one, pick in zip(models, picks, strict=True)
        ]
        plain.close(found, torch.stack(expected), 1e-4)


@pytest.mark.parametrize("sizes", [(12, 5), (12, 9, 5), (12, 16, 7, 5)], ids=str)
def test_a_perceptron_has_the_same_bytes_either_way_and_those_of_torch_to_rounding(taken, monkeypatch, sizes):
    trainer = trainer_for(perceptron(*sizes), SPECS["nesterov"])
    chain = trainer.forms.chain
    assert chain is not None
    for width, equal_rates in ((3, True), (17, False), (1, True)):
        given = wave(trainer, width, equal_rates)
        taken.clear()
        found, _ = chain(TrainingRows(*given))
        assert len(taken) == 3 * (3 * len(sizes) - 4)  # steps, and in each the products there and back
        assert torch.equal(trainer.forms.stacked(TrainingRows(*given)).rows, found)
        with monkeypatch.context() as by_torch:
            by_torch.setattr(products, "numpy_is_faster", lambda: False)
            plain.close(found - given[0], chain(TrainingRows(*given)).rows - given[0], 1e-4)


@pytest.mark.parametrize("name", ["logistic", "tiny-vit", "encoder"])
def test_a_row_has_the_same_bytes_alone_and_in_any_wave(taken, name):
    torch.manual_seed(0)
    parts = np.array_split(np.arange(SAMPLES), 3)
    task = Task("own", encoder(True), functional.cross_entropy, WORDS, LABELS, parts)
    if name in BENCHED:
        task = BENCHED[name].task(64)
    trainer = Trainer(task, batch_size=8, local_steps=2, optimizer=SPECS["nesterov"])
    given = wave(trainer, 7)
    together, _ = trainer.train(TrainingRows(*given))
    assert trainer.forms.chain is not None or trainer.forms.same_bits.way == "plain"  # and not computed twice
    for first, last in ((0, 1), (6, 7), (1, 3), (2, 7)):
        assert torch.equal(
            trainer.train(TrainingRows(*(tensor[first:last] for tensor in given)))[0], together[first:last]
        )


def test_torch_multiplies_with_several_threads_and_other_numbers(taken):
    assert products.numpy_multiplies()
    assert products.numpy_multiplies(torch.zeros(1))
    assert not products.numpy_multiplies(torch.zeros(1, dtype=torch.float64))
    torch.set_num_threads(2)
    assert not products.numpy_multiplies()


@dataclass
class Library:
    """One as threadpoolctl describes them."""

    architecture: str = "SkylakeX"
    threads: int = 4

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        self.threads = count


@pytest.mark.parametrize(
    ("maker", "libraries", "faster"),
    [
        ("AuthenticAMD", [Library()], True),
        ("AuthenticAMD", [Library("Haswell")], False),
        ("AuthenticAMD", [], False),
        ("GenuineIntel", [Library()], False),
    ],
)
def test_numpy_is_faster_where_an_amd_cpu_has_wide_registers(cpu, monkeypatch, maker, libraries, faster):
    cpu(vendor_id=maker)
    monkeypatch.setattr(products, "libraries", lambda: libraries)
    assert products.numpy_is_faster.__wrapped__() is faster


def test_numpy_has_one_thread_until_the_last_training_ends(taken, monkeypatch):
    library = replace(Library())
    monkeypatch.setattr(products, "libraries", lambda: [library])
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            begun.set()
            done.wait(10)

    with one_thread():
        assert library.threads == 1
        thread = threading.Thread(target=other)
        thread.start()
        assert begun.wait(10)
    assert library.threads == 1
    done.set()
    thread.join()
    assert library.threads == 4


def test_a_training_has_one_thread_of_numpys(taken, monkeypatch):
    library, seen = Library(), []
    monkeypatch.setattr(products, "libraries", lambda: [library])
    trainer = trainer_for(perceptron(12, 5), SPECS["plain"])
    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *args, **named: seen.append(library.threads) or matmul(*args, **named))
    trainer.train(TrainingRows(*wave(trainer, 2)))
    assert set(seen) == {1}
    assert library.threads == 4


def test_what_overflows_is_not_told_by_numpy(taken, recwarn):
    """A rate that diverges: those who watch the run tell of it, in words that help."""
    trainer = trainer_for(perceptron(12, 9, 5), SPECS["nesterov"])
    rows, parts, keys, lr = wave(trainer, 3)
    for _ in range(3):
        rows, _ = trainer.train(TrainingRows(rows, parts, keys, torch.full_like(lr, 1e30)))
    assert taken
    assert not torch.isfinite(rows).all()
    assert [str(one.message) for one in recwarn] == []
