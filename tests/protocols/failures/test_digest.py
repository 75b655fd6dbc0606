"""DIGEST where messages and nodes are lost: one travelling model, everybody visited, nothing counted twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import looks, simulate, some_timings, storms
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols
from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.protocols import Digest
from walktalk.protocols.mechanisms.tokens.traveller import THE_TRAVELLER, ResilientTraveller
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, PoissonTiming, Simulation

GRAPH = graphs.erdos_renyi(6, p=0.5, seed=2)


def travelling(simulation: Simulation) -> int:
    """How many travelling models there are; one on its way counts where it has arrived, if it has."""
    machines = [m for m in simulation.machines if isinstance(m, ResilientTraveller)]
    seen = {machine.around.node: machine.seen for machine in machines}
    hops = [machine.hops.leaving[THE_TRAVELLER] for machine in machines if THE_TRAVELLER in machine.hops.leaving]
    under_way = [hop for hop in hops if hop.token.number > seen[hop.to]]
    return sum(machine.here for machine in machines) + len(under_way)


def visited(trace: list[TraceRow], after: float) -> set[int]:
    return {row.node for row in trace if row.event == "counted" and row.time > after}


def counted_once(trace: list[TraceRow], graph: Graph) -> bool:
    """Whether no update has more than its weight in the model that is put out."""
    _, model = Symbols(graph.nodes).play(trace).aggregate
    weights = [weight for training, weight in model.items() if training >= 0]
    return len(weights) > 50 and max(weights) <= 1.0 / graph.nodes + 1e-9


def test_while_nothing_fails_the_models_are_those_of_the_plain_form() -> None:
    runs = [
        Played(setup(Digest(resilient=form, patience=1e3), GRAPH, timing=PoissonTiming(), stop=Stop(iterations=120)))
        for form in (False, True)
    ]
    np.testing.assert_array_equal(runs[0].output, runs[1].output)


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        ((Fault("lose", at=0.0, share=0.3),), ""),
        (tuple(Fault("kill", at=20.0 + 40 * k, node=k % 6, seconds=30.0) for k in range(4)), "restarted"),
        ((Fault("partition", at=20.0, nodes=(0, 1, 2), seconds=60.0),), ""),
    ],
)
def test_whatever_is_lost_it_goes_on_and_nothing_counts_twice(faults: tuple[Fault, ...], what: str) -> None:
    simulation, trace = simulate(Digest(patience=1.0), GRAPH, faults, PoissonTiming(), seed=3, until=400.0)
    assert visited(trace, 300.0) == set(range(6))
    assert not what or any(row.event == what for row in trace)
    assert counted_once(trace, GRAPH)
    if faults[0].kind != "lose":
        assert travelling(simulation) == 1


@settings(max_examples=4, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_after_a_storm_there_is_one_travelling_model(data: st.DataObject) -> None:
    """Or for moments two: a node that waits for long, by chance, begins another, until one of them meets the other."""
    faults = data.draw(storms(GRAPH, ("kill", "pause", "partition", "lose", "slow")))
    seed, timing = data.draw(st.integers(0, 999)), data.draw(some_timings)
    moments = tuple(np.linspace(500.0, 700.0, 21))
    seen = looks(Digest(patience=8.0), GRAPH, faults, timing, seed, moments)
    numbers, traces = zip(*((travelling(simulation), trace) for simulation, trace in seen), strict=True)
    assert visited(traces[-1], 500.0) == set(range(6))
    assert min(numbers) == 1
    assert np.median(numbers) == 1
