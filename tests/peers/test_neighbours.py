"""Who a node listens to, without a network: two sides whose words are handed over one by one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from walktalk.learning import Schema
from walktalk.learning.schema import ColumnSchema
from walktalk.runtimes.peers.identity.editions import Edition, Sight
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

    def there_again(self, peer: int) -> None:
        """What waits for it has the time that it takes."""

    def forget(self, peer: int) -> None:
        self.forgotten.append(peer)


def one_side(number: int, facts: dict[str, Any], sight: Sight | None = None) -> SimpleNamespace:
    endpoint = Endpoint("test", "ab"[number], number, neighbours={"ba"[number]: 1 - number})
    wire, nothing = Wire(endpoint), lambda *_: None
    reactions = Reactions(nothing, nothing, nothing, lambda peer: False)
    neighbours = Neighbours(facts, wire, News(endpoint), set(), reactions, sight=sight)  # type: ignore[arg-type]
    return SimpleNamespace(wire=wire, neighbours=neighbours)


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


def columns(*names: str) -> Schema:
    return Schema.of(tuple(ColumnSchema(name, "float32", ()) for name in names))


def test_sites_with_the_same_columns_in_another_order_refuse_each_other_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They trained together, and each of them took the other's dose for an age."""
    schemas = columns("age", "dose"), columns("dose", "age")
    sides = [one_side(k, {"seed": 0}, Sight({}, schemas[k], None)) for k in range(2)]
    assert words_until_silence(*sides) <= 6
    assert not any(side.neighbours.alive for side in sides)
    line = "the columns are in another order: dose, age there and age, dose here"
    assert sides[0].neighbours.strangers == {1: line}
    assert "b: refuses a" in caplog.text
    for other in (columns("age", "dose"), None):  # the same, or not known
        sides = [one_side(0, {}, Sight({}, schemas[0], None)), one_side(1, {}, Sight({}, other, None))]
        words_until_silence(*sides)
        assert [side.neighbours.alive for side in sides] == [{1}, {0}]


def test_a_schema_too_long_for_a_hello_is_told_by_its_digest() -> None:
    many = [columns(*(f"gene {k + first}" for k in range(5_000))) for first in (0, 1)]
    sides = [one_side(k, {}, Sight({}, many[k], None)) for k in range(2)]
    words_until_silence(*sides)
    assert "schema" in sides[0].neighbours.strangers[1]
    sides[0].neighbours.token(1, False)
    sides[0].neighbours.token(1, True)
    assert 100 < len(sides[0].wire.sent[-1].message.note) < 1000


def test_an_old_kit_is_named_on_both_sides_and_refuses_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A site with an old kit looked healthy for weeks."""
    kits = [Edition("test", number, f"2026-11-{10 + number}", "2099-01-01", str(number), "0.1.0") for number in (1, 2)]
    sides = [one_side(k, {"seed": 0}, Sight({}, None, kits[k])) for k in range(2)]
    assert words_until_silence(*sides) <= 6
    assert [side.neighbours.alive for side in sides] == [{1}, {0}]
    old, new = "kit 1 of 2026-11-11", "kit 2 of 2026-11-12"
    assert sides[0].neighbours.old_kits == {
        1: f"this node was started with an old kit, {old}; b has {new}: open the new kit at a"
    }
    assert sides[1].neighbours.old_kits == {
        0: f"a was started with an old kit, {old}; this node has {new}: open the new kit at a"
    }
    assert caplog.text.count("was started with an old kit") == 2  # once each
    differing = [one_side(k, {"seed": k}, Sight({}, None, kits[k])) for k in range(2)]
    words_until_silence(*differing)
    assert "seed is 1 there and 0 here" in differing[0].neighbours.strangers[1]
    assert old in differing[0].neighbours.strangers[1]
