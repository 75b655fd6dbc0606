"""`check_protocol`: the whole conformance suite on one protocol, a stranger's as our own."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Evaluate, Objective, Stop
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming, RunSetup, Simulation, Timing
from walktalk.runtimes.stacked import Engine
from walktalk.testing.coming_and_going import (
    CHECKS,
    flaws_of_coming_and_going,
    one_that_comes_back_takes_part_again,
    others_train_on_while_one_is_dead,
)
from walktalk.testing.engines import ENGINES, Outage
from walktalk.testing.quadratic import MeasuringTrainer, QuadraticTrainer
from walktalk.testing.replay import Replay

ITERATIONS = 120
TIMINGS: tuple[Timing, ...] = (
    PoissonTiming(d=2.0),
    NetworkTiming(compute=1.0, spread=0.5, straggler_share=0.3, straggler_slowdown=4.0, latency=0.3, bandwidth=100.0),
)


class ProtocolFlaws(AssertionError):
    """Raised with everything that is wrong with a protocol, one line each."""


def check_protocol(
    protocol: Protocol, engines: Sequence[str] = ("sim", "peers"), *, graph: Graph | None = None, seconds: float = 7.0
) -> None:
    """Run a protocol through everything that a protocol must do; raises `ProtocolFlaws` with what is wrong.

    In virtual time: the same seed gives the same run, what the executor computes agrees with an independent replay of
    the trace on several graphs and under both timings, running statistics of models stay in the range of the nodes'
    own, the laws hold that the protocol says it conserves, and where one node has most of the data it ends where all
    data have their optimum. In each engine: see `walktalk.testing.coming_and_going`.
    If it says that it survives failures, a node dies in the middle of its work and comes back; if it says that
    nodes come and go, one joins in each engine and another one leaves for good.

    Args:
        protocol: the one to check; give it short heartbeats and patience, if it has any, or `seconds` more time.
        engines: "sim", virtual time, and "peers", real nodes over loopback (needs the extra `peers`); those that the
            protocol cannot run on by its own word are passed over.
        graph: where to run it; otherwise one that it can run on is chosen.
        seconds: how long the runs with a failure last.
    """
    flaws = [*_described(protocol)]
    given, graph = graph, graph or graph_for(protocol)
    flaws += _tried("in virtual time", partial(_in_virtual_time, protocol, graph))
    for engine in engines:
        if engine not in ENGINES:
            raise ValueError(f"engines: {engine!r} is unknown; allowed: {', '.join(ENGINES)}")
        if engine in protocol.runtimes:
            flaws += _tried(f"engine {engine}", partial(_on_engine, protocol, graph, engine, seconds))
            if protocol.nodes_come_and_go:
                coming = partial(flaws_of_coming_and_going, protocol, given, engine)
                flaws += _tried(f"nodes come and go, engine {engine}", coming)
    if flaws:
        raise ProtocolFlaws("\n".join((f"{protocol.label}: {len(flaws)} flaws", *(f"- {flaw}" for flaw in flaws))))


def _described(protocol: Protocol) -> Iterator[str]:
    """Whether the protocol describes itself: label, title, description, family."""
    for name in ("label", "title", "description", "family"):
        if not getattr(protocol, name):
            yield f"{name} is empty"
    if type(protocol).usual() and protocol.resilient_form().resilient_form() != protocol.resilient_form():
        yield "resilient_form: is not the same when it is asked for twice"


def graph_for(protocol: Protocol) -> Graph:
    """A small graph that a protocol can run on."""
    if protocol.made_for:
        return graphs.build(protocol.made_for, 5)
    return graphs.exponential(5) if protocol.on_directed_graphs else graphs.erdos_renyi(5, p=0.6, seed=2)


def _tried(where: str, work: Callable[[], Iterator[str]]) -> list[str]:
    """The flaws that a check finds; an exception counts as one more."""
    found: list[str] = []
    try:
        found.extend(work())
    except Exception as error:  # whatever a stranger's machine may raise
        found.append(f"{type(error).__name__}: {error}")
    return [f"{where}: {flaw}" for flaw in found]


def _on_engine(protocol: Protocol, graph: Graph, engine: str, seconds: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        run = ENGINES[engine](protocol, graph, Stop(iterations=ITERATIONS), Path(folder))
    for check in CHECKS:
        yield from _flaw(check.__name__, partial(check, run))
    if protocol.survives_failures and protocol.messages:  # what sends nothing does not notice
        outage = Outage(at=0.1 * seconds, node=graph.nodes - 1, seconds=0.2 * seconds)
        with tempfile.TemporaryDirectory() as folder:
            disturbed = ENGINES[engine](protocol, graph, Stop(time=seconds), Path(folder), outage)
        back, gone = 0.6 * seconds, outage.seconds
        yield from _flaw("a node dies", partial(others_train_on_while_one_is_dead, disturbed, outage.node, gone))
        yield from _flaw(
            "a node comes back", partial(one_that_comes_back_takes_part_again, disturbed, outage.node, back)
        )


def _flaw(name: str, check: Callable[[], None]) -> Iterator[str]:
    try:
        check()
    except AssertionError as error:
        yield f"{name.replace('_', ' ')}: {error or 'no'}"


def _in_virtual_time(protocol: Protocol, graph: Graph) -> Iterator[str]:
    for timing, kind in zip(TIMINGS, ("poisson", "network"), strict=True):
        for where in _graphs_around(protocol, graph):
            name = f"{where.name}, {kind} timing"
            yield from _flaw(f"{name}: repeats", partial(_repeats, protocol, where, timing))
            yield from _flaw(f"{name}: replay", partial(_agrees_with_the_replay, protocol, where, timing))
            yield from _flaw(f"{name}: statistics", partial(_keeps_statistics, protocol, where, timing))
        if "sum" in protocol.conserves:
            yield from _flaw(f"{kind}: sum", partial(_ends_at_the_mean, protocol, graph, timing))
    if not protocol.pools_data and "screen" not in protocol.settings:  # a screen leaves out who is far from the others
        yield from _flaw("objective", partial(_aims_at_the_objective, protocol, graph))


def _graphs_around(protocol: Protocol, graph: Graph) -> list[Graph]:
    others = [graphs.cycle(4), graphs.complete(4)]
    return [graph, *(one for one in others if _fits(protocol, one))]


def _fits(protocol: Protocol, graph: Graph) -> bool:
    try:
        protocol.check_graph(graph)
    except Exception:
        return False
    return True


def _setup(protocol: Protocol, graph: Graph, timing: Timing, seed: int = 7, **changes: object) -> RunSetup:
    usual = RunSetup(
        protocol, graph, Seed(seed), Stop(iterations=ITERATIONS), timing, Evaluate(every=20), lr=0.1, model_bytes=20
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def _repeats(protocol: Protocol, graph: Graph, timing: Timing) -> None:
    """A seed always gives the same run, and another seed another run."""
    first, again, other = (Simulation(_setup(protocol, graph, timing, seed)).advance().trace for seed in (1, 1, 2))
    assert first == again, "the same seed gives another run: something random does not come from outside"
    assert first != other, "another seed gives the same run"


def _agrees_with_the_replay(protocol: Protocol, graph: Graph, timing: Timing) -> None:
    """The executor's model is that of an independent replay of the trace."""
    trainer = QuadraticTrainer(graph.nodes)
    engine = Engine(trainer, [_setup(protocol, graph, timing)], [trainer.initial()])
    trace = [row for k in (1, 2, 3) for row in engine.advance(k / 3).traces.get(0, [])]
    centres = trainer.centres[:-1]
    if protocol.pools_data:
        centres = np.repeat(trainer.centres[-1:], graph.nodes, 0)
    initial = trainer.initial().double().numpy()
    replay = Replay(initial, trainer.curvature, centres, trainer.steps, _metropolis(graph)).play(trace)
    ours, theirs = engine.output(0).double().numpy(), replay.output()
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-3), f"{ours} and {theirs}"


