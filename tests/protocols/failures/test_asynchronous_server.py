"""Asynchronous protocols with a server, and SWIFT, where nodes and messages are lost for a while."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_timings, storms
from walktalk import graphs
from walktalk.protocols import SWIFT, AsyncSGD, FedBuff
from walktalk.runtimes.simulator import Fault, PoissonTiming

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)
KINDS = ("kill", "kill", "pause", "partition", "lose", "slow")


@settings(max_examples=8, deadline=None, phases=QUICKLY)
@given(st.data())
def test_after_the_storm_all_train_on_and_nothing_was_taken_in_twice(data):
    graph = graphs.star(data.draw(st.integers(2, 7)))
    protocol = data.draw(st.sampled_from([AsyncSGD(), FedBuff(buffer=3), SWIFT()]))
    faults = data.draw(storms(graph, KINDS))
    seed, timing = data.draw(st.integers(0, 999)), data.draw(some_timings)
    _, trace = simulate(protocol, graph, faults, timing, seed, until=320.0)
    assert {row.node for row in trace if row.event == "trained" and row.time > 220.0} == set(range(graph.nodes))
    if isinstance(protocol, AsyncSGD):
        taken = sum(row.event == "combine" and row.node == 0 and row.slot == "buffer" for row in trace)
        assert taken <= sum(row.event == "trained" for row in trace)


def test_while_nothing_fails_both_forms_do_the_same():
    ends = [
        simulate(AsyncSGD(resilient=resilient), graphs.star(5), (), PoissonTiming(), 3, 60.0)[1]
        for resilient in (True, False)
    ]
    assert ends[0] == ends[1]


def test_a_result_that_is_sent_again_is_answered_again_and_counts_once():
    """Half of all messages are lost for a while; whoever sends a result sends it until there is an answer."""
    faults = (Fault("lose", at=5.0, seconds=60.0, share=0.5),)
    _, trace = simulate(AsyncSGD(patience=2.0), graphs.star(4), faults, PoissonTiming(), 1, 150.0)
    received = [row for row in trace if row.event == "receive" and row.node == 0]
    taken = [row for row in trace if row.event == "combine" and row.node == 0 and row.slot == "buffer"]
    own = sum(row.event == "trained" and row.node == 0 for row in trace)
    trained = sum(row.event == "trained" and row.node > 0 for row in trace)
    assert len(received) > len(taken) - own  # some came again
    assert trained - 3 <= len(taken) - own <= trained  # all of others but what is on the way, each once
