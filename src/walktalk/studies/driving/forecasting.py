"""What a run will take, in Python, before it is done.

When things happen never depends on the numbers in a model, so `forecast` is exact without training anything: it is the
course of the same run. A hundred thousand nodes take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from walktalk.graphs import GraphLike, as_graph
from walktalk.learning import Schedule
from walktalk.protocols import Protocol
from walktalk.runtimes.meaning import Evaluate, OptimizerState, Stop
from walktalk.runtimes.simulator import PoissonTiming, Simulation, Timing
from walktalk.seeds import Seed, as_seed
from walktalk.studies.building import AlgorithmPlan, Conditions

STOP, TIMING = Stop(iterations=1000), PoissonTiming()  # where nothing else is said


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
    statistics_bytes: int = 0,
    local_steps: int = 5,
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
        statistics_bytes: Of those the bytes of running statistics (BatchNorm's means and variances), which a codec
            leaves as they are: `run.trainer.statistics_bytes`.
        local_steps: Optimizer steps of one local training, as for `train`; a protocol that has its own number of them
            takes so much longer for them, or less long.
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
        stop or STOP,
        timing or TIMING,
        Evaluate(),
        Schedule().factor_at,
        local_steps,
        statistics_bytes,
    )
    setup = conditions.setup(AlgorithmPlan(protocol.label, protocol, 1.0, optimizer_state), as_seed(seed))
    simulation = Simulation(replace(setup, keep_trace=False, keep_schedule=False))
    simulation.advance()
    return Forecast(simulation.iteration, simulation.agenda.now, simulation.bytes * 8.0, simulation.events)
