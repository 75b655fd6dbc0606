"""What the trace of a storm says: who took part, how many walks there are, how soon failures were mended."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from walktalk.records import TraceRow


def taking_part(trace: list[TraceRow], start: float, end: float) -> set[int]:
    """Nodes that took somebody's model in this time: whoever is cut off, hung or forgotten does not."""
    return {row.node for row in trace if row.event == "receive" and row.slot and start < row.time < end}


def copies_of_walks(trace: list[TraceRow], start: float, end: float) -> tuple[int, int]:
    """Walks that are trained in this time, and how often two copies of one were in training at the same moment.

    Rows of a killed node may come after its `kill`, as what it received waits in a trace for who sent it: they say
    nothing until the node is back.
    """
    busy: dict[int, set[int]] = {}
    seen: set[int] = set()
    dead: set[int] = set()
    copies = 0
    for row in trace:
        if row.event in ("started", "rejoined", "kill"):
            (dead.add if row.event == "kill" else dead.discard)(row.node)
            for nodes in busy.values():
                nodes.discard(row.node)
        elif row.node in dead:
            continue
        elif row.event == "train":
            others = busy.setdefault(row.walk, set())
            copies += start < row.time < end and bool(others - {row.node})
            others.add(row.node)
            seen |= {row.walk} if start < row.time < end else set()
        elif row.event in ("trained", "handed_on"):
            busy.get(row.walk, set()).discard(row.node)
    return len(seen), copies


def recoveries(trace: list[TraceRow]) -> list[tuple[float, float]]:
    """Recoveries, one for each kill of the aggregator: seconds to the first suspicion, and to the first mixing of
    a later term.
    """
    mixings = [(row.time, row.node, row.walk) for row in trace if row.event == "record" and row.detail == "aggregate"]
    suspicions = [row.time for row in trace if row.event in ("suspected", "elected")]
    found = []
    for when, node in ((row.time, row.node) for row in trace if row.event == "kill"):
        before = max(((term, mixer) for time, mixer, term in mixings if time <= when), default=(0, -1))
        if before[1] != node:
            continue
        mixed = [time for time, _, term in mixings if time > when and term > before[0]]
        noticed = [time for time in suspicions if time > when]
        if mixed and noticed:
            found.append((min(noticed) - when, mixed[0] - when))
    return found


def replacements(trace: list[TraceRow]) -> list[float]:
    """Times from the last training of a lost walk to its restart, in mean return times of that aggregator.

    A walk that was trained somewhere until a moment before was not lost: it lives in the other half of a split network,
    or came back too late.
    """
    found = []
    steps = _steps(trace)
    if not steps:
        return []
    moment = 10 * median(steps)
    for restart in (row for row in trace if row.event == "restarted"):
        visits: dict[int, list[float]] = {}
        last = None
        for row in trace:
            if row.event == "trained" and row.node == restart.node:
                visits.setdefault(row.walk, []).append(row.time)
            if row.event == "trained" and row.walk == restart.walk and row.time < restart.time:
                last = row.time
        gaps = [b - a for times in visits.values() for a, b in pairwise(times)]
        if gaps and last is not None and restart.time - last > moment:
            found.append((restart.time - last) / (sum(gaps) / len(gaps)))
    return found


def _steps(trace: list[TraceRow]) -> list[float]:
    """Seconds between two trainings of the same walk."""
    times: dict[int, list[float]] = {}
    for row in trace:
        if row.event == "trained":
            times.setdefault(row.walk, []).append(row.time)
    return [b - a for walk in times.values() for a, b in pairwise(walk)]
