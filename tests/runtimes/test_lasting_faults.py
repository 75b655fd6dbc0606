"""Faults that last: each undoes what it did itself, and nothing else."""

from __future__ import annotations

from walktalk.runtimes.simulator.node_faults import Lasting


def test_a_thing_is_hit_while_any_blow_lasts() -> None:
    slowed: Lasting[int, float] = Lasting()
    slowed.begin(3, 1, 2.0)
    slowed.begin(3, 2, 5.0)
    assert list(slowed.on(3)) == [2.0, 5.0]
    assert not slowed.end(3, 1)
    assert (list(slowed.on(3)), 3 in slowed) == ([5.0], True)
    assert slowed.end(3, 2)
    assert (list(slowed.on(3)), 3 in slowed, bool(slowed)) == ([], False, False)


def test_a_blow_that_was_over_before_ends_nothing() -> None:
    hung: Lasting[str, bool] = Lasting()
    hung.begin("a", 1, True)
    hung.clear("a")
    assert not hung.end("a", 1)
    hung.begin("a", 2, True)
    assert not hung.end("a", 1)
    assert list(hung) == ["a"]
