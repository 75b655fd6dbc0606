"""The agenda: in order of time, ties in the order of arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from walktalk.runtimes.simulator.schedule import INFINITY, Agenda


@given(st.lists(st.integers(0, 5)))
def test_entries_come_in_order_of_time_and_ties_in_order_of_arrival(delays):
    agenda = Agenda()
    for number, delay in enumerate(delays):
        agenda.put(delay, 0, number)
    taken = [agenda.take() for _ in delays]
    assert [(time, content) for time, _, _, content in taken] == sorted((d, n) for n, d in enumerate(delays))
    assert agenda.next_time() == INFINITY


def test_what_is_due_at_once_comes_after_what_was_due_then_already():
    agenda = Agenda()
    agenda.put(1.0, 0, "a")
    agenda.put(1.0, 0, "b")
    assert agenda.take()[3] == "a"
    agenda.put(0.0, 0, "c")
    assert [agenda.take()[3], agenda.take()[3]] == ["b", "c"]
    assert agenda.now == 1.0


def test_what_comes_later_than_asked_stays_where_it_is():
    agenda = Agenda()
    agenda.put(2.0, 0, "later")
    assert agenda.take(until=1.0) is None
    assert agenda.now == 0.0
    assert agenda.take(until=2.0)[3] == "later"
    agenda.put(INFINITY, 0, "never")
    assert agenda.take() is None
