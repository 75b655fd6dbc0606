"""Models with several outputs, data with several targets, and what draws random numbers where nobody expects it."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import walktalk as wt
from tests.learning import plain
from walktalk.core.errors import DataError, ModelError
from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.learning.user_data import Form
from walktalk.studies.peers.node_job import task_facts

X, KINDS, BOXES = plain.images(40, 6), plain.classes(40, count=3), plain.images(40, 4)
ENDS = ((0, 25), (25, 40))


class Found(NamedTuple):
    scores: torch.Tensor
    boxes: torch.Tensor


class Detector(nn.Module):
    """Two heads and a penalty of the whole batch, in one form or another."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.body, self.scores, self.boxes, self.form = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 4), form

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        scores, boxes, penalty = self.scores(hidden), self.boxes(hidden).reshape(-1, 2, 2), (hidden**2).mean()
        if self.form == "tuple":
            return scores, boxes, penalty
        if self.form == "named tuple":
            return Found(scores, boxes), penalty
        if self.form == "logits":
            return {"logits": scores, "boxes": boxes, "penalty": penalty, "cache": None}
        return {"heads": [scores, boxes], "penalty": penalty}


def parts_of(outputs):
    """Scores, boxes and penalty, whatever the form."""
    if isinstance(outputs, dict):
        heads = outputs["heads"] if "heads" in outputs else (outputs["logits"], outputs["boxes"])
        return (*heads, outputs["penalty"])
    return outputs if len(outputs) == 3 else (*outputs[0], outputs[1])


def loss(outputs, targets):
    scores, boxes, penalty = parts_of(outputs)
    kinds, where = (targets["kind"], targets["box"]) if isinstance(targets, dict) else targets
    return functional.cross_entropy(scores, kinds) + functional.mse_loss(boxes.flatten(1), where) + 0.1 * penalty


def plain_step(module, targets, places):
    module = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loss(module(X[places]), targets).backward()
    optimizer.step()
    return plain.numbers(module)


class Samples(Dataset):
    def __init__(self, first: int, last: int) -> None:
        self.numbers = range(first, last)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int):
        n = self.numbers[k]
        return X[n], {"kind": KINDS[n], "box": BOXES[n]}


DATA = {
    "dictionaries": [(X[a:b], {"kind": KINDS[a:b], "box": BOXES[a:b]}) for a, b in ENDS],
    "tuples": [(X[a:b], (KINDS[a:b], BOXES[a:b].numpy())) for a, b in ENDS],
    "columns": [{"x": X[a:b], "kind": KINDS[a:b], "box": BOXES[a:b]} for a, b in ENDS],
    "samples": [Samples(a, b) for a, b in ENDS],
    "loaders": [DataLoader(Samples(a, b), batch_size=8) for a, b in ENDS],
    "batches": [lambda a=a, b=b: iter([(X[a:b], {"kind": KINDS[a:b], "box": BOXES[a:b]})]) for a, b in ENDS],
    "single samples": [lambda a=a, b=b: iter([Samples(a, b)[k] for k in range(b - a)]) for a, b in ENDS],
}


@pytest.mark.parametrize(
    ("form", "data", "in_memory"),
    [("tuple", data, True) for data in DATA]
    + [(form, "samples", kept) for form in ("named tuple", "logits", "dictionary") for kept in (True, False)],
)
def test_a_step_is_that_of_a_plain_loop(form, data, in_memory):
    torch.manual_seed(0)
    module = Detector(form)
    target = ["kind", "box"] if data == "columns" else None

    def right(outputs, targets):
        scores = parts_of(outputs)[0]
        return (scores.argmax(1) == (targets["kind"] if isinstance(targets, dict) else targets[0])).float().mean()

    task = tasks.torch(
        module, loss, DATA[data], DATA[data][1], target=target, in_memory=in_memory, metrics={"right": right}
    )
    trainer = Trainer(task, batch_size=4, local_steps=1)
    row, key = trainer.initial_row(0)[None], torch.tensor([3])
    trained, _ = trainer.train(
        TrainingRows(row.repeat(2, 1), torch.tensor([1, 0]), key.repeat(2), torch.tensor([0.1, 0.1]))
    )
    places = trainer.data.sampler.batches(torch.tensor([1]), key, 1)[0, 0]
    expected = plain_step(module, (KINDS[places], BOXES[places]), places)
    assert torch.allclose(trained[0], expected, atol=1e-6)
    found, own = trainer.module(trained[0]), slice(25, 40)
    assert type(found) is Detector
    with torch.no_grad():
        outputs = found(X[own])
    measured = trainer.evaluator.all_of(trained[:1])
    assert float(measured["test_loss"]) == pytest.approx(float(loss(outputs, (KINDS[own], BOXES[own]))), rel=1e-5)
    assert float(measured["right"]) == pytest.approx(
        float((parts_of(outputs)[0].argmax(1) == KINDS[own]).float().mean())
    )
    assert measured["test_accuracy"].isnan().all()


