"""Data as people have it: whatever its form, the task is the same; what cannot be taken is said in one line."""

from __future__ import annotations

import copy
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import walktalk as wt
from tests.learning import plain
from walktalk.core.errors import DataError, ModelError
from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.learning.samples import Column
from walktalk.learning.user_data import Packing

X, Y = plain.images(40, 6), plain.classes(40, count=3)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class OnDisk(Dataset):
    """Samples that are counted as they are read, and never all at once."""

    def __init__(self, first: int, last: int) -> None:
        self.numbers, self.reads, self.most = range(first, last), 0, 0

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitems__(self, places: list[int]) -> list[tuple[torch.Tensor, int]]:
        self.reads, self.most = self.reads + len(places), max(self.most, len(places))
        return [self[k] for k in places]

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return X[self.numbers[k]], int(Y[self.numbers[k]])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X[25:], Y[25:], strict=True))


class TwoSided(nn.Module):
    """Takes its inputs by name, and puts out a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = nn.Linear(2, 5), nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, left, right):
        return {"logits": self.out(torch.tanh(self.left(left) + self.right(right)))}


class WithOwnLoss(TwoSided):
    def forward(self, left, right, labels=None):
        outputs = super().forward(left, right)
        return {"loss": functional.cross_entropy(outputs["logits"], labels), **outputs}


class HuggingFace:
    """As much of a `datasets.Dataset` as is used here."""

    def __init__(self, columns: dict[str, list], kind: str | None = None) -> None:
        self.columns, self.format = columns, {"type": kind}

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def select_columns(self, names: list[str]) -> HuggingFace:
        return HuggingFace({name: self.columns[name] for name in names})

    def with_format(self, kind: str) -> HuggingFace:
        return HuggingFace(self.columns, kind)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, places: list[int]) -> list[dict]:
        assert self.format["type"] == "torch"
        return [{name: torch.as_tensor(values[k]) for name, values in self.columns.items()} for k in places]

    def __getitem__(self, k: int) -> dict:
        return self.__getitems__([k])[0]


def named(first: int, last: int) -> dict:
    return {"left": X[first:last, :2], "right": X[first:last, 2:], "labels": Y[first:last]}


def one_training(task, key: int = 3):
    trainer = Trainer(task, batch_size=4)
    row = trainer.initial_row(0)[None]
    trained, _ = trainer.train(TrainingRows(row, torch.tensor([1]), torch.tensor([key]), torch.tensor([0.1])))
    return trained, trainer.evaluate(trained)[:2]


FRAME = pd.DataFrame(X.numpy(), columns=list("abcdef")).assign(label=Y.numpy())


@pytest.mark.parametrize(
    "second",
    [
        lambda: DataLoader(TensorDataset(X[25:], Y[25:]), batch_size=4, shuffle=True),
        lambda: DataLoader(Stream(), batch_size=4),
        Stream,
        lambda: (pair for pair in zip(X[25:].split(4), Y[25:].split(4), strict=True)),
        lambda: (pair for pair in zip(X[25:], Y[25:], strict=True)),
        lambda: FRAME[25:],
        lambda: {"x": X[25:], "label": Y[25:]},
        lambda: OnDisk(25, 40),
        lambda: HuggingFace({"x": X[25:].tolist(), "text": ["a"] * 15, "label": Y[25:].tolist()}).select_columns(
            ["x", "label"]
        ),
    ],
    ids=["loader", "loader of a stream", "stream", "batches", "samples", "frame", "columns", "on disk", "hugging face"],
)
def test_the_task_is_the_same_whatever_the_form(second):
    reference = tasks.torch(perceptron, functional.cross_entropy, [(X[:25], Y[:25]), (X[25:], Y[25:])], (X, Y))
    first = {True: FRAME[:25], False: (X[:25], Y[:25])}
    data = second()
    if isinstance(data, (dict, HuggingFace)):  # all nodes have the same columns
        first[False] = {"x": X[:25], "label": Y[:25]}
    test = first[False] if isinstance(first[False], dict) else (X[:25], Y[:25])
    task = tasks.torch(
        perceptron, functional.cross_entropy, [first[isinstance(data, pd.DataFrame)], lambda: data], test=test
    )
    assert [len(part) for part in task.parts] == [25, 15]
    assert torch.equal(task.inputs, reference.inputs)
    assert torch.equal(task.targets, reference.targets)
    assert torch.equal(one_training(task)[0], one_training(reference)[0])


# -- larger than memory -----------------------------------------------------------------------------------------------


def test_samples_that_are_read_batch_by_batch_give_the_same_run():
    parts = [OnDisk(0, 25), OnDisk(25, 40)]
    held_out = OnDisk(0, 40)
    here = tasks.torch(perceptron, functional.cross_entropy, parts, held_out)
    there = tasks.torch(perceptron, functional.cross_entropy, parts, held_out, in_memory=False)
    assert isinstance(there.inputs, Column)
    (trained, measured), (expected, reference) = one_training(there), one_training(here)
    assert torch.allclose(trained, expected, atol=1e-6)
    for mine, other in zip(measured, reference, strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


def test_a_training_reads_its_own_batches_and_each_sample_once():
    parts = [OnDisk(0, 25), OnDisk(25, 40)]
    task = tasks.torch(perceptron, functional.cross_entropy, parts, in_memory=False)
    trainer = Trainer(task, batch_size=4, local_steps=3)
    before = [part.reads for part in parts]
    trainer.train(TrainingRows(trainer.initial_row(0)[None], torch.tensor([1]), torch.tensor([3]), torch.tensor([0.1])))
    assert [part.reads - n for part, n in zip(parts, before, strict=True)] == [0, 12]  # inputs and targets together
    assert trainer.data_bytes == 0
    assert max(part.most for part in parts) <= 25 + 15


def test_what_does_not_fit_is_not_put_into_memory(monkeypatch):
    monkeypatch.setattr("walktalk.learning.tasks.own.machine_memory", lambda: 1000.0)
    assert isinstance(tasks.torch(perceptron(), functional.cross_entropy, [OnDisk(0, 40)]).inputs, Column)
    assert isinstance(tasks.torch(perceptron(), functional.cross_entropy, [OnDisk(0, 9)]).inputs, torch.Tensor)
    with pytest.raises(DataError, match=r"partitions\[0\]: it gives more than .* only be gone through once"):
        tasks.torch(perceptron(), functional.cross_entropy, [iter(zip(X.split(1), Y.split(1), strict=True))])


def test_one_nodes_samples_of_those_on_disk():
    task = tasks.torch(perceptron(), functional.cross_entropy, [OnDisk(0, 25), OnDisk(25, 40)], in_memory=False)
    mine = task.only(1)
    assert isinstance(mine.inputs, Column)
    assert torch.equal(mine.inputs[:], X[25:])
    assert torch.equal(mine.targets[torch.tensor([[3, 1]])], Y[25:][[3, 1]].view(1, 2))


# -- dictionaries in, dictionaries out --------------------------------------------------------------------------------


def test_packing_gives_back_every_bit():
    columns = {
        "ids": torch.randint(-(2**62), 2**62, (5, 3)),
        "mask": torch.rand(5, 7) > 0.5,
        "floats": torch.randn(5, 2, 3),
        "one": torch.tensor([1, 2, 3, 4, 5], dtype=torch.int32),
    }
    packing = Packing(columns)
    packed = packing.pack(columns)
    assert packed.shape == (5, packing.words)
    for name, column in packing.unpack(packed[[4, 0]]).items():
        assert torch.equal(column, columns[name][[4, 0]])
        assert column.dtype == columns[name].dtype


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_model_that_takes_its_inputs_by_name(in_memory):
    module = TwoSided()
    parts = [
        HuggingFace({name: values.tolist() for name, values in named(*ends).items()}) for ends in ((0, 25), (25, 40))
    ]
    task = tasks.torch(module, functional.cross_entropy, parts, named(0, 40), in_memory=in_memory)
    trained, (losses, accuracies) = one_training(task)
    trainer = Trainer(task, batch_size=4)
    found = trainer.module(trained[0])
    assert type(found) is TwoSided
    assert list(found.state_dict()) == list(module.state_dict())
    logits = found(X[:, :2], X[:, 2:])["logits"].detach()
    assert float(losses) == pytest.approx(float(functional.cross_entropy(logits, Y)), rel=1e-5)
    assert float(accuracies) == pytest.approx(float((logits.argmax(1) == Y).float().mean()))


def test_a_model_that_computes_its_own_loss():
    module = WithOwnLoss()
    plain_one = TwoSided()
    plain_one.load_state_dict(module.state_dict())
    own = tasks.torch(module, None, [named(0, 25), named(25, 40)], named(0, 40))
    other = tasks.torch(plain_one, functional.cross_entropy, [named(0, 25), named(25, 40)], named(0, 40))
    (trained, measured), (expected, reference) = one_training(own), one_training(other)
    assert torch.allclose(trained, expected, atol=1e-6)
    for mine, theirs in zip(measured, reference, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_ways_to_take_several_inputs():
    class Batch(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = TwoSided()

        def forward(self, batch):
            return self.inner(batch["left"], batch["right"])["logits"]

    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = TwoSided()

        def forward(self, a, b):
            return self.inner(a, b)["logits"]

    first, second = Batch(), Several()
    second.load_state_dict(first.state_dict())
    a = one_training(tasks.torch(first, functional.cross_entropy, [named(0, 25), named(25, 40)]))[0]
    triples = [TensorDataset(X[:25, :2], X[:25, 2:], Y[:25]), TensorDataset(X[25:, :2], X[25:, 2:], Y[25:])]
    b = one_training(tasks.torch(second, functional.cross_entropy, triples))[0]
    assert torch.allclose(a, b, atol=1e-6)
    with pytest.raises(ModelError, match="forward takes a, b, but the data has the columns left, right"):
        tasks.torch(Several(), functional.cross_entropy, [named(0, 40)])
    with pytest.raises(ModelError, match="takes no labels"):
        tasks.torch(TwoSided(), None, [named(0, 40)])


# -- frames -----------------------------------------------------------------------------------------------------------


def test_a_frame_with_chosen_columns_and_several_targets():
    frame = FRAME.assign(note="a", cost=X[:, 0].numpy())
    task = tasks.torch(
        nn.Linear(3, 2), functional.mse_loss, [frame], target=["cost", "a"], columns=["b", "c", "d"], test=frame
    )
    assert torch.equal(task.inputs, X[:, 1:4])
    assert task.targets.shape == (40, 2)


class Samples(Dataset):
    """Dictionaries, one a sample, as Hugging Face has them."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns["x"])

    def __getitem__(self, place):
        return {name: column[place] for name, column in self.columns.items()}


