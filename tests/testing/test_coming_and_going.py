"""Every protocol that says so lets nodes join and leave for good while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from walktalk.protocols import (
    AGRAF,
    PROTOCOLS,
    SWIFT,
    AsyncGossip,
    Context,
    Effect,
    Event,
    FedAvg,
    Machine,
    NetworkView,
    PairRule,
    Protocol,
    Started,
    SwarmSGD,
    Turns,
    compressed,
)
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


def each(quick: Callable[[Protocol], bool], protocols: Iterable[Protocol]) -> list[Any]:
    """A case for each protocol; those that are not quick are among the slow tests."""
    return [pytest.param(one, marks=slow_unless(quick(one)), id=one.label) for one in protocols]


def is_one_of_each(protocol: Protocol) -> bool:
    return protocol.name in ONE_OF_EACH


@pytest.mark.parametrize("protocol", each(lambda one: is_one_of_each(one) and one.name != "agraf", those_that_say_so()))
def test_nodes_come_and_go(protocol: Protocol) -> None:
    assert list(flaws_of_coming_and_going(protocol)) == []


OTHER_FORMS = [
    AsyncGossip(mixing="neighbourhood", patience=0.4),
    AsyncGossip(overlap=True, patience=0.4),
    SwarmSGD(steps=2, random_steps=True, patience=0.4),
    SwarmSGD(blocking=True, patience=0.4),
    SwarmSGD(codec="int4", patience=0.4),
    compressed(AsyncGossip(patience=0.4), "top_k(0.5)"),
    compressed(AGRAF(patience=0.4), "int8", error_feedback=True),
    compressed(SWIFT(), "int8"),
]


@pytest.mark.parametrize("protocol", each(lambda one: isinstance(one, SwarmSGD) and one.blocking, OTHER_FORMS))
def test_nodes_come_and_go_in_other_forms_of_gossip(protocol: Protocol) -> None:
    """Other settings, and codecs, of which some keep a reference for every neighbour."""
    assert protocol.nodes_come_and_go
    assert list(flaws_of_coming_and_going(protocol)) == []


@pytest.mark.parametrize("protocol", each(is_one_of_each, those_that_say_so()))
def test_nodes_come_and_go_on_real_nodes(protocol: Protocol) -> None:
    assert list(flaws_of_coming_and_going(protocol, engine="peers")) == []


@pytest.mark.parametrize(
    "protocol",
    [SwarmSGD(blocking=True, patience=0.4), SwarmSGD(codec="int8", patience=0.4), FedAvg(tree=True, patience=0.4)],
    ids=lambda one: one.label,
)
def test_nodes_of_other_forms_come_and_go_on_real_nodes(protocol: Protocol) -> None:
    assert list(flaws_of_coming_and_going(protocol, engine="peers")) == []


class Forgetful(AsyncGossip):
    """One that joins begins with the initial model, as if it had been there from the start."""

    def machine(self, network_view: NetworkView) -> Machine:
        return Forgets(network_view, PairRule(), self.waits)


class Forgets(Turns):
    """A node of it."""

    def handle(self, event: Event, context: Context) -> list[Effect]:
        return super().handle(Started() if isinstance(event, Started) else event, context)


def test_one_that_begins_anew_is_told_on_real_nodes() -> None:
    (flaw,) = flaws_of_coming_and_going(Forgetful(patience=0.4), engine="peers")
    assert "begins with the initial model" in flaw
