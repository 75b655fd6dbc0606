"""How long a run will take and how much it will send, without training anything.

When things happen never depends on the numbers in a model, so a forecast is exact: it is the run's own schedule. A
hundred thousand nodes take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.runtimes.simulator import OptimizerState, PoissonTiming, RunSetup, Simulation, Stop, Timing
from walktalk.seeds import Seed, as_seed


@dataclass(frozen=True)
class Forecast:
    """A run as it will be."""

    iterations: int  # local trainings, over all nodes
    time: float  # virtual seconds
    bits: float  # sent by all nodes together
    events: int  # how many events the schedule has


def forecast(
    protocol: Protocol,
    graph: Graph,
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
    protocol.check(graph.nodes)
    setup = RunSetup(
        protocol=protocol,
        graph=graph,
        seed=as_seed(seed).child("run", protocol.label, 0),
        stop=stop or Stop(iterations=1000),
        timing=timing or PoissonTiming(),
        model_bytes=model_bytes,
        state_bytes=state_bytes,
        optimizer_state=optimizer_state,
        keep_trace=False,
        keep_schedule=False,
    )
    simulation = Simulation(setup)
    simulation.advance()
    return Forecast(simulation.iteration, simulation.agenda.now, simulation.bytes * 8.0, simulation.events)
