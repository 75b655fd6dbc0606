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

    iterations: int
    time: float  # virtual seconds
    bits: float  # sent by all nodes together
    events: int


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
    """The schedule of `train` with the same arguments, for a model of that many bytes on the wire."""
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
