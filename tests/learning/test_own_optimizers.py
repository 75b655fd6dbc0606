"""Several learning rates, two optimizers, and optimizers that a person has written: as a plain loop would use them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import walktalk as wt
from tests.learning import plain
from walktalk.core.errors import UserError
from walktalk.learning import OptimizerSpec, StudyOptimizer, Task, Trainer, TrainingRows, row_optimizer
from walktalk.learning.samples import Sampler

INPUTS, LABELS = plain.images(48, 6), plain.classes(48, count=3)
STEPS, BATCH, LR = 4, 8, 0.1


class RowLengths(torch.optim.Optimizer):
    """Steps whose rows all have one length: as Muon, it needs parameters in their own shapes."""

    def __init__(self, params: object, lr: float = 0.02, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                kept.mul_(group["momentum"]).add_(parameter.grad)
                parameter.add_(kept / kept.norm(dim=1, keepdim=True), alpha=-group["lr"])


class Counting:
    """No class of torch's at all, and what it counts is in its settings."""

    def __init__(self, params: list[Tensor], lr: float) -> None:
        self.state = {parameter: {"sum": torch.zeros_like(parameter)} for parameter in params}
        self.param_groups = [{"params": params, "lr": lr, "steps": 0}]

    @torch.no_grad()
    def step(self) -> None:
        group = self.param_groups[0]
        group["steps"] += 1
        for parameter in group["params"]:
            total = self.state[parameter]["sum"]
            total += parameter.grad
            parameter -= group["lr"] / group["steps"] * total


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def task_of(**more: object) -> Task:
    parts = [(INPUTS[k::2], LABELS[k::2]) for k in range(2)]
    return wt.tasks.torch(net(), functional.cross_entropy, parts, **more)  # type: ignore[arg-type]


def in_groups(module: nn.Module) -> list[list[Tensor]]:
    weights = [p for name, p in module.named_parameters() if name.endswith("weight")]
    return [weights, [p for name, p in module.named_parameters() if name.endswith("bias")]]


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
CASES = {
    "a rate of its own": ({"2": 10.0}, lambda m: [SGD(m[0].parameters(), LR), SGD(m[2].parameters(), 10 * LR)]),
    "an optimizer of its own": (
        {"*bias": wt.Adam(lr=0.03)},
        lambda m: [SGD(in_groups(m)[0], LR), ADAM(in_groups(m)[1], 0.03)],
    ),
    "two": (
        {"0": wt.SGD(lr=0.2, momentum=0.9, nesterov=False), "*": wt.AdamW(lr=0.01, weight_decay=0.1)},
        lambda m: [SGD(m[0].parameters(), 0.2, 0.9), ADAMW(m[2].parameters(), 0.01, weight_decay=0.1)],
    ),
    "one's own": (
        {"*weight": partial(RowLengths, lr=0.05), "*": ADAM},
        lambda m: [RowLengths(in_groups(m)[0], 0.05), ADAM(in_groups(m)[1])],
    ),
    "nobody's": ({"*": Counting}, lambda m: [Counting(list(m.parameters()), LR)]),
}


def trained_plainly(task: Task, optimizers: list, parts: Tensor, keys: Tensor, module: nn.Module) -> None:
    drawn = Sampler(task.parts, BATCH, torch.device("cpu")).batches(parts, keys, STEPS)[:, 0]
    for places in drawn:
        module.zero_grad()
        functional.cross_entropy(module(task.inputs[places]), task.targets[places]).backward()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("name", CASES)
