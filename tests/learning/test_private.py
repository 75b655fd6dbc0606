"""Private parts of models train at their nodes, never travel, and are measured and handed back with their node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import walktalk as wt
from tests.learning import plain
from walktalk.core.errors import UserError
from walktalk.learning import Extras, StudyOptimizer, Task, Trainer, TrainingRows, row_optimizer
from walktalk.learning.samples import Sampler
from walktalk.studies.planning import held_out

NAMES = ("lyon", "nice", "paris")
X = plain.images(90, 4)
TRUTH = X @ torch.tensor([1.0, -1.0, 0.5, 0.0])
OFFSETS = {"lyon": -3.0, "nice": 0.0, "paris": 3.0}  # which only a head of one's own can learn
GRAPH = wt.graphs.complete(3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def parts() -> dict[str, tuple[Tensor, Tensor]]:
    return {n: (X[k::3], (TRUTH[k::3] + OFFSETS[n])[:, None]) for k, n in enumerate(NAMES)}


def task_of(private: object = "head", module: nn.Module | None = None, **more: object) -> Task:
    own = parts()
    test = {name: (x[:9], y[:9]) for name, (x, y) in own.items()}
    return wt.tasks.torch(module or Net(), nn.MSELoss(), own, test=test, private=private, **more)  # type: ignore[arg-type]


def one(trainer: Trainer, row: Tensor, node: int, state: Tensor | None = None, **more: object) -> TrainingRows:
    given = [torch.tensor([node]), torch.tensor([7]), torch.tensor([0.05])]
    return TrainingRows(row[None], *given, state, **more)  # type: ignore[arg-type]


def test_a_node_trains_the_whole_model_and_keeps_its_part():
    task = task_of()
    trainer = Trainer(task, batch_size=8, local_steps=3)
    assert (trainer.width, trainer.parameters, trainer.payload_bytes) == (15, 15, 60)
    state = torch.zeros(1, trainer.state_width)
    found = trainer.train(one(trainer, trainer.initial_row(0), 2, state))
    module = Net()
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    drawn = Sampler(task.parts, 8, torch.device("cpu")).batches(torch.tensor([2]), torch.tensor([7]), 3)[:, 0]
    for places in drawn:
        optimizer.zero_grad()
        functional.mse_loss(module(task.inputs[places]), task.targets[places]).backward()
        optimizer.step()
    numbers = [torch.cat([p.detach().flatten() for p in part.parameters()]) for part in (module.body, module.head)]
    assert torch.allclose(found.rows[0], numbers[0], atol=1e-6)
    own = trainer.private_parts(found.state.expand(3, -1))["nice"]
    assert torch.allclose(own["head.weight"], module.head.weight.detach(), atol=1e-6)
    assert list(own) == ["head.weight", "head.bias"]


def test_a_wave_is_its_rows_and_the_optimizer_may_keep_its_memory():
    for keeps, width in ((False, 5), (True, 5 + 2 * 19 + 1)):
        adam = StudyOptimizer(row_optimizer(wt.Adam(lr=0.05)), 0.05, keeps)
        trainer = Trainer(task_of(), optimizer=adam, batch_size=8, local_steps=2)
        assert trainer.state_width == width
        rows = trainer.initial_row(0) + 0.1 * torch.randn(3, 15, generator=torch.Generator().manual_seed(1))
        wave = TrainingRows(rows, torch.arange(3), torch.arange(3), torch.full((3,), 0.05), torch.zeros(3, width))
        for _ in range(2):
            together = trainer.train(wave)
            for k in range(3):
                alone = trainer.train(wave.mapped(lambda tensor, k=k: tensor[k : k + 1]))
                assert torch.allclose(alone.rows, together.rows[k : k + 1], atol=1e-6)
                assert torch.allclose(alone.state, together.state[k : k + 1], atol=1e-6)
            wave = wave._replace(rows=together.rows, state=together.state)


def test_gradients_are_of_the_shared_part_and_the_private_one_descends():
    trainer = Trainer(task_of(), batch_size=8)
    state, row = torch.zeros(1, trainer.state_width), trainer.initial_row(0)
    found = trainer.train(one(trainer, row, 0, state, extras=Extras(1, gradient=True)))
    stepped = trainer.train(one(trainer, row, 0, state, extras=Extras(1)))
    assert torch.allclose(row - 0.05 * found.rows[0], stepped.rows[0], atol=1e-6)
    assert torch.allclose(found.state, stepped.state, atol=1e-6)


@pytest.mark.parametrize(
    "protocol",
    [
        wt.MultiWalk(walks=2), wt.AsyncGossip(), wt.SyncGossip(), "digest", "fedavg",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "local_dsgd", "gradient_tracking", "token_saga", "sgp", "fedprox", "scaffold", "swarm_sgd", "diloco",
                "async_sgd",
            )
        ),
    ],
    ids=lambda protocol: protocol if isinstance(protocol, str) else protocol.label,
)  # fmt: skip
def test_every_algorithm_learns_what_is_different_at_each_node(protocol):
    given = {"stop": 900, "evaluate": 300, "optimizer": wt.SGD(lr=0.02, momentum=0.0), "batch_size": 8, "seed": 1}
    own, shared = (wt.train(task_of(private), protocol, GRAPH, **given) for private in ("head", None))
    losses = [run.history["train_loss"].iloc[-1] for run in (own, shared)]
    assert losses[0] < 0.5 < 4.0 < losses[1]  # the variance of the offsets is 6
    bits = [run.history["bits"].iloc[-1] for run in (own, shared)]
    assert bits[0] < bits[1]
    heads = [float(own.private[name]["head.bias"]) for name in NAMES]
    assert heads[0] < heads[1] < heads[2]


def test_what_is_measured_is_each_nodes_model_on_its_own_samples():
    run = wt.train(task_of(), wt.SyncGossip(), GRAPH, stop=300, evaluate=100, optimizer=wt.SGD(lr=0.02))
    losses = []
    for name, (x, y) in parts().items():
        module = Net()
        module.load_state_dict(run.model.state_dict())
        missing = module.load_state_dict(run.private[name], strict=False)
        assert not missing.unexpected_keys
        with torch.no_grad():
            losses.append(float(functional.mse_loss(module(x), y)))
            tested = float(functional.mse_loss(module(x[:9]), y[:9]))
        assert run.by_node.loc[name, "train_loss"] == pytest.approx(losses[-1], rel=1e-4)
        assert run.by_node.loc[name, "test_loss"] == pytest.approx(tested, rel=1e-4)
    assert run.history["train_loss"].iloc[-1] == pytest.approx(np.mean(losses), rel=1e-4)
    assert run.history["test_loss"].iloc[-1] == pytest.approx(run.by_node["test_loss"].mean(), rel=1e-4)


def test_a_node_that_has_not_finished_a_training_has_the_part_that_all_began_with():
    """What a training under way will bring is not there yet: it was measured with the model from before it."""
    run = wt.train(task_of(), wt.AsyncGossip(), GRAPH, stop=6, evaluate=1, optimizer=wt.SGD(lr=0.02))
    with torch.no_grad():
        module = Net()
        start = np.mean([float(functional.mse_loss(module(x), y)) for x, y in parts().values()])
    assert run.history["train_loss"].iloc[0] == pytest.approx(start, rel=1e-5)
    rated = [run.history["train_loss"].iloc[k] for k in range(3)]
    assert len(set(rated)) == 3


@pytest.mark.slow
def test_it_is_advised_on():
    advice = wt.advise(task_of(), GRAPH, optimizer=wt.SGD(lr=0.02), objective="iterations", device="cpu")
    assert "iterations" in str(advice)


def test_norms_of_ones_own_keep_their_statistics_too():
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    task = task_of("1", module)
    trainer = Trainer(task)
    assert (trainer.width, trainer.statistics_bytes) == (15 + 4, 0)
    run = wt.train(task, wt.AsyncGossip(), GRAPH, stop=60, optimizer=wt.SGD(lr=0.02))
    means = [run.private[name]["1.running_mean"] for name in NAMES]
    assert set(run.private["lyon"]) == {"1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert not torch.equal(means[0], means[1])


def test_a_run_is_the_same_again_and_when_it_goes_on(tmp_path):
    given = {"stop": 200, "evaluate": 50, "optimizer": wt.Adam(lr=0.01), "optimizer_state": "node"}
    runs = [wt.train(task_of(), wt.AsyncGossip(), GRAPH, out=tmp_path / str(k), **given) for k in range(2)]
    assert runs[0].history.equals(runs[1].history)
    found = wt.train(task_of(), wt.AsyncGossip(), GRAPH, out=tmp_path / "0", resume=True, **given)
    assert found.history.equals(runs[0].history)
    for name in NAMES:
        assert all(torch.equal(found.private[name][key], value) for key, value in runs[0].private[name].items())
    files = list((tmp_path / "0").rglob("private.safetensors"))
    kept = load_file(files[0])
    assert torch.equal(kept["nice/head.bias"], runs[0].private["nice"]["head.bias"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"private": "tail"}, "private: no parameter that trains is called 'tail'; there are body.weight"),
        ({"private": "*"}, "private: all parameters are; some have to be shared"),
        ({"private": "head", "trainable": "body"}, "private: no parameter that trains is called 'head'"),
    ],
)
def test_what_cannot_be_private(given, words):
    with pytest.raises(UserError, match=words):
        Trainer(task_of(**given))


def test_an_optimizers_memory_does_not_walk_with_private_parts():
    with pytest.raises(UserError, match="walk would send what the optimizer remembers of private parts"):
        wt.train(task_of(), wt.MultiWalk(walks=1), GRAPH, stop=5, optimizer=wt.Adam(), optimizer_state="walk")


@pytest.mark.parametrize("algorithm", ["multi_walk", "fedavg"])
def test_samples_to_validate_on_are_measured_with_the_part_of_their_node(algorithm):
    evaluate = wt.Evaluate(every=20, validation=0.2)
    run = wt.train(task_of(), algorithm, GRAPH, stop=40, evaluate=evaluate, batch_size=8)
    assert run.best.measure == "valid_loss"
    _, kept = held_out(task_of(), 0.2)
    losses = []
    for name, places in zip(NAMES, kept, strict=True):
        module = Net()
        module.load_state_dict({**run.model.state_dict(), **run.private[name]})
        inputs, targets = task_of().inputs[places], task_of().targets[places]
        losses.append(float(functional.mse_loss(module(inputs), targets).detach()))
    assert run.history.valid_loss.iloc[-1] == pytest.approx(np.mean(losses), rel=1e-4)  # as many samples at each
