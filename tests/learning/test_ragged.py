"""Samples that no tensor holds are put together batch by batch, and train as in a plain loop."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import UserError
from walktalk.learning import Task, Trainer, TrainingRows
from walktalk.learning.samples import Sampler
from walktalk.learning.tasks import section_of
from walktalk.learning.user_data import RaggedModel

NODES, BATCH, STEPS, LR = 2, 4, 3, 0.1


def text(k: int) -> tuple[Tensor, int]:
    return torch.randint(1, 20, (2 + k % 6,), generator=torch.Generator().manual_seed(k)), k % 2


TEXTS = [text(k) for k in range(30)]


class Mean(nn.Module):
    """A mean over all places, padding too: what it says depends on how far a batch is padded."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(20, 4), nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).mean(1))


def padded(batch: list[Any]) -> tuple[Tensor, Tensor]:
    return nn.utils.rnn.pad_sequence([one for one, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


def task_of(data: list[Any] = TEXTS, **more: Any) -> Task:
    parts = {"lyon": data[::2], "nice": data[1::2]}
    return wt.tasks.torch(Mean(), functional.cross_entropy, parts, test=data[:8], collate=padded, **more)


def test_it_trains_as_in_a_plain_loop():
    task = task_of()
    assert isinstance(task.model, RaggedModel)
    trainer = Trainer(task, batch_size=BATCH, local_steps=STEPS)
    part, key = torch.tensor([1]), torch.tensor([5])
    found = trainer.train(TrainingRows(trainer.initial_row(0)[None], part, key, torch.tensor([LR]))).rows[0]
    module, everything = Mean(), [*TEXTS[::2], *TEXTS[1::2]]
    optimizer = torch.optim.SGD(module.parameters(), LR)
    for places in Sampler(task.parts, BATCH, torch.device("cpu")).batches(part, key, STEPS)[:, 0].tolist():
        tokens, labels = padded([everything[place] for place in places])
        optimizer.zero_grad()
        functional.cross_entropy(module(tokens), labels).backward()
        optimizer.step()
    assert torch.allclose(found, torch.cat([p.detach().reshape(-1) for p in module.parameters()]), atol=1e-6)


def test_a_run_gives_back_the_persons_module_and_its_accuracy():
    task = task_of()
    run = wt.train(task, wt.AsyncGossip(), wt.graphs.path(2), stop=20, device="cpu")
    assert type(run.model) is Mean
    tokens, labels = padded(TEXTS[:8])
    with torch.no_grad():
        right = float((run.model(tokens).argmax(1) == labels).float().mean())
    assert run.history["test_accuracy"].iloc[-1] == pytest.approx(right)
    assert list(run.by_node.index) == ["lyon", "nice"]


def test_a_node_reads_its_own_data_alone():
    def partition(name: str) -> list[Any]:
        assert name == "nice"
        return TEXTS[1::2]

    task = wt.tasks.torch(
        Mean(), functional.cross_entropy, partition, collate=padded, names=["lyon", "nice"], part="nice"
    )
    whole = Trainer(task_of(), batch_size=BATCH)
    alone = Trainer(task, batch_size=BATCH)
    row, key, rate = alone.initial_row(0)[None], torch.tensor([3]), torch.tensor([LR])
    trained = [t.train(TrainingRows(row, torch.tensor([p]), key, rate)).rows for t, p in ((alone, 0), (whole, 1))]
    assert torch.equal(*trained)


def test_other_data_is_another_task():
    assert section_of(task_of()) == section_of(task_of())
    assert section_of(task_of()) != section_of(task_of([*TEXTS[1:], TEXTS[0]]))


class Noisy(list):
    """Texts of which words are left out at random, by Python's own random numbers."""

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return Noisy(super().__getitem__(k))
        tokens, label = super().__getitem__(k)
        return tokens[: random.randint(1, len(tokens))], label


def test_samples_that_are_changed_at_random_are_the_same_in_every_run():
    runs = [wt.train(task_of(Noisy(TEXTS)), wt.AsyncGossip(), wt.graphs.path(2), stop=12, seed=s) for s in (1, 1, 2)]
    losses = [run.history["train_loss"].tolist() for run in runs]
    assert losses[0] == losses[1] != losses[2]


def test_metrics_of_outputs_without_one_shape_are_means_over_samples():
    class Scores(Mean):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.words(tokens))  # [B, T, 2]: of every word

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.mean(1), labels)

    metrics = {"words": lambda outputs, labels: outputs.shape[1]}
    parts = [TEXTS[k::NODES] for k in range(NODES)]
    task = wt.tasks.torch(Scores(), loss, parts, test=TEXTS[:8], collate=padded, metrics=metrics)
    found = Trainer(task).measure(torch.zeros(1, 90))
    assert float(found["words"]) == 7  # the longest of the eight, which are one batch
    assert math.isnan(float(found["test_accuracy"]))
    assert float(found["test_loss"]) == pytest.approx(math.log(2))


def test_a_model_that_computes_its_own_loss():
    class Own(Mean):
        def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            scores = super().forward(tokens)
            return {"loss": functional.cross_entropy(scores, labels), "logits": scores}

    def batch(samples: list[Any]) -> dict[str, Tensor]:
        return dict(zip(("tokens", "labels"), padded(samples), strict=True))

    task = wt.tasks.torch(Own(), None, [TEXTS[k::NODES] for k in range(NODES)], test=TEXTS[:8], collate=batch)
    run = wt.train(task, wt.AsyncGossip(), wt.graphs.path(2), stop=20, evaluate=10, device="cpu")
    assert run.history["train_loss"].iloc[-1] < run.history["train_loss"].iloc[0]


def test_a_ragged_loss_is_one_number():
    each = [TEXTS[k::NODES] for k in range(NODES)]
    with pytest.raises(UserError, match="the loss should be one number"):
        Trainer(wt.tasks.torch(Mean(), nn.CrossEntropyLoss(reduction="none"), each, collate=padded))


def test_sites_whose_samples_happen_to_be_alike_are_of_the_same_task():
    from walktalk.studies.peers.node_job import task_facts

    alike = [(torch.ones(4, dtype=torch.int64), k % 2) for k in range(8)]
    tasks = [wt.tasks.torch(Mean(), functional.cross_entropy, [data], collate=padded) for data in (TEXTS[:8], alike)]
    assert [isinstance(task.model, RaggedModel) for task in tasks] == [True, False]
    assert task_facts(tasks[0]) == task_facts(tasks[1])
    rows = [Trainer(task).initial_row(0) for task in tasks]
    assert torch.equal(*rows)
