"""Every protocol that says so lets nodes join and leave for good while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from walktalk.protocols import AGRAF, PROTOCOLS, SWIFT, AsyncGossip, Protocol, SwarmSGD, compressed
from walktalk.testing.coming_and_going import flaws_of_coming_and_going


def those_that_say_so() -> list[Protocol]:
    """All that are registered, with short times to wait for others."""
    each = [PROTOCOLS.find(name)() for name in PROTOCOLS]
    short = {"patience": 0.4, "heartbeat": 0.1}
    return [
        replace(one, **{name: value for name, value in short.items() if name in one.settings})  # type: ignore[type-var]
        for one in each
        if one.nodes_come_and_go
    ]


@pytest.mark.parametrize("protocol", those_that_say_so(), ids=lambda one: one.name)
def test_nodes_come_and_go(protocol: Protocol) -> None:
    assert list(flaws_of_coming_and_going(protocol)) == []


@pytest.mark.parametrize(
    "protocol",
    [
        AsyncGossip(mixing="neighbourhood", patience=0.4),
        AsyncGossip(overlap=True, patience=0.4),
        SwarmSGD(steps=2, random_steps=True, patience=0.4),
        SwarmSGD(blocking=True, patience=0.4),
        SwarmSGD(codec="int4", patience=0.4),
        compressed(AsyncGossip(patience=0.4), "top_k(0.5)"),
        compressed(AGRAF(patience=0.4), "int8", error_feedback=True),
        compressed(SWIFT(), "int8"),
    ],
    ids=lambda one: one.label,
)
def test_nodes_come_and_go_in_other_forms_of_gossip(protocol: Protocol) -> None:
    """Other settings, and codecs, of which some keep a reference for every neighbour."""
    assert protocol.nodes_come_and_go
    assert list(flaws_of_coming_and_going(protocol)) == []
