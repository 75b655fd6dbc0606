"""The measured average of ‖∇f‖² is below the bound of every theorem, with the step size that it allows."""

from __future__ import annotations

import numpy as np
import pytest

from walktalk import graphs, theory
from walktalk.advisor.bound_check import (
    Case,
    StagedWalk,
    check_bounds,
    plain_sgd,
    quadratic_norm,
    squared_gradients,
    standard_cases,
)
from walktalk.core.errors import DataError, SpecError
from walktalk.core.seeds import Seed
from walktalk.learning import tasks
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.runtimes.stacked import Engine


def test_at_least_sixty_combinations_of_graph_walks_noise_heterogeneity_and_iterations() -> None:
    few = ("cycle", "star")  # enough graphs for the bound by age; the long test has all
    cases = [case for case in standard_cases(iterations=(300,)) if not case.by_age or case.topology in few]
    assert len(set(cases)) == len(cases) >= 60
    assert {case.theorem for case in cases} == {1, 2, 3}
    broken = [outcome for outcome in check_bounds(cases, repetitions=1) if not outcome.holds]
    assert not broken


@pytest.mark.slow
def test_long_runs_too() -> None:
    outcomes = check_bounds(standard_cases(iterations=(1000, 6000)), repetitions=4)
    assert len(outcomes) >= 120
    assert all(outcome.holds for outcome in outcomes)


def test_training_goes_down_and_longer_is_lower() -> None:
    """So that a bound does not hold merely because nothing was trained."""
    cases = [Case(1, "complete", 8, t, walks=2) for t in (300, 1200, 4800)]
    outcomes = check_bounds([*cases, *(Case(2, "complete", 8, t) for t in (300, 1200, 4800))], repetitions=1)
    for part in (outcomes[:3], outcomes[3:]):
        assert part[0].measured > 2 * part[1].measured > 4 * part[2].measured
        assert part[2].curve[-500:].mean() < 0.01 * part[2].curve[:100].mean()


def test_what_is_measured_is_the_gradient_at_the_trained_models() -> None:
    """One walk on one node without noise is plain gradient descent: every iterate is known."""
    task = tasks.quadratic(nodes=1, noise=0.0, heterogeneity=0.0)
    setup = RunSetup(MultiWalk(1), graphs.complete(1), Seed(0), Stop(iterations=30), lr=0.3)
    (found,) = squared_gradients(task, [setup])
    facts = task.details["quadratic"]
    x, expected = np.array(task.details["start"]), []
    for _ in range(30):
        gradient = facts.gradient(x)
        expected.append(float(gradient @ gradient))
        x = x - 0.3 * gradient
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("protocol", [MultiWalk(3), AsyncGossip("matrix"), AsyncGossip()], ids=lambda p: p.label)
def test_every_completed_iteration_is_counted_once(protocol: Protocol) -> None:
    task = tasks.quadratic(nodes=6)
    setups = [RunSetup(protocol, graphs.cycle(6), Seed(0), Stop(iterations=77), lr=lr) for lr in (0.01, 0.02, 0.04)]
    found = squared_gradients(task, setups)
    assert [len(run) for run in found] == [77] * 3
    assert found[0][-20:].mean() > found[1][-20:].mean() > found[2][-20:].mean()  # equal seeds are not mixed up


def test_a_task_whose_gradient_is_not_known() -> None:
    with pytest.raises(DataError, match="not known in closed form"):
        quadratic_norm(tasks.digits(nodes=2))


def test_stages_are_those_of_the_theory() -> None:
    graph = graphs.erdos_renyi(12, p=0.5, seed=4)
    mine = StagedWalk(graph, 3, (10.0, 20.0)).stages()
    theirs = theory.stages(graph, 2)
    assert mine[0].aggregator == 0
    for stage, net in zip(mine, theirs, strict=True):
        assert len(stage.living) == net.nodes
        assert sum(stage.degrees.values()) == 2 * net.edges
    second = graph.part(v for v in range(12) if v != 0)
    assert mine[1].aggregator - 1 == int(second.degrees.argmax())


def test_no_walk_goes_to_a_dead_node_and_the_new_aggregator_takes_over() -> None:
    graph = graphs.complete(5)
    protocol = StagedWalk(graph, 3, (20.0,))
    setup = RunSetup(protocol, graph, Seed(2), Stop(iterations=200), lr=0.05, evaluate=Evaluate(every=50))
    task = tasks.quadratic(nodes=5)
    trainer = plain_sgd(task)
    engine = Engine(trainer, [setup], [trainer.initial_row(0)])
    trace = engine.advance(1.0).traces[0]
    late = [row for row in trace if float(row[0]) > 20.0]  # type: ignore[arg-type]
    assert late
    assert all(row[4] != 0 for row in late if row[2] == "send")
    assert len([row for row in late if row[2] == "train" and row[1] == 0]) <= 3  # at most what it had in hand
    assert {row[1] for row in late if row[2] == "record" and row[11] == "aggregate"} == {1}
    assert sum(row[2] == "trained" for row in trace) == 200
    copies = [row for row in late if row[2] == "combine" and row[1] == 1 and str(row[3]).startswith("copy/")]
    assert [row[3] for row in copies[:3]] == ["copy/1", "copy/2", "copy/3"]


def test_without_deaths_it_is_multi_walk() -> None:
    graph, task = graphs.cycle(6), tasks.quadratic(nodes=6)
    runs = [RunSetup(p, graph, Seed(1), Stop(iterations=120), lr=0.05) for p in (MultiWalk(3), StagedWalk(graph, 3))]
    plain, staged = squared_gradients(task, runs[:1])[0], squared_gradients(task, runs[1:])[0]
    assert plain == pytest.approx(staged)


def test_too_many_deaths() -> None:
    with pytest.raises(SpecError, match="leave too few for 3 walks"):
        StagedWalk(graphs.complete(4), 3, (1.0, 2.0)).check(4)
