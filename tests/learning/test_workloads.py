"""What people train, small: each as they would write it, with a loss, data and a batch of their own.

Every one trains and is compared; what cannot be ends in one line that says what to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import walktalk as wt
from walktalk.core.errors import UserError
from walktalk.learning import Task, TrainingRows, tasks
from walktalk.records import read_history
from walktalk.studies import StudySpec, make_spec
from walktalk.studies.peers import run_on_peers
from walktalk.studies.planning import build_foundation, build_trainer

NODES = 3
ENTROPY = functional.cross_entropy


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(high: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def dealt(*columns: Any) -> list[Any]:
    """Samples shared out over the nodes."""
    return [tuple(column[k::NODES] for column in columns) for k in range(NODES)]


X = drawn(120, 5)
TRUTH = X @ drawn(5, seed=2)


def task_of(module: nn.Module, loss: Any, partitions: Any, **more: Any) -> Task:
    return wt.tasks.torch(module, loss, partitions, **more)


def mlp(outputs: int, inputs: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


# Numbers and labels


def regression() -> Task:
    return task_of(nn.Linear(5, 1), nn.MSELoss(), dealt(X, TRUTH[:, None]), test=(X[:30], TRUTH[:30, None]))


def quantiles_of_days() -> Task:
    days = (10 + 4 * TRUTH).round().clamp(min=0).long()
    shares = torch.tensor([0.1, 0.5, 0.9])

    def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
        miss = targets[:, None] - outputs
        return torch.maximum(shares * miss, (shares - 1) * miss).mean()

    return task_of(mlp(3), pinball, dealt(X, days), test=(X[:30], days[:30]))


def counts() -> Task:
    visits = torch.poisson(TRUTH.clamp(-2, 2).exp(), generator=torch.Generator().manual_seed(0)).long()

    def poisson(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.poisson_nll_loss(outputs[:, 0], targets)

    return task_of(nn.Linear(5, 1), poisson, dealt(X, visits), test=(X[:30], visits[:30]))


def over_dispersed_counts() -> Task:
    visits = whole(50, 120)

    def negative_binomial(outputs: Tensor, targets: Tensor) -> Tensor:
        total, logits = functional.softplus(outputs[:, 0]) + 0.1, outputs[:, 1]
        return -torch.distributions.NegativeBinomial(total, logits=logits).log_prob(targets).mean()

    return task_of(mlp(2), negative_binomial, dealt(X, visits), test=(X[:30], visits[:30]))


def survival() -> Task:
    seen = torch.stack(((-TRUTH).exp(), whole(2, 120).float()), 1)  # when, and whether it happened then

    def cox(risks: Tensor, targets: Tensor) -> Tensor:
        order = targets[:, 0].argsort(descending=True)
        risk, event = risks[order, 0], targets[order, 1]
        return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)

    return task_of(nn.Linear(5, 1), cox, dealt(X, seen), test=(X[:30], seen[:30]))


def ordinal() -> Task:
    grades = torch.bucketize(TRUTH, torch.tensor([-1.0, 0.0, 1.0]))

    def cumulative(outputs: Tensor, targets: Tensor) -> Tensor:
        above = (targets[:, None] > torch.arange(3)).float()
        return functional.binary_cross_entropy_with_logits(outputs, above)

    return task_of(mlp(3), cumulative, dealt(X, grades), test=(X[:30], grades[:30]))


def several_labels() -> Task:
    tags = torch.stack((TRUTH > 0, X[:, 0] > 0), 1)
    return task_of(mlp(2), nn.BCEWithLogitsLoss(), dealt(X, tags), test=(X[:30], tags[:30]))


def one_output_for_yes_and_no() -> Task:
    yes = (TRUTH > 0).float()[:, None]
    return task_of(nn.Linear(5, 1), nn.BCEWithLogitsLoss(), dealt(X, yes), test=(X[:30], yes[:30]))


def unbalanced_classes() -> Task:
    rare = (TRUTH > 1.5).long()
    return task_of(mlp(2), nn.CrossEntropyLoss(torch.tensor([0.1, 0.9])), dealt(X, rare), test=(X[:30], rare[:30]))


def focal() -> Task:
    labels = (TRUTH > 0).long()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        each = ENTROPY(outputs, targets, reduction="none")
        return ((1 - (-each).exp()) ** 2 * each).mean()

    return task_of(mlp(2), loss, dealt(X, labels), test=(X[:30], labels[:30]))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.dose = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.body(x).relu()
        return {"kind": self.kind(z), "dose": self.dose(z)[:, 0]}


def several_targets() -> Task:
    def loss(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
        dose = functional.mse_loss(outputs["dose"], targets["dose"])
        return ENTROPY(outputs["kind"], targets["kind"]) + dose

    targets = {"kind": (TRUTH > 0).long(), "dose": TRUTH}
    parts = [(X[k::NODES], {name: column[k::NODES] for name, column in targets.items()}) for k in range(NODES)]
    right = {"kind": lambda outputs, wanted: (outputs["kind"].argmax(1) == wanted["kind"]).float().mean()}
    return task_of(TwoHeads(), loss, parts, test=parts[0], metrics=right)


def some_targets_unknown() -> Task:
    wanted = torch.stack((TRUTH, X[:, 0]), 1)
    wanted[::4, 1] = math.nan

    def known_only(outputs: Tensor, targets: Tensor) -> Tensor:
        known = ~targets.isnan()
        return (torch.where(known, outputs - targets.nan_to_num(), 0.0) ** 2).sum() / known.sum().clamp(min=1)

    return task_of(nn.Linear(5, 2), known_only, dealt(X, wanted), test=(X[:30], wanted[:30]))


def frame(rows: int = 120) -> pd.DataFrame:
    found = pd.DataFrame(X[:rows].numpy(), columns=["age", "dose", "weight", "pressure", "pulse"])
    found["ill"] = (TRUTH[:rows] > 0).numpy().astype(int)
    found["hospital"] = np.array(["lyon", "nice", "paris"])[np.arange(rows) % 3]
    return found


def frame_with_gaps_filled() -> Task:
    found = frame()
    found.loc[::7, "age"] = np.nan
    found["age_unknown"] = found["age"].isna().astype(float)
    found["age"] = found["age"].fillna(found["age"].median())
    parts = list(wt.split(found, by="hospital").values())
    return task_of(mlp(2, 6), ENTROPY, parts, target="ill", test=found.drop(columns="hospital")[:30])


class FillsGaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.usual, self.head = nn.Parameter(torch.zeros(5)), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.where(x.isnan(), self.usual, x))


def a_model_that_fills_gaps() -> Task:
    gappy = X.clone()
    gappy[::5, 2] = math.nan
    labels = (TRUTH > 0).long()
    return task_of(FillsGaps(), ENTROPY, dealt(gappy, labels), test=(gappy[:30], labels[:30]))


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(20, 4), nn.Embedding(30, 4)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(1)


def ratings() -> Task:
    table = {"user": whole(20, 120), "item": whole(30, 120, seed=2), "stars": 1 + whole(5, 120, seed=3)}
    parts = [{name: column[k::NODES] for name, column in table.items()} for k in range(NODES)]

    def squares(outputs: Tensor, stars: Tensor) -> Tensor:
        return functional.mse_loss(outputs, stars.float())

    return task_of(Recommender(), squares, parts, target="stars", test=parts[0])


# No labels


def autoencoder() -> Task:
    return task_of(nn.Sequential(nn.Linear(5, 2), nn.Linear(2, 5)), nn.MSELoss(), dealt(X, X), test=(X[:30], X[:30]))


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(5, 4), nn.Linear(2, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.into(x).chunk(2, 1)
        return self.out(mean + torch.randn_like(mean) * (log_variance / 2).exp()), mean, log_variance


def variational() -> Task:
    def bound(outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
        seen, mean, log_variance = outputs
        apart = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return functional.mse_loss(seen, targets) + 0.1 * apart

    return task_of(Variational(), bound, dealt(X, X), test=(X[:30], X[:30]))


def supervised_contrast() -> Task:
    people = 5 + 20 * (X[:, 0] > 0).long()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        z = functional.normalize(outputs, dim=1)
        alike = (targets[:, None] == targets).float()
        return -(functional.log_softmax(z @ z.T, 1) * alike).sum() / alike.sum()

    return task_of(mlp(4), loss, dealt(X, people), test=(X[:30], people[:30]))


class TwoViews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = mlp(4)

    def forward(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(one), self.encoder(other)


def views_of_the_same() -> Task:
    def info_nce(outputs: tuple[Tensor, Tensor], numbers: Tensor) -> Tensor:
        one, other = (functional.normalize(z, dim=1) for z in outputs)
        return ENTROPY(one @ other.T / 0.5, torch.arange(len(one)))

    views = [(X[k::NODES], X[k::NODES] + 0.1, torch.arange(40)) for k in range(NODES)]
    parts = [list(zip(*view, strict=True)) for view in views]
    return task_of(TwoViews(), info_nce, parts, test=parts[0])


def triplets() -> Task:
    class Three(TwoViews):
        def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            return self.encoder(anchor), self.encoder(near), self.encoder(far)

    def loss(outputs: tuple[Tensor, ...], numbers: Tensor) -> Tensor:
        return functional.triplet_margin_loss(*outputs)

    columns = {"anchor": X, "near": X + 0.1, "far": X.flip(0), "labels": torch.arange(120)}
    parts = [{name: column[k::NODES] for name, column in columns.items()} for k in range(NODES)]
    return task_of(Three(), loss, parts, test=parts[0])


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = nn.Linear(3, 5), mlp(1)

    def forward(self, real: Tensor) -> dict[str, Tensor]:
        fake = self.generator(torch.randn(len(real), 3))
        judge = self.discriminator
        return {"real": judge(real), "fake": judge(fake.detach()), "fooled": judge(fake)}


def gan() -> Task:
    def losses(outputs: dict[str, Tensor], targets: Tensor) -> dict[str, Tensor]:
        judged, ones = functional.binary_cross_entropy_with_logits, torch.ones_like(outputs["real"])
        told = judged(outputs["real"], ones) + judged(outputs["fake"], 0 * ones)
        return {"discriminator": told, "generator": judged(outputs["fooled"], ones)}

    return task_of(
        Gan(), losses, dealt(X, whole(9, 120)), optimizers={"generator": wt.Adam(lr=0.01), "discriminator": 0.5}
    )


# Images


def segmentation() -> Task:
    images, masks = drawn(60, 1, 8, 8), whole(3, 60, 8, 8)
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
    return task_of(module, ENTROPY, dealt(images, masks), test=(images[:15], masks[:15]))


class Images(Dataset[Any]):
    """Images of any size, with as many boxes as there are."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, dict[str, Tensor]]:
        if not 0 <= number < self.count:
            raise IndexError
        chance = torch.Generator().manual_seed(100 * self.seed + number)
        high, wide, boxes = (int(n) for n in torch.randint(6, 11, (3,), generator=chance))
        where = torch.rand(boxes - 5, 4, generator=chance)
        return torch.randn(1, high, wide, generator=chance), {"boxes": where, "labels": torch.zeros(boxes - 5).long()}