def _keeps_statistics(protocol: Protocol, graph: Graph, timing: Timing) -> None:
    """A running variance never leaves the range of those of the nodes."""
    trainer = MeasuringTrainer(graph.nodes)
    engine = Engine(trainer, [_setup(protocol, graph, timing)], [trainer.initial()])
    engine.advance(1.0)
    seen = [float(row[-1]) for row in trainer.evaluated]
    low, high = min(*trainer.variances, 1.0), max(*trainer.variances, 1.0)
    assert min(seen) >= low * (1 - 1e-3), f"a variance is {min(seen):.3g}, nodes have {low:.3g} or more"
    assert max(seen) <= high * (1 + 1e-3), f"a variance is {max(seen):.3g}, nodes have {high:.3g} or less"


def _aims_at_the_objective(protocol: Protocol, graph: Graph) -> None:
    """Where one node has most of the data, it ends where all data together have their optimum; some need longer."""
    try:
        _aims_within(300, protocol, graph)
    except AssertionError:
        _aims_within(2000, protocol, graph)


def _aims_within(trainings: int, protocol: Protocol, graph: Graph) -> None:
    """Whether it is there after that many trainings of each node.

    By a rate that falls to nothing, as walks and unlike nodes need; what is left then is no third of the way from the
    optimum of nodes that are counted alike.
    """
    trainer = QuadraticTrainer(graph.nodes, steps=1)
    trainer.samples = [1] * (graph.nodes - 1) + [4 * graph.nodes]
    centres, counts = trainer.centres[:-1], np.asarray(trainer.samples)
    wanted, alike = (counts / counts.sum()) @ centres, centres.mean(0)
    run = _setup(
        protocol,
        graph,
        TIMINGS[0],
        stop=Stop(iterations=trainings * graph.nodes),
        objective=Objective("samples"),
        schedule=lambda progress: 1.0 - progress,
    )
    engine = Engine(trainer, [run], [trainer.initial()])
    engine.advance(1.0)
    found = engine.output(0).double().numpy()
    far, way = (float(np.linalg.norm(where - wanted)) for where in (found, alike))
    words = f"it ends {far:.3g} beside the optimum of all data; that of nodes counted alike is {way:.3g} away"
    assert far < way / 3, words


