"""What one simulated run is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator.fault_plan import FaultPlan
from walktalk.runtimes.simulator.timing import PoissonTiming, Timing


def constant_rate(progress: float) -> float:
    return 1.0


@dataclass(frozen=True)
class RunSetup:
    """Everything that decides when things happen in one run, and nothing that depends on a model's numbers."""

    protocol: Protocol
    graph: Graph
    seed: Seed  # of this run: one algorithm, one repetition
    stop: Stop
    timing: Timing = field(default_factory=PoissonTiming)
    evaluate: Evaluate = field(default_factory=Evaluate)
    lr: float = 0.05
    schedule: Callable[[float], float] = constant_rate  # progress -> factor on the learning rate
    model_bytes: int = 0  # of one model on the wire
    state_bytes: int = 0  # of one optimizer state on the wire
    optimizer_state: OptimizerState = "visit"  # where the optimizer's state lives between two visits
    local_steps: int = 1  # of a training, where the protocol does not say
    samples: tuple[int, ...] = ()  # by node: how much data it has; (): one each
    statistics: bool = False  # whether models carry any beside their parameters
    statistics_bytes: int = 0  # of them on the wire, among those of a model
    averages: bool = False  # whether a mean of models is more than a sum of their numbers
    faults: FaultPlan = field(default_factory=FaultPlan)  # what goes wrong; where anything does, protocols are hardened
    keep_trace: bool = True
    keep_schedule: bool = True  # False: for planning only, when and how much but no arithmetic
