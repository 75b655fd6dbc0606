"""CECA where nodes join and leave: its windows and its ring are those of whoever is there, whatever their numbers."""

from __future__ import annotations

import random

from walktalk.protocols import CECA, NetworkView
from walktalk.protocols.events import NetworkChanged, PeerLost, Started, Trained
from walktalk.protocols.gossip.ceca import doublings
from walktalk.protocols.machine import Context


def test_windows_are_those_of_the_nodes_that_are_there_from_the_next_round_on() -> None:
    context, six = Context(0.0, random.Random(0)), NetworkView(0, 6, (1, 2, 3, 4, 5), (5,) * 5)
    machine = CECA().resilient_form().machine(six)
    machine.handle(Started(), context)
    four = NetworkView(0, 4, (1, 3, 5), (3,) * 3, leaving=frozenset({2, 4}), first=6, version=7)
    machine.handle(NetworkChanged(four), context)
    assert machine.rule.rounds == doublings(6)  # type: ignore[attr-defined]
    machine.handle(PeerLost(5), context)  # whose message this round would wait for
    machine.handle(Trained("model", lr=0.1), context)
    assert machine.rule.rounds == doublings(4)  # type: ignore[attr-defined]
    ring = machine.meeting.around.rounds  # type: ignore[attr-defined]
    assert [ring.targets(node, 0) for node in (0, 1, 3, 5, 2)] == [(1,), (3,), (5,), (0,), ()]
