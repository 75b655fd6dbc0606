"""What a node's trace adds up to, for whoever watches it from outside. Of this life only, as watchers expect."""

from __future__ import annotations

import collections

from walktalk.protocols import AGGREGATE
from walktalk.records import TraceRow

SELDOM = (
    "suspected",
    "elected",
    "stepped_down",
    "found",
    "lost",
    "silent",
    "restarted",
    "retired",
    "rerouted",
    "handed_on",
    "swallowed",
    "saved",
)
"""Events that are counted one by one, by the trace's own words."""


class Counts:
    """Takes every line of the trace. One thread adds, others may read."""

    def __init__(self) -> None:
        self.sent_bytes: collections.Counter[tuple[int, str]] = collections.Counter()  # by neighbour and kind
        self.sent_messages: collections.Counter[tuple[int, str]] = collections.Counter()
        self.received_messages: collections.Counter[int] = collections.Counter()  # by neighbour
        self.events: collections.Counter[str] = collections.Counter(dict.fromkeys(SELDOM, 0))
        self.trainings = 0
        self.training_seconds = 0.0
        self.aggregates_since: float | None = None  # by the trace's clock; None where it does not aggregate
        self._begun: dict[int, float] = {}  # trainings under way, by number

    def note(self, row: TraceRow) -> None:
        """One more line."""
        event = row.event
        if event == "send":
            key = (row.peer, str(row.detail["kind"]))
            self.sent_bytes[key] += row.bytes
            self.sent_messages[key] += 1
        elif event == "receive":
            self.received_messages[row.peer] += 1
        elif event in ("train", "differentiate"):
            self._begun = {row.number: row.time}  # one at a time: what was given up before does not count
        elif event == "trained":
            self.trainings += 1
            self.training_seconds += max(0.0, row.time - self._begun.pop(row.number, row.time))
        elif event == "record":
            if row.detail == AGGREGATE and self.aggregates_since is None:
                self.aggregates_since = row.time
        elif event in self.events:
            self.events[event] += 1
            if event == "elected":
                self.aggregates_since = row.time
            elif event == "stepped_down":
                self.aggregates_since = None
