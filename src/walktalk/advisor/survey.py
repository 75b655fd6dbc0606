"""Everything that is known before the first pilot starts: graph, task, what theory and planning say, candidates.

Of a loop that is not ours the constants F, L, σ² and ζ² come from the way its trainings go: nobody knows its gradients.
A training from x on node v's data with the random numbers of a key goes to x − η g_v(x, key): g is the gradient that
the loop behaves as if it had, of a whole training and not of one step. The advisor orders candidates by these constants
and then measures them, so their unit, which is the loop's own, does not matter.

- σ²: E‖g_v(x, key) − mean over keys‖², mean over nodes.
- ζ²: the largest over nodes of ‖g_v(x) − g(x)‖², less what the keys add to it.
- L: the largest over nodes of ‖g_v(y, key) − g_v(x, key)‖ / ‖y − x‖, with y where another node's training leads.
- F: f(x₀) less the lowest loss that one walk over all nodes leads to, its tail continued as a geometric series.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from walktalk.advisor.constants import QUICK, Constants, Effort, Estimate, LocalLoss, estimate_constants, tail
from walktalk.advisor.learning_curve import Scale
from walktalk.advisor.pilots import Bench, Entry
from walktalk.advisor.situation import Candidate, Goal, Situation, World, algorithms, best_aggregator, learning_rates
from walktalk.core.errors import ModelError, SpecError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.graphs import Graph
from walktalk.learning import LoopTrainer, Trainer, TrainingRows
from walktalk.protocols import MultiWalk, Tour
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Rates, RunSetup, measured_rates
from walktalk.theory import Network, network

# How much measuring an advice can afford: on a small problem thousands of trainings take seconds.
#
# Counted are operations, not seconds: nothing here reads a clock, so the same question gets the same advice everywhere.

AROUND = 2e6  # operations that could be done in the time that a training takes beside its arithmetic, about 0.1 ms
AROUND_A_LOOP = 1e8  # the same of a loop that is not ours, of which nothing is known: about 5 ms
CHEAP = 8e10  # operations that nobody minds: seconds of one core


def affordable(trainer: Trainer, batch_size: int, seed: Seed) -> float:
    """How many local trainings nobody minds: 40,000 of the smallest models, some of large ones, less than one of huge.

    Args:
        trainer: Of the task, which says how many steps a training has.
        batch_size: Samples of a step.
        seed: Of the batch that is looked at.
    """
    if isinstance(trainer, LoopTrainer):
        return CHEAP / (AROUND_A_LOOP + trainer.local_steps * batch_size * 6.0 * trainer.width)
    return CHEAP / (AROUND + trainer.local_steps * operations_of_a_step(trainer, batch_size, seed))


def operations_of_a_step(trainer: Trainer, batch_size: int, seed: Seed) -> float:
    """Operations of a forward and a backward pass: products as torch counts, at least six a parameter and sample."""
    task = trainer.task
    model = copy.deepcopy(task.initial(seed.integer))
    local = LocalLoss(task, model, seed.numpy(), batch_size)
    few = np.concatenate(local.samples)[:2]  # batch normalization takes no single one
    with torch.enable_grad(), FlopCounterMode(display=False) as counted:
        local.gradient(few, "of the first samples")
    parameters = sum(parameter.numel() for parameter in local.parameters)
    return batch_size * max(float(counted.get_total_flops()) / len(few), 6.0 * parameters)


OF_THE_WAY = 0.1  # without a target: a tenth of the excess loss is left
SEEN = 3.0  # times V iterations until walks have seen enough nodes for their loss to mean something
FIRST_LOOK = 4.0  # iterations of the fastest candidate at which pilots are measured first


@dataclass(frozen=True)
class Survey:
    """Everything known of a situation before any pilot: network, constants, candidates, and what is affordable."""

    situation: Situation
    goal: Goal
    network: Network  # with the best aggregator
    constants: Constants
    candidates: list[Candidate]
    bench: Bench
    longest: float  # the cost at which the study's own stop ends the dearest candidate
    affordable: float = 0.0  # trainings that nobody minds
    lowered: bool = False  # whether the target is one that pilots have shown, in place of a lower one of ours

    @property
    def graph(self) -> Graph:
        return self.situation.graph

    @property
    def target(self) -> float:
        return self.bench.scale.target

    def entry(self, candidate: Candidate, repetition: int) -> Entry:
        """A pilot; a walk's news reach the aggregator only when it comes back, R walks with R times as many."""
        if not isinstance(candidate.protocol.core, (MultiWalk, Tour)):
            return Entry(candidate, repetition)
        unit = candidate.rates.of(self.goal.objective)
        on_tour = isinstance(candidate.protocol.core, Tour)  # back after exactly V visits
        behind = candidate.active * ((self.graph.nodes - 1) / 2 if on_tour else self.network.returning.mean_age)
        return Entry(candidate, repetition, behind * unit, SEEN * self.graph.nodes * unit)