COSTS = {"x": X[:, 1:3], "cost": X[:, 0], "ward": Y}


@pytest.mark.parametrize(
    "data", [pd.DataFrame({"b": X[:, 1], "c": X[:, 2], "cost": X[:, 0], "ward": Y}), COSTS, Samples(COSTS)]
)
def test_a_list_of_one_measured_target_fits_a_linear_layer_of_one_output(data):
    """Regression as everybody writes it; a bare name and classes have one dimension."""
    columns = ["b", "c"] if isinstance(data, pd.DataFrame) else ["x"]

    def task(outputs, loss, target):
        return tasks.torch(nn.Linear(2, outputs), loss, [data], target=target, columns=columns)

    listed = task(1, functional.mse_loss, ["cost"])
    assert listed.targets.shape == (40, 1)
    Trainer(listed)
    assert task(1, functional.mse_loss, "cost").targets.shape == (40,)
    assert task(9, functional.cross_entropy, ["ward"]).targets.shape == (40,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(sex="f"), r"column 'sex' has no numbers .* pandas.get_dummies"),
        (lambda f: f.assign(a=f["a"].where(f.index > 2)), r"column 'a' has no value in 3 rows, first in row 0; fill"),
        (lambda f: f.assign(a=f["a"].where(f.index != 4, math.inf)), r"'a' is infinite, .* in 1 rows, first in row 4;"),
        (
            lambda f: f.assign(a=f["a"].astype(float).where(f.index != 4, 1e300)),
            r"'a' is infinite, .* in 1 rows, first in row 4;",
        ),
        (lambda f: f.iloc[:0].astype(object), r"partitions\[0\]: has no rows; every node needs at least one sample"),
        (lambda f: f.rename(columns={"label": "outcome"}), r"which of its columns are the targets\? Say target="),
    ],
)
def test_frames_that_cannot_be_used_as_they_are(change, words):
    with pytest.raises(DataError, match=words):
        tasks.torch(perceptron(), functional.cross_entropy, [change(FRAME)])