def _ends_at_the_mean(protocol: Protocol, graph: Graph, timing: Timing) -> None:
    """Once nothing is learned any more, all agree on the mean of what everybody had learned.

    Of those that do not wait for messages many more iterations go by until as much has been said.
    """
    try:
        _agrees_after(60, protocol, graph, timing)
    except AssertionError:
        _agrees_after(400, protocol, graph, timing)


def _agrees_after(rounds: int, protocol: Protocol, graph: Graph, timing: Timing) -> None:
    """Whether all agree after that many trainings of each, in the first six of which something was learned."""
    trainer, learning = QuadraticTrainer(graph.nodes), 6 / rounds
    end = Stop(iterations=rounds * graph.nodes)
    run = _setup(protocol, graph, timing, schedule=lambda progress: float(progress < learning), stop=end)
    engine = Engine(trainer, [run], [trainer.initial()])
    trace = engine.advance(1.0).traces[0]
    initial = trainer.initial().double().numpy()
    replay = Replay(initial, trainer.curvature, trainer.centres[:-1], trainer.steps, _metropolis(graph)).play(trace)
    expected = initial + np.sum(replay.updates, axis=0) / graph.nodes
    members = np.stack([replay.members[key] for key in sorted(replay.members)])
    scale = float(np.abs(np.sum(np.abs(replay.updates), axis=0)).max()) / graph.nodes
    assert np.abs(members - members.mean(0)).max() <= 1e-2 * scale, "members do not come to agree"
    assert np.allclose(members.mean(0), expected, atol=1e-2 * scale), f"{members.mean(0)} and {expected}"


def _metropolis(graph: Graph) -> np.ndarray:
    """P of Section 4.1, written from its definition."""
    p = np.zeros((graph.nodes, graph.nodes))
    for i in range(graph.nodes):
        for j in graph.neighbours(i):
            p[i, j] = min(1 / (len(graph.neighbours(i)) + 1), 1 / (len(graph.neighbours(j)) + 1))
        p[i, i] = 1 - math.fsum(p[i])
    return p
