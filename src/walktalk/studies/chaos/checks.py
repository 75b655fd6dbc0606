"""What the trace of a storm says: who took part, how many walks there are, how soon failures were mended."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

Row = tuple[Any, ...]


def taking_part(trace: list[Row], start: float, end: float) -> set[int]:
    """Nodes that took somebody's model in this time: whoever is cut off, hung or forgotten does not."""
    return {row[1] for row in trace if row[2] == "receive" and row[3] and start < row[0] < end}


def copies_of_walks(trace: list[Row], start: float, end: float) -> tuple[int, int]:
    """Walks that are trained in this time, and how often two copies of one were in training at the same moment."""
    busy: dict[int, set[int]] = {}
    seen: set[int] = set()
    copies = 0
    for row in trace:
        if row[2] == "train":
            others = busy.setdefault(row[5], set())
            copies += start < row[0] < end and bool(others - {row[1]})
            others.add(row[1])
            seen |= {row[5]} if start < row[0] < end else set()
        elif row[2] in ("trained", "handed_on"):
            busy.get(row[5], set()).discard(row[1])
        elif row[2] in ("started", "rejoined", "kill"):
            for nodes in busy.values():
                nodes.discard(row[1])
    return len(seen), copies


def recoveries(trace: list[Row]) -> list[tuple[float, float]]:
    """For each kill of the aggregator: seconds to the first suspicion, and to the first mixing of a later term."""
    mixings = [(row[0], row[1], row[5]) for row in trace if row[2] == "record" and row[11] == "aggregate"]
    suspicions = [row[0] for row in trace if row[2] in ("suspected", "elected")]
    found = []
    for when, node in ((row[0], row[1]) for row in trace if row[2] == "kill"):
        before = max(((term, mixer) for time, mixer, term in mixings if time <= when), default=(0, -1))
        if before[1] != node:
            continue
        mixed = [time for time, _, term in mixings if time > when and term > before[0]]
        noticed = [time for time in suspicions if time > when]
        if mixed and noticed:
            found.append((min(noticed) - when, mixed[0] - when))
    return found


def replacements(trace: list[Row]) -> list[float]:
    """From the last training of a lost walk to its restart, in mean return times of that aggregator.

    A walk that was trained somewhere until a moment before was not lost: it lives in the other half of a split network,
    or came back too late.
    """
    found = []
    steps = _steps(trace)
    if not steps:
        return []
    moment = 10 * median(steps)
    for restart in (row for row in trace if row[2] == "restarted"):
        visits: dict[int, list[float]] = {}
        last = None
        for row in trace:
            if row[2] == "trained" and row[1] == restart[1]:
                visits.setdefault(row[5], []).append(row[0])
            if row[2] == "trained" and row[5] == restart[5] and row[0] < restart[0]:
                last = row[0]
        gaps = [b - a for times in visits.values() for a, b in pairwise(times)]
        if gaps and last is not None and restart[0] - last > moment:
            found.append((restart[0] - last) / (sum(gaps) / len(gaps)))
    return found


def _steps(trace: list[Row]) -> list[float]:
    """Seconds between two trainings of the same walk."""
    times: dict[int, list[float]] = {}
    for row in trace:
        if row[2] == "trained":
            times.setdefault(row[5], []).append(row[0])
    return [b - a for walk in times.values() for a, b in pairwise(walk)]
