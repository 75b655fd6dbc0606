"""One run, in Python: `train` takes a task, a protocol and a graph, and gives back what happened and a model.

When things happen never depends on the numbers in a model, so `forecast` is exact without training anything: it is the
course of the same run. A hundred thousand nodes take seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd
from torch import Tensor, nn

from walktalk.graphs import GraphLike, as_graph
from walktalk.learning import Buffers, OptimizerSpec, Schedule, Task, Trainer
from walktalk.protocols import Protocol
from walktalk.records import RUN_COLUMNS, TRACE_COLUMNS, frame
from walktalk.runtimes.meaning import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import PoissonTiming, Simulation, Timing
from walktalk.seeds import Seed, as_seed
from walktalk.studies.building import AlgorithmPlan, Conditions, PlannedRun, Progress, RunRecord, matched, pick_device
from walktalk.studies.driving.runner import Runner
from walktalk.studies.results import trace_columns, word_on_aggregate

Optimizer = OptimizerSpec  # its public name
STOP, TIMING = Stop(iterations=1000), PoissonTiming()  # where nothing else is said


def SGD(lr: float = 0.05, momentum: float = 0.9, nesterov: bool = True, weight_decay: float = 0.0) -> OptimizerSpec:
    """Stochastic gradient descent; the defaults are the paper's (Table 5).

    Args:
        lr: Learning rate.
        momentum: Share of the last step that is kept; 0 for none.
        nesterov: Nesterov's form of momentum.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(
        name="sgd", lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=weight_decay
    )


def Adam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
) -> OptimizerSpec:
    """Adam, as torch.optim.Adam.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adam", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


def AdamW(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2
) -> OptimizerSpec:
    """AdamW, as torch.optim.AdamW.

    Args:
        lr: Learning rate.
        betas: How slowly the two running means forget.
        eps: Added to the denominator.
        weight_decay: Weight decay, as torch.optim has it.
    """
    return OptimizerSpec(name="adamw", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@dataclass(frozen=True)
class Run:
    """What one run leaves."""

    record: RunRecord  # history, trace and models as they were recorded
    trainer: Trainer  # what trained the models

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per evaluation: iteration, time, bits, train_loss, test_accuracy, consensus and more."""
        return frame(self.record.history, RUN_COLUMNS).drop(columns=["algorithm", "repetition"])

    @cached_property
    def trace(self) -> pd.DataFrame:
        """Every event, in order; enough to recompute the run (`walktalk.records.trace` says what the columns mean)."""
        return pd.DataFrame(trace_columns(self.record.trace), columns=list(TRACE_COLUMNS))

    @property
    def row(self) -> Tensor:
        """The aggregated model as one flat vector."""
        assert self.record.output is not None
        return self.record.output

    @cached_property
    def model(self) -> nn.Module:
        """The aggregated model, as a torch module with its weights."""
        return self.trainer.module(self.row)

    @cached_property
    def by_node(self) -> pd.DataFrame:
        """The aggregated model on every node's own data: samples, loss, and, where it has any, its own test data's."""
        return pd.DataFrame(self.trainer.by_node(self.row)).set_index("node")


def train(
    task: Task,
    protocol: Protocol,
    graph: GraphLike,
    *,
    optimizer: OptimizerSpec | None = None,
    batch_size: int = 32,
    local_steps: int = 5,
    optimizer_state: OptimizerState = "visit",
    buffers: Buffers = "travel",
    schedule: Schedule | None = None,
    timing: Timing | None = None,
    stop: Stop | None = None,
    evaluate: Evaluate | None = None,
    seed: int | Seed = 0,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Train one model with a protocol on a graph, in virtual time.

    Args:
        task: What is learned, and who has which samples; one part for each node of the graph.
        protocol: The algorithm: `MultiWalk`, `AsyncGossip`, `SyncGossip`, `Centralized`, or one of your own.
        graph: Who may talk to whom.
        optimizer: The optimizer of every local training; `SGD()`, the paper's, if left out.
        batch_size: Samples of a batch; drawn with replacement from the node's own.
        local_steps: Optimizer steps of one local training.
        optimizer_state: Where momentum and the like live between two trainings: `visit`, nowhere; `walk`, they
            travel with the walk; `node`, they stay at the node.
        buffers: What becomes of BatchNorm's statistics: `travel`, sent and mixed with the model; `batch`, every
            batch has its own.
        schedule: The learning rate over the run, by progress toward the stop; constant if left out.
        timing: How long things take in virtual time; `PoissonTiming()` with d = 1 second if left out.
        stop: When the run ends; after 1,000 iterations if left out.
        evaluate: When the model is measured; every 100 iterations if left out.
        seed: The root of all randomness: initial weights, batches, walks, times.
        device: `auto`, `cpu` or `cuda`.
        progress: Called now and then with how far the run is.
    """
    task, graph = matched(task, graph)
    optimizer = optimizer or SGD()
    protocol.check_momentum(optimizer.momentum)
    root = as_seed(seed)
    trainer = Trainer(
        task,
        batch_size=batch_size,
        local_steps=local_steps,
        optimizer=optimizer,
        device=pick_device(device),
        buffers=buffers,
    )
    conditions = Conditions(
        graph,
        trainer.payload_bytes,
        trainer.state_bytes,
        optimizer_state,
        stop or STOP,
        timing or TIMING,
        evaluate or Evaluate(),
        (schedule or Schedule()).factor_at,
    )
    setup = conditions.setup(AlgorithmPlan(protocol.label, protocol, optimizer.lr), root)
    initial = trainer.initial_row(root.child("initial model", 0).integer)
    runner = Runner(trainer, [PlannedRun(protocol.label, 0, setup, initial)], report=progress)
    record = runner.run()[0]
    word = word_on_aggregate(record)
    if word is not None:
        warnings.warn(word, stacklevel=2)
    return Run(record, trainer)


@dataclass(frozen=True)
class Forecast:
    """A run as it will be."""

    iterations: int  # local trainings, over all nodes
    time: float  # virtual seconds
    bits: float  # sent by all nodes together
    events: int  # how many events the schedule has


def forecast(
    protocol: Protocol,
    graph: GraphLike,
    *,
    model_bytes: int,
    state_bytes: int = 0,
    optimizer_state: OptimizerState = "visit",
    timing: Timing | None = None,
    stop: Stop | None = None,
    seed: int | Seed = 0,
) -> Forecast:
    """The schedule of `train` with the same arguments, for a model of that many bytes on the wire.

    Args:
        protocol: The algorithm.
        graph: Who may talk to whom.
        model_bytes: Size of one model on the wire.
        state_bytes: Size of one optimizer state on the wire, where it travels with the walk.
        optimizer_state: Where the optimizer's state lives, as for `train`.
        timing: How long things take, as for `train`.
        stop: When the run ends, as for `train`; a target loss has no meaning here.
        seed: The root of all randomness; that of the run to be forecast.
    """
    graph = as_graph(graph)
    protocol.check(graph.nodes)
    conditions = Conditions(
        graph,
        model_bytes,
        state_bytes,
        optimizer_state,
        stop or STOP,
        timing or TIMING,
        Evaluate(),
        Schedule().factor_at,
    )
    setup = conditions.setup(AlgorithmPlan(protocol.label, protocol, 1.0), as_seed(seed))
    simulation = Simulation(replace(setup, keep_trace=False, keep_schedule=False))
    simulation.advance()
    return Forecast(simulation.iteration, simulation.agenda.now, simulation.bytes * 8.0, simulation.events)
