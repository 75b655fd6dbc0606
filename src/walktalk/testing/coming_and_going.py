"""What a protocol must do that says its nodes come and go: one joins, one leaves for good, laws hold."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import HEADER_BYTES, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger as Ledger
from walktalk.runtimes.peers import read_event_log
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine
from walktalk.testing.cluster import crowd, done, wait_for
from walktalk.testing.engines import Outcome, simulated
from walktalk.testing.quadratic import Floats, QuadraticTrainer
from walktalk.testing.replay import Replay
from walktalk.transforms.codecs import codec_named

# -- What every protocol must do, whoever wrote it: each check is a question to a run, and says what is wrong with it -

Check: TypeAlias = Callable[[Outcome], None]


def iterations_are_counted_one_by_one(run: Outcome) -> None:
    """Trainings that end are numbered from 1, without a gap."""
    counted = [row.iteration for row in run.trace if row.event == "trained"]
    assert counted, "nothing was ever trained"
    assert counted == list(range(1, len(counted) + 1)), f"iterations are {counted[:20]} …"


def a_node_trains_one_model_at_a_time(run: Outcome) -> None:
    """No node trains two models at once, and every training that ends has begun."""
    busy: dict[int, int] = {}
    for row in run.trace:
        if row.event in ("train", "differentiate"):
            assert row.node not in busy, f"node {row.node} trains two models at {row.time:g} s"
            busy[row.node] = row.number
        elif row.event == "trained":
            assert busy.pop(row.node, None) == row.number, f"training {row.number} ends at node {row.node}, unbegun"


def messages_go_where_links_are_and_arrive_once(run: Outcome) -> None:
    """Nobody sends to a node that it has no link to; nothing is received twice, or without having been sent."""
    sent = {row.number: row for row in run.trace if row.event == "send"}
    received = [row.number for row in run.trace if row.event == "receive"]
    assert len(set(received)) == len(received), "a message was received twice"
    assert set(received) <= set(sent), "a message was received that nobody sent"
    astray = [row for row in sent.values() if row.peer not in run.graph.neighbours(row.node)]
    assert not astray, f"node {astray[0].node} sends to {astray[0].peer}, to which it has no link"


def messages_are_as_declared(run: Outcome) -> None:
    """Every kind is in the protocol's `messages`, with a model exactly where one is declared."""
    messages = run.protocol.resilient_form().messages
    for row in run.trace:
        if row.event == "send":
            kind = row.detail["kind"] if isinstance(row.detail, dict) else ""
            assert kind in messages, f"messages of kind {kind!r} are sent and not declared"
            assert bool(row.slot) == bool(messages[kind].slot), f"{kind!r}: a model is declared, or sent, and not both"