# -- what is no number ------------------------------------------------------------------------------------------------


def one_output() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))


def spoilt(values, *places, by=math.nan):
    """A copy with a few numbers that are none."""
    values = values.clone()
    for place in places:
        values[place] = by
    return values


@pytest.mark.parametrize("part", [None, "nice"])
@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (spoilt(X, (7, 2), (9, 0)), Y, r"inputs have NaN in 2 of 40 samples, first in sample 7, column 2; fill"),
        (
            spoilt(X, (0, 1), by=-math.inf),
            Y,
            r"inputs have infinity, .* in 1 of 40 samples, first in sample 0, column 1;",
        ),
        (spoilt(X.double(), (3, 0), by=1e300), Y, r"inputs have infinity, or more than 32 bits hold, in 1 of 40"),
        (spoilt(X.half(), (3, 0)), Y, r"inputs have NaN in 1 of 40 samples, first in sample 3, column 0;"),
    ],
)
def test_inputs_that_are_no_numbers_are_told_before_anything_is_trained(x, y, words, part):
    """With the node, the sample and the column; also where a site reads its own part alone."""
    model = perceptron().to(x.dtype) if x.dtype == torch.half else perceptron()
    partitions = {"lyon": (X.to(x.dtype), Y), "nice": (x, y)}
    for data in (partitions, {name: TensorDataset(*pair) for name, pair in partitions.items()}):
        with pytest.raises(DataError, match=rf"partitions\['nice'\]: {words}"):
            tasks.torch(model, functional.cross_entropy, data, part=part)


