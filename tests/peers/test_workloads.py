"""Texts of any length, with an optimizer of one's own for some parameters, on real processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

import walktalk as wt
from walktalk.records import read_history
from walktalk.studies import make_spec
from walktalk.studies.peers import run_on_peers

NAMES = ["lyon", "nice", "paris"]


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(40, 6, padding_idx=0), nn.Linear(6, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens))


class RowLengths(torch.optim.Optimizer):
    """Steps whose rows all have one length: it needs parameters in their own shapes."""

    def __init__(self, params: object, lr: float = 0.02) -> None:
        super().__init__(params, {"lr": lr})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("kept", torch.zeros_like(parameter))
                kept.mul_(0.9).add_(parameter.grad)
                parameter.add_(kept / (kept.norm(dim=1, keepdim=True) + 1e-3), alpha=-group["lr"])


def padded(batch: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return nn.utils.rnn.pad_sequence([text for text, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


def texts(part: str | None = None) -> wt.Task:
    """Texts of low and of high words; those of one site are longer than those of another."""

    def read(name: str) -> list[tuple[torch.Tensor, int]]:
        site = NAMES.index(name)
        chance = torch.Generator().manual_seed(site)
        return [(torch.randint(1, 20, (2 + site + k % 6,), generator=chance) + 20 * (k % 2), k % 2) for k in range(40)]

    torch.manual_seed(0)
    optimizers = {"words": 2.0, "head.weight": partial(RowLengths, lr=0.02)}
    return wt.tasks.torch(
        Bag(), nn.functional.cross_entropy, read, names=NAMES, part=part, collate=padded, optimizers=optimizers
    )


def test_texts_of_any_length_train_on_real_processes(tmp_path: Path) -> None:
    study = {
        "name": "texts",
        "task": {"name": "tests.peers.test_workloads:texts"},
        "network": {"topology": "complete", "nodes": 3},
        "algorithms": [{"name": "multi_walk", "walks": 2}],
        "optimizer": {"lr": 0.1, "momentum": 0.0, "nesterov": False},
        "training": {
            "optimizer_state": "node",
            "local_steps": {"epochs": 0.5},
            "batch_size": {"lyon": 4, "nice": 8, "paris": 10},
        },
        "objective": {"weights": {"lyon": 2, "nice": 1, "paris": 1}, "cap": 4.0, "equal_pace": True},
        "stop": {"iterations": 120},
        "evaluate": {"every": 60},
    }
    run_on_peers(make_spec(study), tmp_path / "out")
    losses = read_history(tmp_path / "out" / "history.csv").train_loss
    assert losses.iloc[-1] < 0.2 < losses.iloc[0]