def test_parameters_train_as_in_a_plain_loop(name):
    optimizers, plainly = CASES[name]
    task = task_of(optimizers=optimizers)
    trainer = Trainer(task, batch_size=BATCH, local_steps=STEPS, optimizer=OptimizerSpec(lr=LR))
    module = net()
    made = plainly(module)
    row, state = trainer.initial_row(0)[None], torch.zeros(1, trainer.state_width)
    for key in (5, 6):  # the second goes on from the state of the first
        given = [torch.tensor([1]), torch.tensor([key])]
        row, state = trainer.train(TrainingRows(row, *given, torch.tensor([LR]), state))
        trained_plainly(task, made, *given, module)
    assert torch.allclose(row[0], trainer.model.layout.row(module), atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_wave_is_its_rows(name):
    trainer = Trainer(task_of(optimizers=CASES[name][0]), batch_size=BATCH, local_steps=STEPS)
    rows = trainer.initial_row(0) + 0.1 * torch.randn(3, trainer.width, generator=torch.Generator().manual_seed(1))
    wave = TrainingRows(rows, torch.tensor([0, 1, 0]), torch.arange(3), torch.tensor([0.1, 0.05, 0.1]))
    wave = wave._replace(state=torch.zeros(3, trainer.state_width))
    together = trainer.train(wave)
    for k in range(3):
        alone = trainer.train(wave.mapped(lambda tensor, k=k: tensor[k : k + 1]))
        assert torch.allclose(alone.rows, together.rows[k : k + 1], atol=1e-6)
        assert torch.allclose(alone.state, together.state[k : k + 1], atol=1e-6)


def test_a_rate_follows_the_schedule_and_gradients_are_clipped_as_a_whole():
    task = task_of(optimizers={"2": wt.SGD(lr=0.4, momentum=0.0)})
    usual = StudyOptimizer(row_optimizer(OptimizerSpec(lr=LR), clip_norm=0.01), LR)
    trainer = Trainer(task, batch_size=BATCH, local_steps=1, optimizer=usual)
    row = trainer.initial_row(0)[None]
    steps = [
        trainer.train(TrainingRows(row, torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64), lr)).rows
        - row
        for lr in (torch.tensor([LR]), torch.tensor([LR / 2]))
    ]
    assert torch.allclose(steps[1], steps[0] / 2, atol=1e-7)
    head = sum(p.numel() for p in net()[2].parameters())
    gradient = torch.cat([steps[0][0, :-head] / LR, steps[0][0, -head:] / 0.4])
    assert float(gradient.norm()) == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize(
    ("optimizers", "words"),
    [
        ({"head": 10.0}, "no parameter is called 'head'; there are 0.weight"),
        ({"*": -1.0}, "optimizers: \\*: -1.0 is not possible; allowed: a number"),
        ({"*": torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)}, "this SGD belongs to one model"),
        ({"*": torch.optim.LBFGS}, "it fails on parameters of shapes .*closure"),
        ({"*": RowLengths}, "it fails on parameters of shapes .*Dimension out of range"),
    ],
)
def test_what_cannot_be_ends_in_one_line(optimizers, words):
    with pytest.raises(UserError, match=words) as caught:
        Trainer(task_of(optimizers=optimizers))
    assert "\n" not in str(caught.value)


def test_a_class_of_ones_own_belongs_to_the_task():
    with pytest.raises(UserError, match=r"RowLengths is not torch's own; give it with the task: .*optimizers="):
        wt.train(task_of(), wt.AsyncGossip(), wt.graphs.path(2), stop=2, optimizer=RowLengths)


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, real: Tensor) -> dict[str, Tensor]:
        fake = self.generator(torch.randn(len(real), 4))
        judge = self.discriminator
        return {"real": judge(real), "fake": judge(fake.detach()), "fooled": judge(fake)}


def gan_losses(outputs: dict[str, Tensor], targets: Tensor) -> dict[str, Tensor]:
    judged, ones = functional.binary_cross_entropy_with_logits, torch.ones_like(outputs["real"])
    return {
        "discriminator": judged(outputs["real"], ones) + judged(outputs["fake"], 0 * ones),
        "generator": judged(outputs["fooled"], ones),
    }


def gan_task(losses: object = gan_losses) -> Task:
    real = 2.0 + 0.1 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return wt.tasks.torch(
        Gan(), losses, [(real[k::2], torch.full((32,), 7)) for k in range(2)],
        optimizers={"generator": wt.Adam(lr=0.02, betas=(0.5, 0.999)), "discriminator": wt.Adam(lr=0.02)},
    )  # fmt: skip


def test_each_part_of_a_gan_follows_its_own_loss():
    task = gan_task()
    run = wt.train(task, wt.AsyncGossip(), wt.graphs.path(2), stop=300, evaluate=300, local_steps=2)
    fakes = run.model.generator(torch.randn(500, 4, generator=torch.Generator().manual_seed(1)))
    assert float((fakes.mean(0) - 2.0).abs().max()) < 0.7  # it began around 0
    again = wt.train(task, wt.AsyncGossip(), wt.graphs.path(2), stop=300, evaluate=300, local_steps=2)
    assert run.history.equals(again.history)


def test_losses_without_a_part_or_parts_without_a_loss():
    with pytest.raises(UserError, match=r"a dictionary of judge, none of which generator\.weight belongs to"):
        Trainer(gan_task(lambda o, t: {"judge": gan_losses(o, t)["discriminator"]}))
    with pytest.raises(UserError, match="an entry 'critic', and no parameter is called so"):
        Trainer(gan_task(lambda o, t: gan_losses(o, t) | {"critic": o["real"].mean()}))