def test_other_columns_that_are_no_numbers():
    measured, images = torch.randn(40), torch.randn(40, 2, 3, 3)
    with pytest.raises(
        DataError, match=r"partitions\[0\]: targets have NaN in 1 of 40 samples, first in sample 5; fill"
    ):
        tasks.torch(one_output(), functional.mse_loss, [(X, spoilt(measured, 5))])
    model = nn.Sequential(nn.Flatten(), nn.Linear(18, 3))
    with pytest.raises(DataError, match=r"inputs have NaN in 1 of 40 samples, first in sample 6, at \(1, 0, 2\);"):
        tasks.torch(model, functional.cross_entropy, [(spoilt(images, (6, 1, 0, 2)), Y)])
    with pytest.raises(DataError, match=r"test: inputs have NaN in 1 of 40 samples"):
        tasks.torch(perceptron(), functional.cross_entropy, [(X, Y)], test=(spoilt(X, (1, 1)), Y))


def test_what_model_and_loss_take_care_of_is_no_mistake():
    """Gaps that the model fills, labels that the loss leaves out, masks of minus infinity."""
    filling = nn.Sequential(Filling(), perceptron())
    assert tasks.torch(filling, functional.cross_entropy, [(spoilt(X, (7, 2)), Y)]).inputs.isnan().any()

    def where_known(outputs, targets):
        return functional.mse_loss(outputs[targets.isfinite()], targets[targets.isfinite()])

    known = torch.randn(40)
    known[:35] = math.nan
    assert tasks.torch(one_output(), where_known, [(X, known)]).targets.isnan().sum() == 35


def test_a_model_or_a_loss_that_fails_of_nan_alone_does_not_bear_it():
    """Torch's binary cross entropy raises where an output is no probability, which NaN is not."""
    sure = nn.Sequential(one_output(), nn.Sigmoid())
    yes = (Y > 0).float()
    tasks.torch(sure, functional.binary_cross_entropy, [(X, yes)])
    with pytest.raises(DataError, match="inputs have NaN in 1 of 40 samples, first in sample 7, column 2; fill"):
        tasks.torch(sure, functional.binary_cross_entropy, [(spoilt(X, (7, 2)), yes)])
    with pytest.raises(DataError, match="inputs have NaN in 1 of 40 samples"):
        tasks.torch(nn.Sequential(Strict(), perceptron()), functional.cross_entropy, [(spoilt(X, (7, 2)), Y)])


