"""Who may be advised: Multi-Walk with 1, 2, 4, … V walks at the best aggregator, gossip, what else the study names.

What an iteration costs in seconds and bits needs no training: when things happen never depends on a model, so a
simulation without arithmetic tells it for every algorithm in a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from walktalk.chains import ReturnTime, aggregators, metropolis_hastings
from walktalk.graphs import Graph
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.simulator import RunSetup, Simulation
from walktalk.studies import StudySpec, build_protocols

LR_FACTORS = (0.3, 1.0, 3.0)  # of the study's own learning rate: further apart than pilots can tell them apart
ROUNDS, LEAST = 40, 800  # trainings of each active model, and of all, from which the cost of an iteration is read


@dataclass(frozen=True)
class Rates:
    """What one iteration of an algorithm costs, on average."""

    seconds: float
    bits: float

    def of(self, objective: str) -> float:
        """In the objective's own unit."""
        return {"iterations": 1.0, "time": self.seconds, "bits": self.bits}[objective]


@dataclass(frozen=True)
class Candidate:
    """One algorithm with one learning rate."""

    protocol: Protocol  # the algorithm
    lr: float  # its learning rate
    rates: Rates  # what an iteration of it costs
    active: int  # models that train at the same time: R or V

    @property
    def algorithm(self) -> str:
        return self.protocol.label

    @property
    def label(self) -> str:
        return f"{self.protocol.label}-lr{self.lr:g}"


def best_aggregator(graph: Graph) -> ReturnTime:
    """The node that walks come back to soonest and most evenly: the smallest H²."""
    return aggregators(metropolis_hastings(graph)).best


def walk_counts(nodes: int) -> list[int]:
    """1, 2, 4, … and V itself."""
    counts = [2**k for k in range(nodes.bit_length()) if 2**k < nodes]
    return [*counts, nodes]


def algorithms(spec: StudySpec, graph: Graph, aggregator: int) -> list[Protocol]:
    """Every protocol to consider, each once."""
    found: list[Protocol] = [MultiWalk(walks, aggregator) for walks in walk_counts(graph.nodes)]
    found.append(AsyncGossip())
    for plan in build_protocols(spec, graph.nodes):
        protocol = plan.protocol
        if isinstance(protocol, MultiWalk):
            protocol = replace(protocol, aggregator=aggregator)
        if "peers" in protocol.runtimes and not protocol.pools_data:  # what nobody could run is no advice
            found.append(protocol)
    return list(dict.fromkeys(found))


def measured_rates(setup: RunSetup) -> Rates:
    """Seconds and bits of an iteration, from a simulation without any arithmetic."""
    active = setup.protocol.active_models(setup.graph.nodes)
    planning = replace(setup, stop=Stop(iterations=max(LEAST, ROUNDS * active)), keep_trace=False, keep_schedule=False)
    simulation = Simulation(planning)
    simulation.advance()
    done = max(simulation.iteration, 1)
    return Rates(simulation.agenda.now / done, simulation.bytes * 8.0 / done)


def learning_rates(base: float, factors: Sequence[float] = LR_FACTORS) -> list[float]:
    """Around the study's own, to three digits so that they read well."""
    return sorted({float(f"{base * factor:.3g}") for factor in factors})
