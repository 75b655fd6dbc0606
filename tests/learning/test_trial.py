"""What a new user tried: each works in one short run, or ends in one clear line."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import walktalk as wt
from tests.learning import plain

NAMES = ["lyon", "nice", "paris"]
GRAPH = nx.Graph([("nice", "lyon"), ("lyon", "paris"), ("paris", "nice")])
IMAGES, CLASSES = plain.images(60, 1, 8, 8), plain.classes(60, count=3)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(4 * 16, 3)

    def forward(self, x):
        return self.out(functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 2).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells, self.out = kind(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.cells(x)[0][:, -1])


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.number, self.out = nn.Linear(64, 5), nn.Linear(2, 5), nn.Linear(5, 3)

    def forward(self, image, number):
        return {"logits": self.out(torch.tanh(self.image(image.flatten(1)) + self.number(number)))}


def thirds(*columns):
    return {name: tuple(column[20 * k : 20 * k + 20] for column in columns) for k, name in enumerate(NAMES)}


def dictionary(first: int, last: int) -> dict:
    return {"image": IMAGES[first:last], "number": IMAGES[first:last, 0, 0, :2], "label": CLASSES[first:last]}


ROWS = IMAGES[:, 0]
FRAME = pd.DataFrame(ROWS[:, 0].numpy(), columns=list("abcdefgh")).assign(
    ill=CLASSES.numpy(), town=np.repeat(NAMES, 20)
)
PLANE = ROWS[:, 0] @ torch.linspace(-1, 1, 16).view(8, 2)

TRIED = {
    "cnn": lambda: wt.tasks.torch(Cnn(), functional.cross_entropy, thirds(IMAGES, CLASSES), (IMAGES, CLASSES)),
    "lstm": lambda: wt.tasks.torch(
        Recurrent(nn.LSTM), functional.cross_entropy, thirds(ROWS, CLASSES), (ROWS, CLASSES)
    ),
    "gru": lambda: wt.tasks.torch(Recurrent(nn.GRU), functional.cross_entropy, thirds(ROWS, CLASSES), (ROWS, CLASSES)),
    "regression": lambda: wt.tasks.torch(
        nn.Linear(8, 1), nn.MSELoss(), thirds(ROWS[:, 0], PLANE[:, :1]), (ROWS[:, 0], PLANE[:, :1])
    ),
    "targets of two dimensions": lambda: wt.tasks.torch(
        nn.Linear(8, 2), functional.mse_loss, thirds(ROWS[:, 0], PLANE), (ROWS[:, 0], PLANE)
    ),
    "several labels": lambda: wt.tasks.torch(
        nn.Linear(8, 2), nn.BCEWithLogitsLoss(), thirds(ROWS[:, 0], PLANE > 0), (ROWS[:, 0], PLANE > 0)
    ),
    "frame": lambda: wt.tasks.torch(
        nn.Linear(8, 3), functional.cross_entropy, wt.split(FRAME, by="town"), FRAME.drop(columns="town"), target="ill"
    ),
    "loaders": lambda: wt.tasks.torch(
        Cnn(),
        functional.cross_entropy,
        {name: DataLoader(TensorDataset(*data), batch_size=7) for name, data in thirds(IMAGES, CLASSES).items()},
        DataLoader(TensorDataset(IMAGES, CLASSES), batch_size=16),
    ),
    "dictionaries": lambda: wt.tasks.torch(
        Pair(),
        functional.cross_entropy,
        {name: dictionary(20 * k, 20 * k + 20) for k, name in enumerate(NAMES)},
        dictionary(0, 60),
    ),
}


@pytest.mark.parametrize("name", TRIED)
def test_it_trains_on_a_graph_with_names(name):
    torch.manual_seed(0)
    run = wt.train(
        TRIED[name](),
        wt.MultiWalk(walks=2),
        GRAPH,
        stop=wt.Stop(iterations=60),
        evaluate=wt.Evaluate(every=60),
        device="cpu",
    )
    assert run.trainer.task.names == tuple(NAMES)
    assert np.isfinite(run.history[["train_loss", "test_loss"]].to_numpy()).all()
    assert run.history["mean_train_loss"].iloc[-1] < run.history["mean_train_loss"].iloc[0]
    assert list(run.by_node.index) == NAMES


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((nn.Linear(8, 1), functional.mse_loss, [(ROWS[:, 0], PLANE[:, 0])]), "target size"),
        ((nn.Linear(8, 3), functional.cross_entropy, [FRAME]), "which of its columns are the targets"),
        ((nn.LSTM(8, 3), functional.cross_entropy, [(ROWS, CLASSES)]), "fails on its own data|one tensor"),
        ((nn.Linear(8, 2), nn.BCEWithLogitsLoss(), [(ROWS[:, 0], (PLANE > 0).long())]), "fails on its own data"),
        ((nn.Linear(8, 3), functional.cross_entropy, [ROWS]), "pair"),
    ],
)
def test_mistakes_end_in_one_line(given, words):
    with pytest.raises(wt.UserError, match=words) as caught:
        wt.train(wt.tasks.torch(*given), wt.MultiWalk(walks=1), wt.graphs.complete(1), device="cpu")
    assert "\n" not in str(caught.value)