def test_a_form_comes_back_as_it_was():
    def outputs(samples):
        numbers = torch.arange(samples * 6.0).reshape(samples, 2, 3)
        return {"a": (numbers, None), "b": [torch.tensor(2.5), numbers[:, 0, 0].long()], "c": Found(*numbers.unbind(1))}

    form = Form(outputs(2), outputs(4))
    packed = form.pack(outputs(5), 5)
    assert packed.shape == (5, 6 + 1 + 1 + 6)
    found, expected = form.unpack(packed), outputs(5)
    assert type(found["c"]) is Found
    assert found["a"][1] is None
    assert found["b"][1].dtype == torch.int64
    for mine, theirs in zip(
        (found["a"][0], *found["b"], *found["c"]), (expected["a"][0], *expected["b"], *expected["c"]), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert torch.equal(form.unpack(packed[None].repeat(3, 1, 1))["a"][0][2], expected["a"][0])
    pickle.loads(pickle.dumps(form))  # tasks go to other processes


def test_a_model_that_computes_its_loss_of_several_targets():
    class Span(nn.Module):
        """As those of Hugging Face that answer questions."""

        def __init__(self):
            super().__init__()
            self.ends = nn.Linear(6, 2)

        def forward(self, x, start=None, end=None):
            first, last = (self.ends(x)[:, k, None] * x for k in range(2))
            cost = functional.cross_entropy(first, start) + functional.cross_entropy(last, end)
            return {"loss": cost, "first": first, "last": last}

    data = {"x": X, "start": KINDS, "end": KINDS.flip(0)}
    module = Span()
    task = tasks.torch(
        module,
        None,
        [data],
        data,
        target=["start", "end"],
        metrics={"both": lambda out, of: ((out["first"] + out["last"]).argmax(1) == of["start"]).float().mean()},
    )
    trainer = Trainer(task, batch_size=4)
    measured = trainer.evaluator.all_of(trainer.initial_row(0)[None])
    with torch.no_grad():
        outputs = module(X, KINDS, KINDS.flip(0))
    assert float(measured["test_loss"]) == pytest.approx(float(outputs["loss"]), rel=1e-5)
    both = ((outputs["first"] + outputs["last"]).argmax(1) == KINDS).float().mean()
    assert float(measured["both"]) == pytest.approx(float(both))
    with pytest.raises(ModelError, match=r"the model takes no start, x, so it computes no loss of its own"):
        tasks.torch(nn.Linear(6, 2), None, [{"y": X, "start": KINDS, "x": KINDS}], target=["start", "x"])


def test_sites_compare_the_persons_own_loss():
    task = tasks.torch(Detector("tuple"), loss, DATA["dictionaries"])
    assert task_facts(task)["loss"] == "loss"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([(X, {"kind": KINDS}), (X, {"box": BOXES})], r"partitions\[1\]: its targets are box, but .* has kind"),
        ([(X, {"kind": KINDS, "box": BOXES[:3]})], "3 box but 40 targets"),
        ([(X, {})], "the dictionary of its targets is empty"),
        ([(X, {"kind": KINDS, "box": BOXES.index_fill(0, torch.tensor(2), torch.nan)})], "targets box have NaN in 1"),
    ],
)
def test_mistakes_in_several_targets(data, words):
    with pytest.raises(DataError, match=words):
        tasks.torch(Detector("tuple"), loss, data)


def test_outputs_that_are_no_tensors():
    class Says(nn.Linear):
        def forward(self, x):
            return super().forward(x), "well"

    with pytest.raises(ModelError, match="puts out a str among its outputs"):
        tasks.torch(Says(6, 3), lambda o, y: functional.cross_entropy(o[0], y), [(X, KINDS)])


def test_a_task_made_by_hand_is_told_who_takes_several():
    task = tasks.torch(nn.Linear(6, 3), functional.cross_entropy, [(X, KINDS)])
    task.model, task.loss = Detector("tuple"), lambda outputs, targets: functional.cross_entropy(outputs[0], targets)
    with pytest.raises(ModelError, match=r"must put out one tensor here; wt\.tasks\.torch makes a task of one"):
        Trainer(task)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_models_of_other_than_32_bits_are_told_what_to_do(kind):
    with pytest.raises(ModelError, match=r"0\.weight is \w+, and models train in 32 bits here: give module\.float\(\)"):
        tasks.torch(nn.Sequential(nn.Linear(6, 3)).to(kind), functional.cross_entropy, [(X.to(kind), KINDS)])
    base = nn.Linear(6, 6).to(kind).requires_grad_(False)  # what is frozen may have any type

    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.head = base, nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.base(x.to(kind)).float())

    tasks.torch(Cast(), functional.cross_entropy, [(X, KINDS)])


class Variational(nn.Module):
    """Draws in its forward pass, in training and in evaluation."""

    def __init__(self):
        super().__init__()
        self.code, self.back = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x):
        mean, log = self.code(x).chunk(2, 1)
        return self.back(mean + torch.randn_like(mean) * log.exp()), mean, log


def variational_loss(outputs, targets):
    again, mean, log = outputs
    return functional.mse_loss(again, targets) + 0.01 * (mean**2 + log.exp() - log).mean()


def noisy_loss(outputs, targets):
    return functional.mse_loss(outputs + torch.randn_like(outputs), targets)


@pytest.mark.parametrize(("module", "cost"), [(Variational, variational_loss), (lambda: nn.Linear(6, 6), noisy_loss)])
def test_what_draws_is_the_same_every_time_and_leaves_torchs_numbers_alone(module, cost):
    torch.manual_seed(1)
    task = tasks.torch(module(), cost, [(X[:25], X[:25]), (X[25:], X[25:])], (X, X))
    state = torch.get_rng_state()
    runs = [wt.train(task, wt.AsyncGossip(), wt.graphs.path(2), stop=12, evaluate=4, device="cpu") for _ in range(2)]
    assert runs[0].history["train_loss"].tolist() == runs[1].history["train_loss"].tolist()
    assert runs[0].history["test_loss"].tolist() == runs[1].history["test_loss"].tolist()
    assert torch.equal(torch.get_rng_state(), state)
    trainer = Trainer(task, batch_size=4)
    rows = torch.stack([trainer.initial_row(0)] * 3)
    losses = trainer.evaluator.all_of(rows)["train_loss"]
    assert losses.tolist() == [float(losses[0])] * 3  # the same model is as good in every row