def make_survey(
    situation: Situation,
    goal: Goal,
    *,
    wanted: str | Sequence[Any] | None = None,
    model_bytes: int | None = None,
    seed: str = "advice",
    smaller: float = 1.0,
) -> Survey:
    """Look at graph, task and theory, and prepare pilots for all candidates.

    Args:
        situation: What the advice is about.
        goal: What to save, and how far to get.
        wanted: What to choose among: "all", names of algorithms or protocols; walks, gossip and what the study names
            if left out.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        seed: Of the pilots' randomness, by name.
        smaller: Of how many times the study's learning rate candidates begin; less than 1 where that one diverges.
    """
    graph = situation.graph
    if goal.objective == "bits" and graph.nodes == 1:
        raise SpecError("objective: bits has no meaning with one node, where nothing is sent; use iterations or time")
    setup = with_bytes(situation.setup, model_bytes)
    root = situation.seed.child(seed)
    aggregator = best_aggregator(graph)
    candidates = make_candidates(situation, setup, aggregator.node, root, wanted, smaller)
    least = min(candidate.rates.of(goal.objective) for candidate in candidates)
    if goal.budget is not None and goal.budget < least:
        raise SpecError(
            f"budget: {goal.budget:g} is less than a single iteration of the cheapest algorithm costs ({least:.3g}); "
            "nothing can be learned for it"
        )
    trainer = situation.trainer
    batch_size = situation.spec.training.usual_batch
    constants = constants_of(trainer, batch_size=batch_size, seed=root, effort=QUICK)
    start = float(trainer.evaluate(trainer.initial_row(root.integer)[None])[0][0])
    scale = make_scale(goal, start, constants.f_best)
    costs = {candidate.algorithm: stop_cost(situation.stop, candidate.rates, goal) for candidate in candidates}
    bench = Bench(
        trainer,
        setup,
        goal.objective,
        scale,
        root,
        FIRST_LOOK * least,
        schedule_end=lambda candidate: costs[candidate.algorithm],
        budget=goal.budget,
    )
    net = network(graph, aggregator.node)
    cheap = affordable(trainer, batch_size, root.child("means"))  # its name of 0.1, so that an advice stays the same
    return Survey(situation, goal, net, constants, candidates, bench, max(costs.values()), cheap)


def with_bytes(setup: RunSetup, model_bytes: int | None) -> RunSetup:
    """The setup with another size of the model on the wire; an optimizer state that travels grows with it."""
    if model_bytes is None:
        return setup
    if model_bytes < 1:
        raise misfit("model_bytes", model_bytes, "a whole number, 1 or more", SpecError)
    ratio = model_bytes / max(setup.model_bytes, 1)
    return replace(setup, model_bytes=model_bytes, state_bytes=round(setup.state_bytes * ratio))


def make_candidates(
    situation: Situation,
    setup: RunSetup,
    aggregator: int,
    root: Seed,
    wanted: str | Sequence[Any] | None,
    smaller: float = 1.0,
) -> list[Candidate]:
    found = []
    world = World(setup.graph, situation.optimizer.momentum, bool(setup.faults))
    for protocol in algorithms(world, aggregator, situation.named, wanted):
        rates = measured_rates(replace(setup, protocol=protocol, seed=root.child("rates", protocol.label)))
        active = protocol.active_models(setup.graph.nodes)
        found += [Candidate(protocol, lr, rates, active) for lr in learning_rates(smaller * situation.optimizer.lr)]
    return found


def make_scale(goal: Goal, start: float, floor: float) -> Scale:
    """The target as given, or a tenth of the excess loss; the floor must be below it."""
    if not isfinite(start):
        raise SpecError(f"the loss of the initial model is {start}; look at the task's data")
    floor = min(floor, start - 1e-6 * max(abs(start), 1.0))
    own = rounded_loss(floor + OF_THE_WAY * (start - floor))
    target = goal.target_loss if goal.target_loss is not None else own
    if target >= start:
        raise SpecError(f"target_loss: {target:.4g} is not below {start:.4g}, the loss before any training")
    return Scale(start, min(floor, target - 0.02 * (start - target)), target)


def rounded_loss(loss: float) -> float:
    """A loss rounded to four digits: what is printed is what was meant."""
    return float(f"{loss:.4g}")


def stop_cost(stop: Stop, rates: Rates, goal: Goal) -> float:
    """What a candidate costs, in the objective's unit, until the budget or the study's own stop ends it."""
    if goal.budget is not None:
        return goal.budget
    iterations = [float(stop.iterations)] if stop.iterations is not None else []
    iterations += [stop.time / rates.seconds] if stop.time is not None and rates.seconds > 0 else []
    iterations += [stop.bits / rates.bits] if stop.bits is not None and rates.bits > 0 else []
    return max(min(iterations), 1.0) * rates.of(goal.objective)


# -- The constants of a loop that is not ours --------------------------------------------------------------------------

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
