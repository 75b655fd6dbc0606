"""One trace of a whole run, from the diaries of its nodes.

Events are put in the order of their times, but a message is never received before it was sent, whatever the clocks of
two machines say. Messages, trainings and iterations get the numbers that the simulator would have given them, so that
whoever reads a simulated trace reads this one too.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from walktalk.records import TraceRow
from walktalk.runtimes.peers.clock_errors import put_right
from walktalk.runtimes.peers.diary import read_lines
from walktalk.runtimes.peers.diary_parts import parts_in

log = logging.getLogger(__name__)

MessageName: TypeAlias = tuple[int, int, int, int, bool]


def read_diary(folder: Path) -> list[TraceRow]:
    """All that a node wrote down, over all its lives, in order."""
    return [row for life in read_lives(folder) for row in life]


def read_lives(folder: Path) -> list[list[TraceRow]]:
    """The same, life by life."""
    while True:
        try:
            return [read_lines(parts) for parts in parts_in(folder).values()]
        except FileNotFoundError:  # the node has compressed a part meanwhile: it has another name now
            continue


def merge(diaries: Iterable[list[TraceRow]]) -> list[TraceRow]:
    """One trace, with times from 0; clocks that were wrong are put right first."""
    ordered = list(_causal(put_right([diary for diary in diaries if diary])))
    return list(_renumbered(ordered))


def _causal(diaries: list[list[TraceRow]]) -> Iterator[TraceRow]:
    """By time, but a `receive` waits for its `send`; one whose `send` nobody wrote down does not.

    Where all that is left waits for each other, which no true order of events does, the earliest goes on by itself and
    a warning says so: nothing that was written down is left out.
    """
    sent = {_message(row) for diary in diaries for row in diary if row.event == "send"}
    seen: set[MessageName] = set()
    waiting: dict[MessageName, int] = {}  # message -> the diary that waits for it
    position = [0] * len(diaries)
    ready = [(diary[0].time, index) for index, diary in enumerate(diaries)]
    heapq.heapify(ready)
    forced = 0
    while ready or waiting:
        if not ready:
            stuck = min(waiting, key=lambda one: diaries[waiting[one]][position[waiting[one]]].time)
            ready.append((0.0, waiting.pop(stuck)))
            seen.add(stuck)
            forced += 1
        _, index = heapq.heappop(ready)
        row = diaries[index][position[index]]
        message = _message(row)
        if row.event == "receive" and message in sent and message not in seen:
            waiting[message] = index
            continue
        yield row
        position[index] += 1
        if row.event == "send":
            seen.add(message)
            if message in waiting:
                freed = waiting.pop(message)
                heapq.heappush(ready, (row.time, freed))
        if position[index] < len(diaries[index]):
            heapq.heappush(ready, (diaries[index][position[index]].time, index))
    if forced:
        log.warning("%d messages were received before they were sent, by what the nodes wrote down", forced)


def _message(row: TraceRow) -> MessageName:
    """What tells a message from all others: sender, receiver, the sender's life, its number, and its channel."""
    outgoing = row.event != "receive"
    sender, receiver = (row.node, row.peer) if outgoing else (row.peer, row.node)
    return (sender, receiver, row.key, row.number, bool(row.slot))


def _renumbered(rows: list[TraceRow]) -> Iterator[TraceRow]:
    messages: dict[MessageName, int] = {}
    trainings: dict[tuple[int, int], int] = {}  # (node, its own number) -> the latest such training's number
    started = iteration = 0
    start = before = min((row.time for row in rows), default=0.0)
    for row in rows:
        if row.event == "resumed":  # while nobody was there, no time has passed
            start += row.time - before
        before = row.time
        new = row._replace(time=row.time - start)
        if row.event in ("send", "receive", "superseded"):
            new = new._replace(number=messages.setdefault(_message(row), len(messages)), key=0)
        elif row.event in ("train", "differentiate"):
            trainings[row.node, row.number] = started
            new = new._replace(number=started)
            started += 1
        elif row.event == "trained":
            iteration += 1
            number = trainings.pop((row.node, row.number), -1)  # its beginning may be in a part that was not kept
            new = new._replace(number=number, iteration=iteration)
        yield new
