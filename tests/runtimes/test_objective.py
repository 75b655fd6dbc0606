"""Whose loss a run minimizes: every algorithm aims at it, a cap keeps steps short, and paces can be evened out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.mechanisms import slow_unless
from tests.support.unlike import run
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.protocols import (
    D2,
    EXTRA,
    AsyncGossip,
    FedAvg,
    GradientTracking,
    MomentumTracking,
    MultiWalk,
    Protocol,
    PushPull,
    Scaffold,
    TokenSaga,
)
from walktalk.runtimes.semantics import Objective, StepFactors
from walktalk.runtimes.simulator import NetworkTiming
from walktalk.testing.conformance import _aims_at_the_objective

SIZES = [1000, 10, 10, 30, 7, 90]
LARGEST = len(SIZES) * SIZES[0] / sum(SIZES)  # times the study's rate
RING = graphs.cycle(6)
EXACT = (
    (D2(), RING, 1e-4),
    (EXTRA(), RING, 1e-4),
    (GradientTracking(), RING, 1e-4),
    (MomentumTracking(), RING, 1e-4),
    (PushPull(), graphs.binary_tree(6), 1e-4),
    (Scaffold(), graphs.star(6), 1e-4),
)


@pytest.mark.parametrize(
    ("protocol", "graph", "rest"),
    [pytest.param(*one, marks=slow_unless(one[0].name in ("d2", "push_pull"))) for one in EXACT],
    ids=lambda one: getattr(one, "label", ""),
)
def test_exact_algorithms_end_at_the_weighted_optimum(protocol: Protocol, graph: graphs.Graph, rest: float) -> None:
    ended = run(protocol, graph, 1500, samples=SIZES, objective=Objective("samples", cap=10.0))
    assert np.abs(ended.output - ended.trainer.optimum(SIZES)).max() < rest
    assert np.abs(ended.trainer.optimum(SIZES) - ended.trainer.optimum()).max() > 0.5  # and not at the other one


@pytest.mark.parametrize("weights", ["sites", {str(node): 3.0 for node in range(6)}], ids=["sites", "all the same"])
def test_where_all_count_alike_nothing_changes(weights: object) -> None:
    """Not a bit, whatever sizes they have; nor where sizes are equal and samples count."""
    plain = run(AsyncGossip(), RING, 20, samples=SIZES)
    for samples, objective in ((SIZES, Objective(weights)), ([8] * 6, Objective("samples"))):  # type: ignore[arg-type]
        again = run(AsyncGossip(), RING, 20, samples=samples, objective=objective)
        assert plain.output.tobytes() == again.output.tobytes()
        assert not [row for row in again.trace if "factor" in row.detail]


def test_a_server_weighs_by_the_same_numbers() -> None:
    """FedAvg's means, and not its steps; by sites its nodes count alike, and by declared weights as declared."""
    star, declared = graphs.star(6), {str(node): float(size) for node, size in enumerate(SIZES)}
    by_samples = run(FedAvg(), star, 10, samples=SIZES, objective=Objective("samples"))
    assert by_samples.output.tobytes() == run(FedAvg(), star, 10, samples=SIZES).output.tobytes()
    by_names = run(FedAvg(), star, 10, samples=[1] * 6, objective=Objective(declared))
    np.testing.assert_allclose(by_names.output, by_samples.output, rtol=1e-4)
    alike = run(FedAvg(), star, 10, samples=SIZES, objective=Objective("sites"))
    unweighted = run(FedAvg(weighted=False), star, 10, samples=SIZES)
    np.testing.assert_allclose(alike.output, unweighted.output, rtol=1e-6)


def test_no_step_is_longer_than_the_cap_and_weights_stay() -> None:
    counts = dict(enumerate(SIZES))
    for cap, expected in ((10.0, LARGEST), (2.0, 2.0), (1.0, 1.0)):
        steps = StepFactors(Objective("samples", cap))
        steps.look(counts, dict.fromkeys(counts, 0))
        assert max(steps.factors.values()) == pytest.approx(expected)
        shares = [steps.factors[node] / steps.factors[0] for node in counts]
        assert shares == pytest.approx([size / SIZES[0] for size in SIZES])


def test_a_large_weight_makes_no_step_diverge() -> None:
    """By a rate at which the heavy node alone is stable, and five times it is not."""
    far = []
    for cap in (1.0, 100.0):
        ended = run(AsyncGossip(), RING, 60, samples=SIZES, lr=1.0, objective=Objective("samples", cap))
        far.append(np.abs(ended.output - ended.trainer.optimum(SIZES)).max())
    assert far[0] < 2.0
    assert not far[1] < 1e3


@pytest.mark.parametrize("protocol", [MultiWalk(2), AsyncGossip(), TokenSaga(), FedAvg()], ids=lambda one: one.label)
def test_the_conformance_suite_asks_for_it(protocol: Protocol) -> None:
    _aims_at_the_objective(protocol, graphs.star(5) if protocol.name == "fedavg" else graphs.complete(5))


def test_a_protocol_that_weighs_twice_fails_it() -> None:
    """One that says that it weighs nodes, and does not: its steps stay alike."""

    class Boasting(AsyncGossip):
        name = "boasting"

        @property
        def weighs_nodes(self) -> bool:
            return True

    with pytest.raises(AssertionError, match="beside the optimum of all data"):
        _aims_at_the_objective(Boasting(), graphs.complete(5))


SLOW = NetworkTiming(compute=1.0, straggler_share=0.5, straggler_slowdown=8.0, latency=0.001)


def test_equal_pace_makes_slow_nodes_count_as_much() -> None:
    far = {}
    for equal_pace in (False, True):
        objective = Objective("samples", equal_pace=equal_pace)
        ended = run(
            AsyncGossip(), graphs.complete(6), 6000, samples=SIZES, timing=SLOW, objective=objective,
            schedule=lambda progress: 1.0 - progress,
        )  # fmt: skip
        trainings = np.bincount([row.node for row in ended.trace if row.event == "trained"], minlength=6)
        assert trainings.max() > 4 * trainings.min()
        far[equal_pace] = float(np.linalg.norm(ended.output - ended.trainer.optimum(SIZES)))
    assert far[True] < 0.3 * far[False]


def test_who_is_away_makes_nobody_wait() -> None:
    """A node that trains no more is not waited for by shorter steps of the others."""
    steps, counts = StepFactors(Objective("sites", equal_pace=True)), dict.fromkeys(range(4), 1)
    trained = dict.fromkeys(range(4), 0)
    for number in range(4000):
        trained[number % (4 if number < 400 else 3)] += 1
        steps.look(counts, trained)
    assert [steps.factors[node] for node in range(3)] == pytest.approx([0.75, 0.75, 0.75], rel=0.05)
    assert steps.factors[3] <= 2.0


def test_what_cannot_be_is_told() -> None:
    for weights, words in (
        ("all", r"objective.weights: 'all' is not possible; allowed: published, samples, sites, or a number"),
        ({"lyon": -1}, r"objective.weights.lyon: -1 is not possible; allowed: a number above 0"),
    ):
        with pytest.raises(SpecError, match=words):
            Objective(weights)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"objective.cap: 0 is not possible"):
        Objective("samples", 0)
    with pytest.raises(SpecError, match=r"objective.weights: node oslo has none; it has lyon; add one for it"):
        Objective({"lyon": 2.0}).counts([3, 4], ["lyon", "oslo"])
