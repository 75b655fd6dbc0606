"""What neighbours say in rounds is read before anything is made of it, and one alone moves a node only so far."""

from __future__ import annotations

import random
import struct

import pytest

from walktalk.protocols import (
    OSGP,
    SGP,
    ChocoSGD,
    Effect,
    LocalDSGD,
    Machine,
    Message,
    NeighbourRounds,
    NetworkView,
    PushPull,
    RelaySGD,
    Send,
    Teleportation,
    Train,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.gossip.sgp import weight_note
from walktalk.protocols.machine import Context

THREE = NetworkView(0, 3, (1, 2), (2, 2))


def node_of(protocol: NeighbourRounds, around: NetworkView = THREE, *, late: bool = False) -> Machine:
    machine = protocol.resilient_form().machine(around)
    happens(machine, Started(late))
    return machine


def test_a_model_of_another_network_is_refused_where_nobody_comes_or_goes() -> None:
    """It was kept for its round, and what it brought was never decoded: the node ended when it came there."""
    machine = ChocoSGD().machine(THREE)
    happens(machine, Started())
    for number in (0, 1):
        with pytest.raises(ValueError, match="network 3; this is 0"):
            happens(machine, Received(1, Message("difference", round=number, term=3), f"difference/{number}/1"))


def happens(machine: Machine, event: Event) -> list[Effect]:
    return machine.handle(event, Context(0.0, random.Random(0)))


def says(kind: str, sender: int, round_: int, note: bytes = b"") -> Received:
    return Received(sender, Message(kind, round=round_, note=note), f"{kind}/{round_}/{sender}")


def goes_on(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Train) for effect in effects)


@pytest.mark.parametrize(
    ("protocol", "kind", "note"),
    [
        (SGP(), "push", b""),
        (OSGP(), "push", b""),
        (SGP(), "push", b"\0" * 7),
        (SGP(), "push", struct.pack("<d", float("nan"))),
        (SGP(), "push", struct.pack("<d", -1.0)),
        (RelaySGD(), "relay", b"\1"),
        (RelaySGD(), "relay", struct.pack("<I", 0)),
        (RelaySGD(), "relay", struct.pack("<I", 3)),
        (PushPull(), "up", struct.pack("<I", 4)),
    ],
    ids=repr,
)
def test_a_note_that_cannot_be_is_refused_when_it_comes(protocol: NeighbourRounds, kind: str, note: bytes) -> None:
    """And not in the middle of the mixing, when an honest neighbour's message or a timer completes the round."""
    machine = node_of(protocol)
    with pytest.raises(ValueError, match=r"note|weight|models|lost"):
        happens(machine, says(kind, 1, 0, note))
    came = machine.meeting.came  # type: ignore[attr-defined]
    assert came == {}


def test_one_that_joins_has_no_model_after_a_message_that_was_refused() -> None:
    machine = node_of(SGP(), late=True)
    with pytest.raises(ValueError, match="a note of 0 bytes"):
        happens(machine, says("push", 1, 5, b""))
    assert machine.keepsake() == b"\0"
    assert goes_on(happens(machine, says("push", 2, 5, weight_note(0.5))))


def test_sums_of_more_models_than_there_are_count_for_nothing() -> None:
    """Each count may be, but not both: the round goes on with the smaller one."""
    machine = node_of(RelaySGD())
    happens(machine, Trained("model", lr=0.1))
    happens(machine, says("relay", 1, 0, struct.pack("<I", 2)))
    assert goes_on(happens(machine, says("relay", 2, 0, struct.pack("<I", 1))))
    assert machine.rule.trees[0].counts == {2: 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("number", [2**31 - 1, 2**30 + 1])
def test_no_round_is_so_late_that_the_next_could_not_be_said(number: int, late: bool) -> None:
    for protocol, kind in ((LocalDSGD(), "round"), (OSGP(), "push"), (Teleportation(active=3), "token")):
        machine = node_of(protocol, late=late)
        with pytest.raises(ValueError, match=str(number)):
            happens(machine, says(kind, 1, number))


def test_one_voice_moves_a_node_by_a_thousand_rounds_at_most_and_two_as_far_as_they_are() -> None:
    machine = node_of(LocalDSGD(patience=1e3))
    happens(machine, Trained("model", lr=0.1))
    for number in (1001, 10**6):
        assert not goes_on(happens(machine, says("round", 1, number)))
        assert machine.meeting.round == 0  # type: ignore[attr-defined]
    assert goes_on(happens(machine, says("round", 2, 5000)))  # the nearer one of the two
    assert machine.meeting.round == 5000  # type: ignore[attr-defined]
    assert not goes_on(happens(machine, says("round", 1, 10**6)))
    happens(machine, Trained("model", lr=0.1))
    happens(machine, says("round", 1, 6000))
    assert machine.meeting.round == 6000  # type: ignore[attr-defined]  # a thousand may be said by one


def test_who_hears_only_one_neighbour_follows_it() -> None:
    machine = node_of(LocalDSGD(), NetworkView(0, 2, (1,), (1,)))
    happens(machine, Trained("model", lr=0.1))
    sends = [one for one in happens(machine, says("round", 1, 5000)) if isinstance(one, Send)]
    assert machine.meeting.round == 5000  # type: ignore[attr-defined]
    assert not sends