def test_a_loss_that_fails_of_all_samples_is_told_of_as_that_and_not_as_nan_in_the_data():
    def broken(outputs, targets):
        raise RuntimeError("no such thing")

    task = tasks.torch(perceptron(), broken, [(spoilt(X, (7, 2)), Y)])
    assert task.inputs.isnan().any()


class Strict(nn.Module):
    def forward(self, x):
        if x.isnan().any():
            raise ValueError("NaN")
        return x


class Filling(nn.Module):
    def forward(self, x):
        return x.nan_to_num()


def test_samples_that_stay_where_they_are_are_not_read_to_look_for_nan():
    data = OnDisk(0, 40)
    tasks.torch(perceptron(), functional.cross_entropy, [data], in_memory=False)
    assert data.reads <= 4


# -- who has what -----------------------------------------------------------------------------------------------------


def test_partitions_by_name_and_a_site_that_reads_its_own_alone():
    read = []

    def reader(name):
        read.append(name)
        ends = {"north": (0, 25), "south": (25, 40)}[name]
        return X[slice(*ends)], Y[slice(*ends)]

    for partitions in ({name: lambda name=name: reader(name) for name in ("north", "south")}, reader):
        read.clear()
        task = tasks.torch(perceptron(), functional.cross_entropy, partitions, names=["north", "south"])
        assert task.names == ("north", "south")
        assert read == ["north", "south"]
        read.clear()
        mine = tasks.torch(perceptron(), functional.cross_entropy, partitions, names=["north", "south"], part="south")
        assert read == ["south"]
        assert mine.names == ("south",)
        assert torch.equal(mine.inputs, X[25:])
        with pytest.raises(DataError, match="no data for 'east'; there is for north, south"):
            tasks.torch(perceptron(), functional.cross_entropy, partitions, names=["north", "south"], part="east")


def test_federated_data_sets():
    class Federated:
        """As `flwr_datasets.FederatedDataset`."""

        def __init__(self):
            self.partitioners = {"train": type("Partitioner", (), {"num_partitions": 4})()}
            self.loaded = []

        def load_partition(self, partition_id, split=None):
            self.loaded.append(partition_id)
            part = slice(10 * partition_id, 10 * partition_id + 10)
            return HuggingFace({"x": X[part].tolist(), "label": Y[part].tolist()})

    data = Federated()
    task = tasks.torch(perceptron(), functional.cross_entropy, data)
    assert torch.equal(task.inputs, X)
    data.loaded.clear()
    assert torch.equal(tasks.torch(perceptron(), functional.cross_entropy, data, part=2).inputs, X[20:30])
    assert data.loaded == [2]


def test_each_nodes_own_test_data():
    parts = {"north": (X[:25], Y[:25]), "south": (X[25:], Y[25:])}
    task = tasks.torch(perceptron(), functional.cross_entropy, parts, test={"south": (X[:5], Y[:5]), "north": (X, Y)})
    assert [len(part) for part in task.test_parts] == [40, 5]
    assert torch.equal(task.only(1).test[0], X[:5])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partitions": 7}, "a list with one entry per node or a dictionary"),
        ({"partitions": lambda name: (X, Y)}, "names: are missing"),
        ({"partitions": [(X, Y)], "names": ["a", "b"]}, "names: there are 2 for 1"),
        ({"partitions": {"a": (X, Y)}, "names": ["b"]}, "are not those of partitions"),
        ({"partitions": [(X, Y)], "part": "a"}, "nodes have no names; give names"),
        ({"partitions": {"b": (X, Y)}, "part": "a"}, "there is for b; add it to the task's names, or say whose data"),
        ({"partitions": [{"x": X, "y": Y}], "target": "z"}, "no column 'z' for target"),
        ({"partitions": [{"x": X, "y": Y}], "columns": ["z"]}, "no column 'z'"),
        ({"partitions": [{"x": ["a"] * 40, "y": Y}]}, r"partitions\[0\]: x cannot become a tensor of numbers"),
    ],
)
def test_mistakes_in_one_line(given, words):
    with pytest.raises(DataError, match=words) as caught:
        tasks.torch(perceptron(), functional.cross_entropy, **given)
    assert "\n" not in str(caught.value)


