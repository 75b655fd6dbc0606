"""What one iteration of an algorithm costs, from a run without any arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator.simulation import Simulation
from walktalk.runtimes.simulator.timing import RunSetup

ROUNDS, LEAST = 40, 800  # trainings of each active model, and of all, from which the cost of an iteration is read


@dataclass(frozen=True)
class Rates:
    """What one iteration of an algorithm costs, on average."""

    seconds: float
    bits: float

    def of(self, objective: str) -> float:
        """In the objective's own unit."""
        return {"iterations": 1.0, "time": self.seconds, "bits": self.bits}[objective]


def planned_run(protocol: Protocol, graph: Graph, model_bytes: int) -> RunSetup:
    """A run with the usual timing, for those who only want to know what it costs."""
    return RunSetup(
        protocol, graph, Seed(0).child("rates", protocol.label), Stop(iterations=1), model_bytes=model_bytes
    )


def measured_rates(setup: RunSetup) -> Rates:
    """Seconds and bits of an iteration."""
    active = setup.protocol.active_models(setup.graph.nodes)
    planning = replace(setup, stop=Stop(iterations=max(LEAST, ROUNDS * active)), keep_trace=False, keep_schedule=False)
    simulation = Simulation(planning)
    simulation.advance()
    done = max(simulation.iteration, 1)
    return Rates(simulation.agenda.now / done, simulation.bytes * 8.0 / done)