class Detector(nn.Module):
    """Called with a list of images; says a box and a score for each of four places."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        return [self.head(functional.adaptive_avg_pool2d(self.body(image), 2).flatten(1).T) for image in images]


def nearest_box(outputs: list[Tensor], targets: list[dict[str, Tensor]]) -> Tensor:
    apart = [
        torch.cdist(wanted["boxes"], found[:, :4]).min(1).values.mean()
        for found, wanted in zip(outputs, targets, strict=True)
    ]
    return torch.stack(apart).mean()


def as_lists(batch: list[Any]) -> tuple[list[Any], list[Any]]:
    return [image for image, _ in batch], [target for _, target in batch]


def detection() -> Task:
    parts = [Images(12, k) for k in range(NODES)]
    return task_of(Detector(), nearest_box, parts, test=Images(6, 9), collate=as_lists, metrics={"apart": nearest_box})


def padded_images(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    high, wide = (max(image.shape[k] for image, _ in batch) for k in (1, 2))

    def padded(x: Tensor, value: float) -> Tensor:
        return functional.pad(x, (0, wide - x.shape[-1], 0, high - x.shape[-2]), value=value)

    return torch.stack([padded(i, 0) for i, _ in batch]), torch.stack([padded(m, -100) for _, m in batch])


def segmentation_of_any_size() -> Task:
    sizes = whole(4, 48, 2) + 6
    data = [(drawn(1, int(h), int(w), seed=k), whole(2, int(h), int(w), seed=k)) for k, (h, w) in enumerate(sizes)]
    pixels = {"pixels": lambda outputs, masks: (outputs.argmax(1) == masks)[masks >= 0].float().mean()}
    parts = [data[k::NODES] for k in range(NODES)]
    return task_of(nn.Conv2d(1, 2, 3, padding=1), ENTROPY, parts, test=data[:9], collate=padded_images, metrics=pixels)


# Texts and series


class Bag(nn.Module):
    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(40, 8, padding_idx=0), nn.Linear(8, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        there = (tokens > 0).sum(1, keepdim=True)
        return self.head(self.words(tokens).sum(1) / there)


TEXTS = [(1 + whole(39, 3 + k % 7, seed=k), k % 2) for k in range(96)]


def padded(batch: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    return nn.utils.rnn.pad_sequence([text for text, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


def texts_of_any_length() -> Task:
    parts = [TEXTS[k::NODES] for k in range(NODES)]
    return task_of(Bag(), ENTROPY, parts, test=TEXTS[:20], collate=padded)


def texts_from_loaders() -> Task:
    parts = [DataLoader(TEXTS[k::NODES], batch_size=4, collate_fn=padded) for k in range(NODES)]
    test = DataLoader(TEXTS[:20], batch_size=4, collate_fn=padded)
    return task_of(Bag(), ENTROPY, parts, test=test, metrics={"right": lambda o, t: (o.argmax(1) == t).float().mean()})


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.reader, self.head = nn.Embedding(40, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.reader(packed)[0], batch_first=True)[0])


def tags_of_every_word() -> Task:
    def batch(samples: list[Tensor]) -> dict[str, Tensor]:
        tokens = nn.utils.rnn.pad_sequence(samples, batch_first=True)
        tags = nn.utils.rnn.pad_sequence([text % 3 for text in samples], batch_first=True, padding_value=-100)
        return {"tokens": tokens, "lengths": torch.tensor([len(text) for text in samples]), "labels": tags}

    def loss(outputs: Tensor, tags: Tensor) -> Tensor:
        return ENTROPY(outputs.flatten(0, 1), tags.flatten(), ignore_index=-100)

    texts = [text for text, _ in TEXTS]
    return task_of(Tagger(), loss, [texts[k::NODES] for k in range(NODES)], test=texts[:20], collate=batch)


class NextWord(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.reader, self.head = nn.Embedding(40, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 40)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.reader(self.words(tokens))[0])


def next_word() -> Task:
    tokens = whole(40, 60, 7)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return ENTROPY(outputs.transpose(1, 2), targets)

    return task_of(NextWord(), loss, dealt(tokens[:, :-1], tokens[:, 1:]), test=(tokens[:15, :-1], tokens[:15, 1:]))


def forecast_of_a_series() -> Task:
    series = torch.sin(torch.arange(20.0) / 3 + drawn(60, 1))
    module = nn.Sequential(nn.Unflatten(1, (1, 16)), nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    return task_of(
        module, nn.L1Loss(), dealt(series[:, :16], series[:, 16:]), test=(series[:15, :16], series[:15, 16:])
    )


def spoken_letters() -> Task:
    sounds, letters = drawn(48, 12, 4), 1 + whole(5, 48, 3)

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 6)

        def forward(self, sound: Tensor) -> Tensor:
            return self.head(self.reader(sound)[0]).log_softmax(2)

    def ctc(outputs: Tensor, targets: Tensor) -> Tensor:
        count = len(targets)
        lengths = torch.full((count,), outputs.shape[1]), torch.full((count,), targets.shape[1])
        return functional.ctc_loss(outputs.transpose(0, 1), targets, *lengths)

    return task_of(Listener(), ctc, dealt(sounds, letters), test=(sounds[:12], letters[:12]))


# Graphs


class Graph:
    """A batch of graphs as libraries of graphs have it: an object with attributes."""

    def __init__(self, x: Tensor, edges: Tensor, of: Tensor, y: Tensor) -> None:
        self.x, self.edges, self.of, self.y = x, edges, of, y

    def to(self, device: torch.device) -> Graph:
        return Graph(*(part.to(device) for part in (self.x, self.edges, self.of, self.y)))


def graphs(count: int) -> list[Graph]:
    found = []
    for k in range(count):
        nodes = 3 + k % 5
        x = drawn(nodes, 4, seed=k)
        found.append(
            Graph(x, whole(nodes, 2, 2 * nodes, seed=k), torch.zeros(nodes).long(), (x.sum() > 0).long()[None])
        )
    return found


def one_graph(batch: list[Graph]) -> Graph:
    starts = np.cumsum([0, *(len(graph.x) for graph in batch)]).tolist()
    return Graph(
        torch.cat([graph.x for graph in batch]),
        torch.cat([graph.edges + start for graph, start in zip(batch, starts, strict=False)], 1),
        torch.cat([torch.full((len(graph.x),), k) for k, graph in enumerate(batch)]),
        torch.cat([graph.y for graph in batch]),
    )


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.near, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, batch: Graph) -> Tensor:
        heard = torch.zeros_like(batch.x).index_add(0, batch.edges[1], batch.x[batch.edges[0]])
        z = (self.own(batch.x) + self.near(heard)).relu()
        return self.head(z.new_zeros(len(batch.y), 8).index_add(0, batch.of, z))


def classes_of_graphs() -> Task:
    data = graphs(60)
    return task_of(GraphNet(), ENTROPY, [data[k::NODES] for k in range(NODES)], test=data[:15], collate=one_graph)


def classes_of_the_nodes_of_a_graph() -> Task:
    class NodeNet(GraphNet):
        def forward(self, batch: Graph) -> Tensor:
            return self.head(self.own(batch.x).relu())

    def every_node(batch: list[Graph]) -> Graph:
        found = one_graph(batch)
        found.y = (found.x[:, 0] > 0).long()
        return found

    data = graphs(60)
    return task_of(NodeNet(), ENTROPY, [data[k::NODES] for k in range(NODES)], test=data[:15], collate=every_node)


def sets_of_points() -> Task:
    class Sets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.all = nn.Linear(2, 8), nn.Linear(8, 2)

        def forward(self, sets: list[Tensor]) -> Tensor:
            return self.all(torch.stack([self.each(points).relu().mean(0) for points in sets]))

    def batch(samples: list[tuple[Tensor, int]]) -> tuple[list[Tensor], Tensor]:
        return [points for points, _ in samples], torch.tensor([label for _, label in samples])

    data = [(drawn(2 + k % 5, 2, seed=k), k % 2) for k in range(60)]
    return task_of(Sets(), ENTROPY, [data[k::NODES] for k in range(NODES)], test=data[:15], collate=batch)


WITH_ACCURACY: list[Callable[[], Task]] = [
    unbalanced_classes, focal, frame_with_gaps_filled, a_model_that_fills_gaps, segmentation, texts_of_any_length,
    texts_from_loaders, next_word, classes_of_graphs, sets_of_points,
]  # fmt: skip
OTHERS: list[Callable[[], Task]] = [
    regression, quantiles_of_days, counts, over_dispersed_counts, survival, ordinal, several_labels,
    one_output_for_yes_and_no, several_targets, some_targets_unknown, ratings, autoencoder, variational,
    supervised_contrast, views_of_the_same, triplets, gan, detection, segmentation_of_any_size, tags_of_every_word,
    forecast_of_a_series, spoken_letters, classes_of_the_nodes_of_a_graph,
]  # fmt: skip


EVERY = pytest.mark.parametrize("make", [*WITH_ACCURACY, *OTHERS], ids=lambda make: make.__name__)


@EVERY
def test_it_trains_and_is_compared(make):
    torch.manual_seed(0)
    task = make()
    found = wt.compare(
        task, [wt.MultiWalk(walks=1), wt.AsyncGossip()], wt.graphs.complete(NODES), stop=60, evaluate=30,
        optimizer=wt.SGD(lr=0.02), batch_size=8, local_steps=2, device="cpu", seed=1,
    )  # fmt: skip
    for _, run in found.history.groupby("algorithm"):
        losses = run.sort_values("iteration")["train_loss"].tolist()
        assert all(math.isfinite(loss) for loss in losses)
        assert make is gan or losses[-1] < losses[0]  # of a GAN nothing goes down
        if task.test is not None:
            accuracy = run["test_accuracy"].iloc[-1]
            assert (0 <= accuracy <= 1) if make in WITH_ACCURACY else math.isnan(accuracy)


def named(make: Callable[[], Task], **more: Any) -> StudySpec:
    """A study of a workload by its name, as nodes in other processes build it."""
    study = {
        "name": "workload",
        "task": {"name": f"{__name__}:{make.__name__}"},
        "network": {"topology": "complete", "nodes": NODES},
        "training": {"batch_size": 8, "local_steps": 2},
        "optimizer": {"lr": 0.02},
        "algorithms": [{"name": "async_gossip"}],
        "stop": {"iterations": 24},
        "evaluate": {"every": 12},
    }
    return make_spec({**study, **more})


@EVERY
def test_a_node_alone_trains_and_measures_its_part(make):
    """What a real node does with its data, without its network; `test_real_nodes_train_it` has that, too."""
    spec = named(make, evaluate={"every": 12, "validation": 0.2})
    base, node = build_foundation(spec), tasks.Node(None, 1)
    trainer = build_trainer(spec, base.task_of(node), "cpu", node=node)
    row = trainer.initial_row(base.initial_seed(0))
    given = TrainingRows(row[None], torch.tensor([0]), torch.tensor([5]), torch.tensor([0.02]))
    trained = trainer.train(given).rows[0]
    assert not torch.equal(trained, row)
    measured = trainer.measure(trained[None])
    assert math.isfinite(float(measured["train_loss"][0]))
    assert math.isfinite(float(measured["valid_loss"][0]))


@pytest.mark.slow
@EVERY
def test_it_is_advised_on(make):
    how = {"stop": 30, "evaluate": 10, "optimizer": wt.SGD(lr=0.02), "batch_size": 8, "local_steps": 2, "device": "cpu"}
    if make is gan:
        with pytest.raises(UserError, match="follows a loss of its own, so there is none to advise by; compare"):
            wt.advise(make(), wt.graphs.complete(NODES), algorithms=["async_gossip"], **how)
        return
    advice = wt.advise(make(), wt.graphs.complete(NODES), objective="iterations", algorithms=["async_gossip"], **how)
    assert advice.best.lr > 0
    assert "iterations" in repr(advice)


@pytest.mark.slow
@EVERY
def test_real_nodes_train_it(make, tmp_path):
    run_on_peers(named(make), tmp_path / "out")
    losses = read_history(tmp_path / "out" / "history.csv")["train_loss"]
    assert np.isfinite(losses).all()
    assert make is gan or losses.iloc[-1] < losses.iloc[0]


def short_of_collate() -> Task:
    return task_of(Bag(), ENTROPY, [TEXTS[k::NODES] for k in range(NODES)])


def a_class_too_many() -> Task:
    return task_of(mlp(2), lambda outputs, labels: ENTROPY(outputs, labels), dealt(X, whole(3, 120)))


def a_frame_with_gaps() -> Task:
    found = frame()
    found.loc[3, "age"] = np.nan
    return task_of(mlp(2), ENTROPY, list(wt.split(found, by="hospital").values()), target="ill")


def a_frame_with_words() -> Task:
    found = frame()
    found["town"] = "Lyon"
    return task_of(mlp(2), ENTROPY, list(wt.split(found, by="hospital").values()), target="ill")


def a_loss_of_each_sample() -> Task:
    return task_of(mlp(1), nn.MSELoss(reduction="none"), dealt(X, TRUTH[:, None]))


def a_batch_without_targets() -> Task:
    def batch(samples: list[Graph]) -> Graph:
        found = one_graph(samples)
        del found.y
        return found

    data = graphs(12)
    return task_of(GraphNet(), ENTROPY, [data[k::NODES] for k in range(NODES)], collate=batch)


def a_ragged_batch_that_the_model_does_not_take() -> Task:
    return task_of(nn.Linear(5, 2), ENTROPY, [TEXTS[k::NODES] for k in range(NODES)], collate=padded)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (short_of_collate, "of equal shape.*pad or cut them, or say collate="),
        (a_class_too_many, "there is a target 2, but the model has 2 outputs"),
        (a_frame_with_gaps, "column 'age' has no value in 1 rows, first in row 3; fill them, or drop those rows"),
        (a_frame_with_words, "column 'town' has no numbers .*encode it"),
        (a_loss_of_each_sample, "the loss should be one number"),
        (a_batch_without_targets, "a batch is a Graph without labels or label .*; name its targets"),
        (a_ragged_batch_that_the_model_does_not_take, "the model or its loss fails on its own data"),
    ],
)
def test_what_cannot_be_ends_in_one_line(make, words):
    with pytest.raises(UserError, match=words) as caught:
        wt.train(make(), wt.AsyncGossip(), wt.graphs.complete(NODES), stop=2, device="cpu")
    assert "\n" not in str(caught.value)
