"""One trace of a whole run, from the diaries of its nodes.

Events are put in the order of their times, but a message is never received before it was sent, whatever the clocks of
two machines say. Messages, trainings and iterations get the numbers that the simulator would have given them, so that
whoever reads a simulated trace reads this one too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from walktalk.records import TRACE_COLUMNS
from walktalk.runtimes.peers.diary import NAME, read_lines

Row = tuple[Any, ...]
TIME, NODE, EVENT, SLOT, PEER, WALK, ITERATION, NUMBER, BYTES, KEY, LR, DETAIL = range(len(TRACE_COLUMNS))


def read_diary(folder: Path) -> list[Row]:
    """All that a node wrote down, over all its lives, in order."""
    lives = sorted(folder.glob(NAME.format(life="*")))  # a life is a time in nanoseconds, of as many digits always
    return [row for path in lives for row in read_lines(path)]


def merge(diaries: Iterable[list[Row]]) -> list[Row]:
    """One trace, with times from 0."""
    ordered = list(_causal([diary for diary in diaries if diary]))
    return list(_renumbered(ordered))


def _causal(diaries: list[list[Row]]) -> Iterator[Row]:
    """By time, but a `receive` waits for its `send`; one whose sender's diary is torn off comes in the end."""
    sent = {_message(row) for diary in diaries for row in diary if row[EVENT] == "send"}
    seen: set[Row] = set()
    waiting: dict[Row, int] = {}  # message -> the diary that waits for it
    position = [0] * len(diaries)
    ready = [(diary[0][TIME], index) for index, diary in enumerate(diaries)]
    heapq.heapify(ready)
    while ready:
        _, index = heapq.heappop(ready)
        row = diaries[index][position[index]]
        message = _message(row)
        if row[EVENT] == "receive" and message in sent and message not in seen:
            waiting[message] = index
            continue
        yield row
        position[index] += 1
        if row[EVENT] == "send":
            seen.add(message)
            if message in waiting:
                freed = waiting.pop(message)
                heapq.heappush(ready, (row[TIME], freed))
        if position[index] < len(diaries[index]):
            heapq.heappush(ready, (diaries[index][position[index]][TIME], index))


def _message(row: Row) -> Row:
    """What tells a message from all others: sender, receiver, the sender's life, its number, and its channel."""
    outgoing = row[EVENT] == "send"
    sender, receiver = (row[NODE], row[PEER]) if outgoing else (row[PEER], row[NODE])
    return (sender, receiver, row[KEY], row[NUMBER], bool(row[SLOT]))


def _renumbered(rows: list[Row]) -> Iterator[Row]:
    messages: dict[Row, int] = {}
    trainings: dict[tuple[int, int], int] = {}  # (node, its own number) -> the latest such training's number
    started = iteration = 0
    start = before = min((row[TIME] for row in rows), default=0.0)
    for row in rows:
        if row[EVENT] == "resumed":  # while nobody was there, no time has passed
            start += row[TIME] - before
        before = row[TIME]
        new = list(row)
        new[TIME] = row[TIME] - start
        if row[EVENT] in ("send", "receive"):
            new[NUMBER], new[KEY] = messages.setdefault(_message(row), len(messages)), 0
        elif row[EVENT] == "train":
            trainings[row[NODE], row[NUMBER]] = new[NUMBER] = started
            started += 1
        elif row[EVENT] == "trained":
            iteration += 1
            new[NUMBER], new[ITERATION] = trainings.pop((row[NODE], row[NUMBER])), iteration
        yield tuple(new)
