"""Virtual time against Section 4.3: T iterations of R walks take T·d/R, within the deviation bound given there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, MultiWalk, SyncGossip
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming, RunSetup, Simulation
from walktalk.runtimes.simulator.timing import Stopwatch
from walktalk.theory import time_deviation_bound


def end_time(protocol, iterations, d, seed, graph=None):
    graph = graph or graphs.cycle(12)
    simulation = Simulation(RunSetup(protocol, graph, Seed(seed), Stop(iterations=iterations), PoissonTiming(d)))
    simulation.advance()
    return simulation.agenda.now


@pytest.mark.parametrize(
    ("protocol", "active"), [(MultiWalk(1), 1), (MultiWalk(4), 4), (MultiWalk(12), 12), (AsyncGossip(), 12)]
)
def test_poisson_iterations_take_what_section_4_3_says(protocol, active):
    t, d, runs = 1000, 3.0, 20
    times = np.array([end_time(protocol, t, d, seed) for seed in range(runs)])
    expected = t * d / active
    delta = 0.12
    assert time_deviation_bound(t, delta) < 0.003  # a run
    assert np.all(np.abs(times - expected) < delta * expected)
    # And the mean over runs: Z_t is Gamma(t), so its standard error is expected / sqrt(t · runs); 4 of them.
    assert abs(times.mean() - expected) < 4 * expected / math.sqrt(t * runs)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_a_spread_of_training_times_leaves_their_mean(spread):
    """exp of N(−σ²/2, σ²) has mean 1 and variance exp(σ²) − 1; five standard errors."""
    stopwatch, draws = Stopwatch(NetworkTiming(compute=3.0, spread=spread), graphs.cycle(3), Seed(1)), 20_000
    times = np.array([stopwatch.training_time(k % 3) for k in range(draws)]) / 3.0
    assert abs(times.mean() - 1.0) < 5 * math.sqrt((math.exp(spread**2) - 1) / draws)
    assert np.log(times).std() == pytest.approx(spread, rel=0.03)


def test_the_clock_stops_at_the_time_that_was_asked_for():
    simulation = Simulation(RunSetup(MultiWalk(2), graphs.cycle(5), Seed(0), Stop(time=50.0)))
    chunk = simulation.advance()
    assert chunk.ops[-1].time == 50.0
    assert abs(simulation.iteration - 100) < 5 * 10


def test_synchronous_rounds_wait_for_the_slowest():
    timing = NetworkTiming(compute=1.0, straggler_share=0.25, straggler_slowdown=10.0, latency=0.0, bandwidth=1e12)

    def seconds(protocol):
        simulation = Simulation(RunSetup(protocol, graphs.complete(8), Seed(0), Stop(iterations=400), timing))
        simulation.advance()
        return simulation.agenda.now

    assert seconds(SyncGossip()) == pytest.approx(400 / 8 * 10.0, rel=0.05)
    assert seconds(AsyncGossip()) < 0.3 * seconds(SyncGossip())


@pytest.mark.parametrize("wrong", [{"d": 0.0}, {"d": -1.0}])
def test_impossible_poisson_settings_are_refused(wrong):
    with pytest.raises(SpecError, match=r"timing\.d"):
        PoissonTiming(**wrong)


@pytest.mark.parametrize("wrong", [{"compute": 0.0}, {"bandwidth": -1.0}, {"spread": -0.1}, {"straggler_share": 2.0}])
def test_impossible_network_settings_are_refused(wrong):
    with pytest.raises(SpecError, match="timing"):
        NetworkTiming(**wrong)


def test_a_run_that_would_never_end_is_refused():
    with pytest.raises(SpecError, match="stop"):
        Stop(target_loss=0.1)


def test_each_node_computes_as_fast_as_is_said():
    named = graphs.cycle(3).named(["lyon", "paris", "nice"])
    for compute in ([1.0, 2.0, 8.0], np.array([1.0, 2.0, 8.0]), {"nice": 8.0, "paris": 2.0, "lyon": 1.0}):
        stopwatch = Stopwatch(NetworkTiming(compute=compute), named, Seed(0))
        assert [stopwatch.training_time(node) for node in range(3)] == [1.0, 2.0, 8.0]
    assert NetworkTiming(compute=[1.0, 2.0, 9.0]).mean_compute == 4.0


def test_one_number_for_all_or_each_gives_the_same_run():
    def ends(compute):
        timing = NetworkTiming(compute=compute, spread=0.4, straggler_share=0.25, straggler_slowdown=3.0)
        simulation = Simulation(RunSetup(AsyncGossip(), graphs.cycle(4), Seed(3), Stop(iterations=80), timing))
        simulation.advance()
        return simulation.agenda.now, simulation.bytes, simulation.events

    assert ends(0.7) == ends([0.7] * 4) == ends({str(node): 0.7 for node in range(4)})


@pytest.mark.parametrize(
    ("compute", "line"),
    [
        ([1.0, 2.0], "timing.compute: 2 values for 3 nodes; give one number for all, or one for each node"),
        ({"0": 1.0, "1": 1.0}, "timing.compute: node '2' is missing"),
        ({"0": 1.0, "1": 1.0, "2": 1.0, "x": 1.0}, "timing.compute: there is no node 'x'; nodes: 0, 1, 2"),
        ([1.0, -1.0, 1.0], "timing.compute: -1.0 is not possible"),
        ("fast", "timing.compute: 'fast' is not possible; allowed: a number above 0"),
    ],
)
def test_impossible_times_by_node_are_one_line(compute, line):
    with pytest.raises(SpecError, match=line):
        Stopwatch(NetworkTiming(compute=compute), graphs.cycle(3), Seed(0))