def bytes_are_those_of_what_is_sent(run: Outcome) -> None:
    """The bytes counted for a message are its header, its fields, and its model as the codec encodes it."""
    if "peers" not in run.protocol.runtimes:
        return  # what no real network can send is counted otherwise
    messages, last = run.protocol.resilient_form().messages, run.measurements[-1].op
    sends = [row for row in run.trace if row.event == "send"]
    payloads = 0
    for row in sends:
        codec = messages[row.detail["kind"]].codec
        whole = codec_named(codec).size(run.model_bytes // 4) if codec else run.model_bytes
        payload = whole if row.slot else 0
        assert row.bytes >= HEADER_BYTES + payload, f"a message of {row.bytes} bytes carries {payload}"
        payloads += payload
    withdrawn = sum(row.bytes for row in run.trace if row.event == "superseded")
    total = sum(row.bytes for row in sends) - withdrawn
    # Real nodes hear of the end a moment later, so the last evaluation may not have seen the last messages.
    late = 0.25 * total + 2 * (HEADER_BYTES + run.model_bytes) * run.graph.nodes
    assert 0 <= 8 * total - last.bits <= 8 * late, f"{8 * total} bits were sent, {last.bits:g} counted"
    assert last.model_bits <= 8 * payloads, f"models of {8 * payloads} bits were sent, {last.model_bits:g} counted"


def models_stay_finite_and_the_loss_falls(run: Outcome) -> None:
    """Models stay finite and the loss falls, on a strongly convex problem whose nodes want different models."""
    losses = [m.train_loss for m in run.measurements]
    assert np.isfinite(losses).all(), f"losses are {losses}"
    assert np.isfinite(run.output).all(), "the model that it puts out is not finite"
    # Not the last: one walk leans to where it has just been. Not all of the loss can go away.
    best, wanted = min(losses), max(0.5 * losses[0], losses[0] - 1.0)
    assert best < wanted, f"the loss starts at {losses[0]:.3g} and is {best:.3g} at best"


def the_trace_computes_the_same_model_again(run: Outcome) -> None:
    """Replaying a real run's trace gives the same model: the trace leaves nothing out."""
    if "peers" not in run.protocol.runtimes:
        return
    far = float(np.abs(run.replayed - run.output).max())
    assert np.allclose(run.replayed, run.output, rtol=1e-3, atol=1e-3), f"models differ by {far:.3g}"


def nothing_is_counted_twice(run: Outcome) -> None:
    """No update and no message is mixed in twice, where the protocol promises so."""
    resilient_form = run.protocol.resilient_form()
    if "once" not in run.protocol.conserves and not any(a.once for a in resilient_form.messages.values()):
        return
    trainings = sum(row.event in ("train", "differentiate") for row in run.trace)
    ledger = Ledger(run.protocol, run.graph.nodes, trainings).play(row for row in run.trace if row.event != "kill")
    assert not ledger.twice, f"{ledger.twice} models that came were mixed in twice"
    if "once" in run.protocol.conserves:
        assert ledger.sound, f"an update is in an aggregate with weight {max(ledger.worst, ledger.counted):.3g}"


CHECKS: tuple[Check, ...] = (
    iterations_are_counted_one_by_one,
    a_node_trains_one_model_at_a_time,
    messages_go_where_links_are_and_arrive_once,
    messages_are_as_declared,
    bytes_are_those_of_what_is_sent,
    models_stay_finite_and_the_loss_falls,
    the_trace_computes_the_same_model_again,
    nothing_is_counted_twice,
)


def others_train_on_while_one_is_dead(run: Outcome, node: int, seconds: float) -> None:
    """While one node is dead, other nodes go on training."""
    times = [row.time for row in run.trace if row.node == node and row.event == "trained"]
    gaps = list(itertools.pairwise([0.0, *times, run.seconds]))
    start, end = max(gaps, key=lambda pair: pair[1] - pair[0])
    assert end - start >= 0.9 * seconds, f"node {node} was to be dead for {seconds:g} s, and trained all the time"
    meanwhile = {row.node for row in run.trace if row.event == "trained" and start < row.time < end}
    assert meanwhile - {node}, f"nobody trained while node {node} was dead"


def one_that_comes_back_takes_part_again(run: Outcome, node: int, since: float) -> None:
    """A node that comes back trains, or receives somebody's model."""
    active = {row.node for row in run.trace if row.time > since and row.event in ("trained", "receive")}
    assert node in active, f"node {node} came back and does nothing"


# -- What a protocol must do that says its nodes come and go: one joins, one leaves for good, laws hold ---------------

NODES = 6
SECONDS = 8.0
LEAVES_IN = 60.0  # seconds of a real node
# A graph that has lost a node has other links; the replay of a real run keeps the models of those who left. One that
# joins has the model of another for a moment, which looks as if one had come twice: `once` is checked where updates are
# followed into an aggregate.
NOT_HERE = (messages_go_where_links_are_and_arrive_once, the_trace_computes_the_same_model_again)
TRAINING = 0.05  # seconds
TIMING = NetworkTiming(compute=TRAINING, spread=0.3, latency=0.05 * TRAINING, bandwidth=1000.0 / TRAINING)


def flaws_of_coming_and_going(protocol: Protocol, graph: Graph | None = None, engine: str = "sim") -> Iterator[str]:
    """What is wrong with a protocol where a node joins late and another one leaves for good.

    Args:
        protocol: the one that is asked.
        graph: where it runs; if left out, on those of a few that it can run on.
        engine: "sim", virtual time, or "peers", real nodes in threads of this process, on the first of those graphs.
    """
    tried = (
        [graph] if graph is not None and _can_change(graph) else [one for one in _graphs(protocol) if _can_change(one)]
    )
    if not tried:
        yield "says that nodes come and go, on no graph that can change (links both ways, the same in all rounds)"
    if engine == "peers":
        for where in tried[:1]:
            yield from _flaw(f"{where.name}, on real nodes", _real_nodes_come_and_go, protocol, where)
        return
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


def _real_nodes_come_and_go(protocol: Protocol, graph: Graph) -> None:
    """One more node joins those of the graph, trains and does not begin anew; another leaves, and all others go on."""
    leaves = f"n{_leaver(protocol)}"
    with tempfile.TemporaryDirectory() as folder, crowd(Path(folder), protocol.resilient_form(), graph) as made:
        new = made.knocks("newcomer")
        wait_for(lambda: done(new) > 3, "a training of one that joins")
        made.nodes[leaves].leave_for_good()
        made.threads[leaves].join(LEAVES_IN)
        assert not made.threads[leaves].is_alive(), "one that is to leave for good does not go"
        left = [node for name, node in made.nodes.items() if name != leaves]
        before = {node.models.me: done(node) for node in left}
        wait_for(lambda: all(done(node) > before[node.models.me] + 3 for node in left), "training after one has left")
        own, trace = read_event_log(made.cluster.folder / "newcomer"), made.trace()
    fresh = [row for row in own if row.event == "combine" and "initial" in row.detail]
    assert not fresh, f"one that joins begins with the initial model, at {fresh[0].time:g} s"
    trainings = sum(row.event in ("train", "differentiate") for row in trace)
    ledger = Ledger(protocol, graph.nodes, trainings).play(row for row in trace if row.event != "kill")
    assert "once" not in protocol.conserves or (ledger.sound and not ledger.twice), "an update is counted twice"


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
    """Where it can run: with few links, of which new ones are made where one leaves, with all, or on its own kind."""
    found: list[Graph] = []
    own = [graphs.build(protocol.made_for, NODES)] if protocol.made_for else []
    for one in (graphs.cycle(NODES), graphs.complete(NODES), *own):
        try:
            protocol.check_graph(one)
        except Exception:  # it cannot run there, for whatever reason of its own
            continue
        found.append(one)
    return found


def _can_change(graph: Graph) -> bool:
    return not graph.directed and graph.rounds is None


def _leaver(protocol: Protocol) -> int:
    """The first node behind node 0 that another can replace: a server cannot leave."""
    return next(node for node in (1, 2) if not protocol.irreplaceable(node))


def _flaw(name: str, check: Callable[..., None], *given: object) -> Iterator[str]:
    try:
        check(*given)
    except AssertionError as error:
        yield f"{name.replace('_', ' ')}: {error or 'no'}"
