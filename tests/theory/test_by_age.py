"""The bound by the age of walks: the ages and special cases are right, and graphs are in the measured order."""

from __future__ import annotations

import numpy as np
import pytest

from walktalk import chains, graphs, theory
from walktalk.advisor.bound_check import quadratic_problem, squared_gradients
from walktalk.core.errors import ChainError
from walktalk.core.seeds import Seed
from walktalk.learning import tasks
from walktalk.protocols import MultiWalk
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup

GRAPHS = {"cycle": graphs.cycle(16), "torus": graphs.torus(4, 4), "complete": graphs.complete(16)}


@pytest.mark.parametrize("graph", [*GRAPHS.values(), graphs.star(9)], ids=lambda graph: graph.name)
def test_the_mean_age_follows_from_the_return_time(graph):
    chain = chains.metropolis_hastings(graph)
    assert chains.age(chain).mean == pytest.approx(chains.return_time(chain).mean_age)


def test_ages_of_a_long_walk():
    chain = chains.metropolis_hastings(graphs.cycle(7))
    rng, sampler = np.random.default_rng(3), chain.sampler()
    node, age, ages = 0, 0, []
    for _ in range(60_000):
        node = sampler.next(node, rng)
        age = 0 if node == 0 else age + 1
        ages.append(age)
    found, steps = chains.age(chain), np.array(ages, dtype=float)
    assert steps.mean() == pytest.approx(found.mean, rel=0.1)
    assert (steps**2).mean() == pytest.approx(found.mean_square, rel=0.2)


def test_on_the_complete_graph_the_age_is_geometric():
    nodes = 9
    found = chains.age(chains.metropolis_hastings(graphs.complete(nodes)))
    assert found.mean == pytest.approx(nodes - 1)  # away with probability 1 − 1/V again and again
    assert found.mean_square == pytest.approx((nodes - 1) * (2 * nodes - 1))


def test_a_chain_that_is_not_symmetric_is_refused():
    with pytest.raises(ChainError, match="not symmetric"):
        chains.age(chains.simple_walk(graphs.star(5)))


def test_one_walk_does_not_deviate_and_with_iid_data_no_graph_matters_for_it():
    iid = theory.Problem(zeta2=0.0)
    bounds = [theory.multi_walk_by_age(theory.network(graph), iid, 1, 1000) for graph in GRAPHS.values()]
    assert all(bound.deviation == bound.mixing == 0 for bound in bounds)
    assert len({bound.total for bound in bounds}) == 1


def test_what_nodes_curvatures_differ_by_only_adds():
    net = theory.network(GRAPHS["torus"])
    totals = [theory.multi_walk_by_age(net, theory.Problem(delta=delta), 4, 1000).total for delta in (0.0, 1.0, None)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]
    assert theory.Problem(L=3.0).curvature_difference == 6.0


@pytest.mark.parametrize(("walks", "heterogeneity"), [(8, 0.0), (1, 4.0)], ids=["8 walks, iid", "1 walk, unlike"])
def test_graphs_are_in_the_measured_order(walks, heterogeneity):
    """Theorem 1 has all graphs alike in the first case, but for its start, and by mixing alone in the second."""
    step_size, iterations = 0.02, 3000  # more than the proof allows: what is compared is the order of graphs
    task = tasks.quadratic(nodes=16, noise=1.0, heterogeneity=heterogeneity, distance=0.0)
    never = Evaluate(every=None, seconds=1e18)
    setups = [
        RunSetup(MultiWalk(walks), graph, Seed(seed), Stop(iterations=iterations), evaluate=never, lr=step_size)
        for graph in GRAPHS.values()
        for seed in range(3)
    ]
    runs = squared_gradients(task, setups)
    measured = [float(np.mean([run[1000:].mean() for run in runs[3 * k : 3 * k + 3]])) for k in range(len(GRAPHS))]
    proofs = [
        theory.by_age_inequality(theory.network(graph), quadratic_problem(task), walks, iterations)
        for graph in GRAPHS.values()
    ]
    bounds = [proof.b * step_size + proof.c * step_size**2 for proof in proofs]
    assert bounds == sorted(bounds, reverse=True)
    assert measured == sorted(measured, reverse=True)
    assert measured[0] > 1.15 * measured[-1]
