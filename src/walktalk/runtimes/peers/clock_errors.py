"""Clocks that were wrong, found in a trace by what cannot be: a message that came before it was sent.

A node's times are seconds of its machine's clock when it began, and count on from there (`node_clock`), so one life of
a node is wrong by one number. Between two lives that wrote to each other the shortest message each way bounds the
difference of their clocks, as in NTP; half the difference of the two is the best guess. A life that is at odds with
most of those that it had to do with is put right by the middle of what these say; one clock after the other, the worst
first. Clocks that agree to within `ALLOWED` are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from walktalk.records import TraceRow

ALLOWED = 1.0  # seconds: machines that ask for the time are that good

Shortest: TypeAlias = dict[tuple[int, int], float]  # from which life to which: seconds of the shortest message


def put_right(diaries: Sequence[list[TraceRow]]) -> list[list[TraceRow]]:
    """The same diaries by clocks that agree; those of nodes whose clock was right are not touched."""
    lives = [(owner, life) for owner, diary in enumerate(diaries) for life in _lives(diary)]
    errors = clock_errors(_shortest([rows for _, rows in lives]), len(lives))
    if not any(errors):
        return list(diaries)
    right: list[list[TraceRow]] = [[] for _ in diaries]
    for (owner, rows), error in zip(lives, errors, strict=True):
        right[owner] += [row._replace(time=row.time - error) for row in rows] if error else rows
    return right


def clock_errors(shortest: Shortest, lives: int) -> list[float]:
    """By how many seconds the clock of each life was ahead."""
    errors = [0.0] * lives
    partners: dict[int, set[int]] = {}
    for here, there in shortest:
        partners.setdefault(here, set()).add(there)
        partners.setdefault(there, set()).add(here)
    for _ in range(lives):
        worst, error = _worst(shortest, partners, errors)
        if worst < 0:
            break
        errors[worst] += error
    return errors


def _worst(shortest: Shortest, partners: dict[int, set[int]], errors: list[float]) -> tuple[int, float]:
    """The life that is at odds with the largest part of the others, if with most; and by how much it is ahead."""
    found, most = (-1, 0.0), 0.5
    for life, others in partners.items():
        ahead = [_ahead(shortest, errors, life, other) for other in others]
        odd = [seconds for seconds in ahead if seconds]
        if len(odd) > most * len(others):
            found, most = (life, median(odd)), len(odd) / len(others)
    return found


def _ahead(shortest: Shortest, errors: list[float], life: int, other: int) -> float:
    """By how much one is ahead of the other, in the middle of what is possible; 0 where that may be nothing."""
    there = shortest[life, other] + errors[life] - errors[other] if (life, other) in shortest else None
    back = shortest[other, life] + errors[other] - errors[life] if (other, life) in shortest else None
    if min(0.0 if there is None else there, 0.0 if back is None else back) >= -ALLOWED:
        return 0.0
    if there is None or back is None:
        return -there if there is not None else back if back is not None else 0.0
    return (back - there) / 2


def _lives(diary: list[TraceRow]) -> list[list[TraceRow]]:
    """Cut where a life ends: between messages that were sent in different ones, at the largest jump of the clock."""
    cuts, last = [], -1
    for at, row in enumerate(diary):
        if row.event != "send":
            continue
        if last >= 0 and diary[last].key != row.key:
            cuts.append(max(range(last + 1, at + 1), key=lambda n: abs(diary[n].time - diary[n - 1].time)))
        last = at
    return [diary[a:b] for a, b in pairwise((0, *cuts, len(diary))) if a < b]


def _shortest(lives: list[list[TraceRow]]) -> Shortest:
    sent = {
        (row.node, row.peer, row.key, row.number, bool(row.slot)): (life, row.time)
        for life, rows in enumerate(lives)
        for row in rows
        if row.event == "send"
    }
    shortest: Shortest = {}
    for life, rows in enumerate(lives):
        for row in rows:
            if row.event != "receive":
                continue
            sender, when = sent.get((row.peer, row.node, row.key, row.number, bool(row.slot)), (life, row.time))
            if sender != life:
                pair = (sender, life)
                shortest[pair] = min(shortest.get(pair, row.time - when), row.time - when)
    return shortest
