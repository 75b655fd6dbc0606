"""What a protocol must do that says its nodes come and go: one joins, one leaves for good, laws hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine
from walktalk.testing.checks import (
    CHECKS,
    messages_go_where_links_are_and_arrive_once,
    nothing_is_counted_twice,
    the_trace_computes_the_same_model_again,
)
from walktalk.testing.engines import Outcome, simulated
from walktalk.testing.quadratic import Floats, QuadraticTrainer
from walktalk.testing.replay import Replay

NODES = 6
SECONDS = 8.0
# A graph that has lost a node has other links; the replay of a real run keeps the models of those who left. One that
# joins has the model of another for a moment, which looks as if one had come twice: `once` is checked where updates are
# followed into an aggregate.
NOT_HERE = (messages_go_where_links_are_and_arrive_once, the_trace_computes_the_same_model_again)
TRAINING = 0.05  # seconds
TIMING = NetworkTiming(compute=TRAINING, spread=0.3, latency=0.05 * TRAINING, bandwidth=1000.0 / TRAINING)


def flaws_of_coming_and_going(protocol: Protocol, graph: Graph | None = None) -> Iterator[str]:
    """What is wrong with a protocol where, in virtual time, its last node joins late and another leaves for good."""
    tried = (
        [graph] if graph is not None and _can_change(graph) else [one for one in _graphs(protocol) if _can_change(one)]
    )
    if not tried:
        yield "says that nodes come and go, on no graph that can change (links both ways, the same in all rounds)"
    for where in tried:
        joins, leaves = where.nodes - 1, _leaver(protocol)
        faults = (Fault("join", at=0.25 * SECONDS, node=joins), Fault("leave", at=0.5 * SECONDS, node=leaves))
        run = simulated(protocol, where, Stop(time=SECONDS), Path(), faults=faults)
        for check in CHECKS:
            if check not in NOT_HERE and (check is not nothing_is_counted_twice or "once" in protocol.conserves):
                yield from _flaw(f"{where.name}: {check.__name__}", check, run)
        yield from _flaw(f"{where.name}: one that joins", one_that_joins_takes_part, run, joins)
        yield from _flaw(f"{where.name}: one that joins", one_that_joins_begins_with_a_model_of_others, run, joins)
        yield from _flaw(f"{where.name}: one that leaves", one_that_leaves_is_gone, run, leaves)
        if "sum" in protocol.conserves:
            yield from _flaw(f"{where.name}: sum", _keeps_the_sum_afterwards, protocol, where, joins, leaves)


def one_that_joins_takes_part(run: Outcome, node: int) -> None:
    """It trains, or is given models, to the end, and not before it has come."""
    came = next((row.time for row in run.trace if row.event == "joined"), None)
    assert came is not None, f"node {node} never joined"
    times = [row.time for row in run.trace if row.node == node and row.event in ("trained", "receive")]
    assert not [time for time in times if time < came], f"node {node} takes part before it has joined"
    late = run.seconds - 0.25 * (run.seconds - came)
    assert [time for time in times if time > late], f"node {node} has joined, and does nothing towards the end"


def one_that_joins_begins_with_a_model_of_others(run: Outcome, node: int) -> None:
    """The initial model would take back what the others have learned."""
    used = [row for row in run.trace if row.node == node and row.event == "combine" and "initial" in row.detail]
    assert not used, f"node {node} has joined, and begins with the initial model at {used[0].time:g} s"


def one_that_leaves_is_gone(run: Outcome, node: int) -> None:
    """It goes soon, does nothing any more, and nobody stops because of it."""
    asked = next((row.time for row in run.trace if row.event == "leaves_for_good"), None)
    assert asked is not None, f"node {node} was never asked to leave"
    gone = next((row.time for row in run.trace if row.event == "left_for_good"), None)
    assert gone is not None, f"node {node} never leaves"
    after = [row.event for row in run.trace if row.time > gone and row.node == node and row.event != "lost"]
    assert not after, f"node {node} has left, and still there is {after[0]!r}"
    late = run.seconds - 0.25 * (run.seconds - gone)
    busy = {row.node for row in run.trace if row.event in ("trained", "receive") and row.time > late}
    idle = set(range(run.graph.nodes)) - busy - {node}
    assert not idle, f"nodes {sorted(idle)} do nothing any more after node {node} has left"


def _keeps_the_sum_afterwards(protocol: Protocol, graph: Graph, joins: int, leaves: int) -> None:
    """The others agree, learn again, and agree on what that moved their mean by.

    Of those that do not wait for messages much more time goes by until as much has been said.
    """
    try:
        _sum_after(100, protocol, graph, joins, leaves)
    except AssertionError:
        _sum_after(800, protocol, graph, joins, leaves)


def _sum_after(trainings: int, protocol: Protocol, graph: Graph, joins: int, leaves: int) -> None:
    """Whether the mean of those that are left moves by what they learn, in a run of so many trainings."""
    seconds = trainings * TRAINING
    trainer = QuadraticTrainer(graph.nodes)
    changes = (Fault("join", at=0.1 * seconds, node=joins), Fault("leave", at=0.2 * seconds, node=leaves))
    learning = 4.0 / trainings
    run = _setup(protocol, graph, seconds, changes)
    run = replace(run, schedule=lambda done: float(done < 0.25 or 0.5 <= done < 0.5 + learning))
    engine = Engine(trainer, [run], [trainer.initial()])
    trace: list[TraceRow] = engine.advance(1.0).traces[0]
    initial, matrix = trainer.initial().double().numpy(), np.eye(graph.nodes)
    replay = Replay(initial, trainer.curvature, trainer.centres[:-1], trainer.steps, matrix)
    replay.play(row for row in trace if row.time < 0.5 * seconds)
    start, known = _members(replay, leaves), len(replay.updates)
    replay.play(row for row in trace if row.time >= 0.5 * seconds)
    end, learned = _members(replay, leaves), np.asarray(replay.updates[known:])
    scale = float(np.abs(learned).sum(0).max()) / len(end)
    assert np.abs(start - start.mean(0)).max() <= 1e-2 * scale, "after a change of nodes they do not come to agree"
    assert np.abs(end - end.mean(0)).max() <= 1e-2 * scale, "they do not come to agree again"
    moved, expected = end.mean(0) - start.mean(0), learned.sum(0) / len(end)
    assert np.allclose(moved, expected, atol=2e-2 * scale), f"the mean moves by {moved} and not by {expected}"


def _members(replay: Replay, left: int) -> Floats:
    """The models of all that are there."""
    return np.stack([replay.members[key] for key in sorted(replay.members) if key != left])


def _setup(protocol: Protocol, graph: Graph, seconds: float, changes: tuple[Fault, ...]) -> RunSetup:
    return RunSetup(
        protocol.resilient_form(),
        graph,
        Seed(7),
        Stop(time=seconds),
        TIMING,
        Evaluate(every=100),
        lr=0.1,
        model_bytes=20,
        faults=FaultPlan(changes, Seed(3)),
    )


def _graphs(protocol: Protocol) -> list[Graph]:
    """Where it can run: with few links, of which new ones are made where one leaves, and with all."""
    found = []
    for one in (graphs.cycle(NODES), graphs.complete(NODES)):
        try:
            protocol.check_graph(one)
        except Exception:  # it cannot run there, for whatever reason of its own
            continue
        found.append(one)
    return found


def _can_change(graph: Graph) -> bool:
    return not graph.directed and graph.rounds is None


def _leaver(protocol: Protocol) -> int:
    """A node that is no server."""
    return 1 if protocol.settings.get("server") != 1 else 2


def _flaw(name: str, check: Callable[..., None], *given: object) -> Iterator[str]:
    try:
        check(*given)
    except AssertionError as error:
        yield f"{name.replace('_', ' ')}: {error or 'no'}"
