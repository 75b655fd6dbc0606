"""Who a node listens to, without a network: two sides whose words are handed over one by one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from walktalk.runtimes.peers.node.neighbours import Neighbours, Reactions
from walktalk.runtimes.peers.node.news import News
from walktalk.runtimes.peers.wire.messages import Delivery, Parcel, Stamp
from walktalk.runtimes.peers.wire.session import Endpoint


@dataclass
class Wire:
    """Stands for a link."""

    endpoint: Endpoint
    sent: deque[Parcel] = field(default_factory=deque)
    dropped: list[str] = field(default_factory=list)

    def send(self, parcel: Parcel, payload: None) -> None:
        self.sent.append(parcel)

    def drop(self, reason: str, detail: str) -> None:
        self.dropped.append(reason)

    deaf: bool = False
    forgotten: list[int] = field(default_factory=list)

    def is_deaf(self, peer: int) -> bool:
        return self.deaf

    def is_mute(self, peer: int) -> bool:
        return False

    def taken(self, peer: int) -> int:
        return 0

    def forget(self, peer: int) -> None:
        self.forgotten.append(peer)


def one_side(number: int, facts: dict[str, Any]) -> SimpleNamespace:
    endpoint = Endpoint("test", "ab"[number], number, neighbours={"ba"[number]: 1 - number})
    wire, nothing = Wire(endpoint), lambda *_: None
    reactions = Reactions(nothing, nothing, nothing, lambda peer: False)
    return SimpleNamespace(wire=wire, neighbours=Neighbours(facts, wire, News(endpoint), set(), reactions))  # type: ignore[arg-type]


def words_until_silence(*sides: SimpleNamespace) -> int:
    """How many were said since both came to see each other; 100 where they do not stop."""
    for number, side in enumerate(sides):
        side.neighbours.token(1 - number, True)
    for count in range(100):
        talking = [side for side in sides if side.wire.sent]
        if not talking:
            return count
        parcel = talking[0].wire.sent.popleft()
        sides[parcel.receiver].neighbours.admit(Delivery(parcel, None, Stamp(1, count + 1)))
    return 100


def test_two_that_refuse_each_other_fall_silent() -> None:
    """They answered each other's hello without end, hundreds of times a second."""
    sides = one_side(0, {"seed": 0}), one_side(1, {"seed": 1})
    assert words_until_silence(*sides) <= 6
    assert [side.neighbours.strangers.keys() for side in sides] == [{1}, {0}]


def test_two_of_one_study_know_each_other_after_a_few_words() -> None:
    sides = one_side(0, {"seed": 0}), one_side(1, {"seed": 0})
    assert words_until_silence(*sides) <= 6
    assert [side.neighbours.alive for side in sides] == [{1}, {0}]


def test_one_that_asks_again_waits_for_no_answer_to_what_it_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side held what it had not acknowledged, and took nothing more: it was left out again, for a minute."""
    now = [100.0]
    monkeypatch.setattr("walktalk.runtimes.peers.node.neighbours.time.monotonic", lambda: now[0])
    first, second = one_side(0, {"seed": 0}), one_side(1, {"seed": 0})
    words_until_silence(first, second)
    assert not second.wire.forgotten
    first.wire.deaf = True
    first.neighbours.leave_out_the_deaf()
    assert not first.neighbours.alive
    first.wire.deaf, now[0] = False, now[0] + 30.0
    first.neighbours.leave_out_the_deaf()
    for sides in ((first, second), (second, first)):
        while sides[0].wire.sent:
            parcel = sides[0].wire.sent.popleft()
            sides[1].neighbours.admit(Delivery(parcel, None, Stamp(1, 50)))
    assert second.wire.forgotten == [0]
    assert first.neighbours.alive == {1}


def test_of_two_that_left_each_other_out_either_takes_what_comes_when_the_other_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What had come meanwhile kept out all that came later: both left each other out again, each time for longer."""
    now = [100.0]
    monkeypatch.setattr("walktalk.runtimes.peers.node.neighbours.time.monotonic", lambda: now[0])
    sides = one_side(0, {"seed": 0}), one_side(1, {"seed": 0})
    words_until_silence(*sides)
    for side in sides:
        side.wire.deaf = True
        side.neighbours.leave_out_the_deaf()
        side.wire.deaf = False
    now[0] += 30.0
    sides[0].neighbours.leave_out_the_deaf()  # it is the first to ask again
    sides[1].neighbours.admit(Delivery(sides[0].wire.sent.pop(), None, Stamp(1, 50)))
    assert sides[1].neighbours.alive == {0}
    assert sides[1].wire.forgotten == [0]
