"""F, L, σ² and ζ² of a loop that is not ours, from the way its trainings go: nobody knows its gradients.

A training from x on node v's data with the random numbers of a key goes to x − η g_v(x, key): g is the gradient that
the loop behaves as if it had, of a whole training and not of one step. The advisor orders candidates by these constants
and then measures them, so their unit, which is the loop's own, does not matter.

- σ²: E‖g_v(x, key) − mean over keys‖², mean over nodes.
- ζ²: the largest over nodes of ‖g_v(x) − g(x)‖², less what the keys add to it.
- L: the largest over nodes of ‖g_v(y, key) − g_v(x, key)‖ / ‖y − x‖, with y where another node's training leads.
- F: f(x₀) less the lowest loss that one walk over all nodes leads to, its tail continued as a geometric series.
"""

from __future__ import annotations

from math import isfinite, sqrt

import torch
from torch import Tensor

from walktalk.advisor.constants import Constants, Effort, Estimate, estimate_constants, tail
from walktalk.core.errors import ModelError
from walktalk.core.seeds import Seed, as_seed
from walktalk.learning import LoopTrainer, Trainer, TrainingRows

KEYS = 3  # trainings of every node that are looked at
NODES = 16  # nodes whose trainings are looked at, evenly chosen
VISITS = 40  # of the walk that finds how low the loss may be
MEASURED = 8  # how often it is measured on the way


def constants_of(
    trainer: Trainer, *, batch_size: int = 32, seed: int | Seed = 0, effort: Effort | None = None
) -> Constants:
    """The constants of what a trainer trains: a model of torch, or somebody else's loop.

    Args:
        trainer: Of the task.
        batch_size: Of the mini-batches whose gradients σ² is about; a loop has its own.
        seed: Of the initial model, and of everything random.
        effort: How much work it may be; a loop's trainings are few.
    """
    if isinstance(trainer, LoopTrainer):
        return estimate_loop_constants(trainer, as_seed(seed).child("constants"))
    return estimate_constants(trainer.task, batch_size=batch_size, seed=seed, effort=effort)


def estimate_loop_constants(trainer: LoopTrainer, seed: Seed) -> Constants:
    """The constants of a loop; `ModelError` in one line where its first loss is no number."""
    start = trainer.initial_row(seed.child("initial model").integer)
    nodes = sorted({round(k * (trainer.task.nodes - 1) / (NODES - 1)) for k in range(NODES)})
    keys = [seed.child("training", k).integer for k in range(KEYS)]
    found = torch.stack([torch.stack([direction(trainer, start, node, key) for key in keys]) for node in nodes])
    mean = found.mean(1)
    spread = found.var(1, unbiased=True).sum(1)
    error = float(spread.std()) / sqrt(len(spread)) if len(spread) > 1 else 0.0
    ways = f"{KEYS} trainings of {len(nodes)} nodes"
    noise = Estimate(float(spread.mean()), error, ways)
    away = ((mean - mean.mean(0)) ** 2).sum(1) - spread / KEYS
    largest, usual = (max(0.0, float(value)) for value in (away.max(), away.mean()))
    ways += ", less what chance adds"
    f0, lowest = lowest_loss(trainer, start, seed)
    return Constants(
        F=lowest,
        L=curvature(trainer, start, nodes, keys[0]),
        sigma2=noise,
        zeta2=Estimate(largest, 0.0, ways),
        zeta2_mean=Estimate(usual, 0.0, ways),
        f0=f0,
    )


def trained(trainer: LoopTrainer, row: Tensor, node: int, key: int) -> Tensor:
    """The state that a training on a node's data leads to."""
    given = (torch.tensor([node]), torch.tensor([key]), torch.tensor([trainer.lr]))
    return trainer.train(TrainingRows(row[None], *given)).rows[0]


def direction(trainer: LoopTrainer, row: Tensor, node: int, key: int) -> Tensor:
    """The gradient that a training behaves as if it had."""
    return (row - trained(trainer, row, node, key)).double() / trainer.lr


def curvature(trainer: LoopTrainer, start: Tensor, nodes: list[int], key: int) -> Estimate:
    """How fast directions change along the way that another node's training takes."""
    values = []
    for place, node in enumerate(nodes[:: max(1, len(nodes) // 4)]):
        other = trained(trainer, start, nodes[place - 1], key)
        distance = float((other - start).double().norm())
        change = direction(trainer, other, node, key) - direction(trainer, start, node, key)
        values.append(float(change.norm()) / distance if distance > 0 else 0.0)
    good = [value for value in values if isfinite(value)]
    return Estimate(max(good, default=0.0), 0.0, f"trainings of {len(values)} nodes from two states each")


def lowest_loss(trainer: LoopTrainer, start: Tensor, seed: Seed) -> tuple[float, Estimate]:
    """The first loss, and how far it is above the lowest that seems possible."""
    row, values = start, [float(trainer.evaluate(start[None])[0])]
    if not isfinite(values[0]):
        raise ModelError(f"task {trainer.task.name}: the loss of the initial state is {values[0]}; look at evaluate")
    for visit in range(VISITS):
        row = trained(trainer, row, visit * 7919 % trainer.task.nodes, seed.child("walk", visit).integer)
        if (visit + 1) % (VISITS // MEASURED) == 0:
            values.append(float(trainer.evaluate(row[None])[0]))
    seen = [value for value in values if isfinite(value)]
    rest = tail(seen)
    return values[0], Estimate(values[0] - min(seen) + rest, rest, f"one walk of {VISITS} trainings, and its tail")