def test_classes_where_one_of_them_was_meant():
    with pytest.raises(ModelError, match=r"loss: CrossEntropyLoss is a class; give one of it, CrossEntropyLoss\(\)"):
        tasks.torch(perceptron(), nn.CrossEntropyLoss, [(X, Y)])
    with pytest.raises(ModelError, match=r"module: Linear cannot be called without arguments \(missing.*in_features"):
        tasks.torch(nn.Linear, functional.cross_entropy, [(X, Y)])


# -- weights ----------------------------------------------------------------------------------------------------------


def test_a_modules_own_weights_are_where_training_starts():
    module = perceptron()
    task = tasks.torch(module, functional.cross_entropy, [(X, Y)] * 3)
    run = wt.train(task, wt.MultiWalk(walks=1), wt.graphs.complete(3), stop=wt.Stop(iterations=5), device="cpu")
    expected = float(functional.cross_entropy(module(X), Y).detach())
    assert run.history["train_loss"].iloc[0] == pytest.approx(expected, rel=1e-5)
    again = tasks.torch(perceptron(), functional.cross_entropy, [(X, Y)] * 3, init=run.model)
    on = wt.train(again, wt.MultiWalk(walks=1), wt.graphs.complete(3), stop=wt.Stop(iterations=5), device="cpu")
    assert on.history["train_loss"].iloc[0] == pytest.approx(run.history["train_loss"].iloc[-1], rel=1e-5)


def test_fresh_weights_are_asked_for():
    module = perceptron()
    kept = tasks.torch(module, functional.cross_entropy, [(X, Y)])
    fresh = tasks.torch(module, functional.cross_entropy, [(X, Y)], fresh=True)
    made = tasks.torch(perceptron, functional.cross_entropy, [(X, Y)])
    assert torch.equal(plain.numbers(kept.initial(1)), plain.numbers(module))
    assert torch.equal(plain.numbers(kept.initial(2)), plain.numbers(module))
    assert torch.equal(plain.numbers(fresh.initial(1)), plain.numbers(made.initial(1)))
    assert not torch.equal(plain.numbers(made.initial(1)), plain.numbers(made.initial(2)))

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(6, 3))

        def forward(self, x):
            return x @ self.weight

    with pytest.raises(ModelError, match="fresh: weight cannot start afresh, since Raw has no reset_parameters"):
        tasks.torch(Raw(), functional.cross_entropy, [(X, Y)], fresh=True)


def test_weights_from_a_file(tmp_path):
    from safetensors.torch import save_file

    module, other = perceptron(), perceptron()
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    for init in (tmp_path / "model.safetensors", str(tmp_path), module.state_dict(), module):
        task = tasks.torch(copy.deepcopy(other), functional.cross_entropy, [(X, Y)], init=init)
        assert torch.equal(plain.numbers(task.initial(0)), plain.numbers(module))
    torch.save(module.state_dict(), tmp_path / "model.pt")
    for init, words in (
        (tmp_path / "nothing", "cannot be read"),
        (tmp_path / "model.pt", "no safetensors file"),
        ({"0.weight": X}, "do not fit"),
        (nn.Linear(6, 3).state_dict(), "another model's"),
        (7, "not int"),
    ):
        with pytest.raises(ModelError, match=words):
            tasks.torch(other, functional.cross_entropy, [(X, Y)], init=init)


def test_outputs_and_targets_of_different_shape_are_not_broadcast():
    task = tasks.torch(nn.Linear(6, 1), functional.mse_loss, [(X, X[:, 0])])
    with pytest.raises(ModelError, match="target size"):
        Trainer(task)


