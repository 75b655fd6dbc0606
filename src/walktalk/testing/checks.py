"""What every protocol must do, whoever wrote it: each check is a question to a run, and says what is wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from walktalk.protocols import HEADER_BYTES
from walktalk.runtimes.peers import Ledger as Ledger
from walktalk.testing.engines import Outcome
from walktalk.transforms.codecs import codec_named

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