def test_numbers_of_samples_of_one_batch_may_come_in_any_order():
    task = tasks.torch(perceptron(), functional.cross_entropy, [OnDisk(0, 25), OnDisk(25, 40)], in_memory=False)
    places = np.random.default_rng(0).permutation(40)
    assert torch.equal(task.inputs[places], X[places])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame[["dose", "age", "ill"]], "its columns are in another order than those of partitions"),
        (lambda frame: frame.rename(columns={"dose": "amount"}), "there is no column 'dose', which partitions"),
        (lambda frame: frame.drop(columns="dose"), "there is no column 'dose', which partitions"),
        (lambda frame: frame.assign(weight=1.0), "has no column 'weight'; leave it out"),
    ],
)
def test_columns_of_sites_that_do_not_fit_are_told_and_not_mixed_up(change, words):
    """Side by side as numbers, nobody would notice; named in `columns`, any order will do."""
    first = pd.DataFrame({"age": [1.0, 2.0], "dose": [3.0, 4.0], "ill": [0, 1]})
    model, loss = torch.nn.Linear(2, 2), torch.nn.functional.cross_entropy
    with pytest.raises(DataError, match=r"say for all which, in which order: columns=\[…\]") as told:
        wt.tasks.torch(model, loss, [first, change(first)], target="ill")
    assert words in str(told.value)
    turned = wt.tasks.torch(model, loss, [first, first[["dose", "age", "ill"]]], target="ill", columns=["age", "dose"])
    assert turned.inputs[2:].tolist() == first[["age", "dose"]].to_numpy().tolist()


def test_a_frame_and_a_column_of_targets():
    """Rows belong together by their place, as in scikit-learn, whatever their index says."""
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}, index=[7, 8, 9])
    column = pd.Series([0, 1, 0], index=[7, 8, 9], name="ill")
    model = nn.Linear(2, 2)
    for targets in (column, column.to_frame(), column.to_numpy()):
        task = wt.tasks.torch(model, nn.functional.cross_entropy, [(frame, targets)] * 2, test=(frame, targets))
        assert torch.equal(task.inputs[:3], torch.tensor([[1, 0.5], [2, 1.5], [3, 2.5]]))
        assert task.targets.tolist() == [0, 1, 0] * 2
    one = wt.tasks.torch(nn.Linear(1, 2), nn.functional.cross_entropy, [(frame, column)], columns=["b"])
    assert one.inputs.tolist() == [[0.5], [1.5], [2.5]]
    alone = wt.tasks.torch(nn.Linear(1, 2), nn.functional.cross_entropy, [(frame["a"], column)])
    assert alone.inputs.tolist() == [[1.0], [2.0], [3.0]]
    with pytest.raises(DataError, match=r"partitions\[0\]: column 'c' has no numbers .*encode it"):
        wt.tasks.torch(model, nn.functional.cross_entropy, [(frame.assign(c="x"), column)])
    with pytest.raises(DataError, match=r"column 'ill' has no numbers \(category\)"):
        wt.tasks.torch(model, nn.functional.cross_entropy, [(frame, column.astype("category"))])
    with pytest.raises(DataError, match="there is no column 'z'; there are a, b"):
        wt.tasks.torch(model, nn.functional.cross_entropy, [(frame, column)], columns=["z"])
    with pytest.raises(DataError, match="column 'a' has no value in 1 rows"):
        wt.tasks.torch(model, nn.functional.cross_entropy, [(frame.where(frame["a"] > 1), column)])


def test_labels_to_be_ignored_are_neither_right_nor_wrong():
    inputs = torch.eye(4)
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(4))  # says k of sample k
    tests = inputs, torch.tensor([0, 1, -100, 0])  # right, right, not judged, wrong
    task = wt.tasks.torch(model, nn.functional.cross_entropy, [(inputs, torch.arange(4))], test=tests)
    run = wt.train(task, wt.Centralized(), wt.graphs.complete(1), optimizer=wt.SGD(lr=1e-9), stop=1, device="cpu")
    assert run.history["test_accuracy"].iloc[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("form", ["pairs", "columns", "samples", "test"])
def test_arrays_that_nobody_may_write_to_are_taken_without_a_warning(form):
    """In a process of its own: torch warns only once."""
    code = f"""
import warnings; warnings.simplefilter("error")
import numpy as np, torch
import walktalk as wt
x, y = np.ones((20, 3), dtype="float32"), np.zeros(20, dtype="int64")
for array in (x, y):
    array.setflags(write=False)
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, place): return x[place], int(y[place])
data = {{"pairs": (x, y), "columns": {{"x": x, "y": y}}, "samples": Samples(), "test": (x + 0, y + 0)}}[{form!r}]
more = {{"columns": {{"target": "y"}}, "test": {{"test": (x, y)}}}}.get({form!r}, {{}})
task = wt.tasks.torch(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), [data, data], **more)
assert task.nodes == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-600:]
