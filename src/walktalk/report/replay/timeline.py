"""What a run's events mean over time: trainings and flights of models as intervals, where each walk is, who lives."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from walktalk.report.replay.events import STARTS, Events


class Span(NamedTuple):
    """Something that takes time: a training at a node, or a model on its way."""

    start: float
    end: float  # inf: it never ended
    node: int  # that trains, or sends
    to: int  # whom a model goes to; −1 of a training
    walk: int  # −1: none
    lost: bool = False


class Station(NamedTuple):
    """Where a walk is from some time on."""

    time: float
    node: int  # −1: nowhere, it was lost
    hop: Span | None  # that brought it here


@dataclass
class RunTimeline:
    """What a run shows at any time: trainings, flights of models, places of walks, deaths of nodes."""

    trainings: list[Span] = field(default_factory=list)
    flights: list[Span] = field(default_factory=list)
    mixes: list[tuple[float, int]] = field(default_factory=list)  # time, node
    walks: dict[int, list[Station]] = field(default_factory=dict)
    deaths: dict[int, list[tuple[float, bool]]] = field(default_factory=dict)  # node -> from when on it is dead, or not

    def dead(self, node: int, time: float) -> bool:
        """Whether a node is dead at a time."""
        changes = self.deaths.get(node, [])
        place = bisect_right(changes, time, key=lambda change: change[0])
        return bool(place) and changes[place - 1][1]

    def walk_at(self, walk: int, time: float) -> Station:
        """Where a walk is; before its first event, where that will be."""
        stations = self.walks[walk]
        return stations[max(0, bisect_right(stations, time, key=lambda station: station.time) - 1)]


def between(spans: list[Span], start: float, end: float) -> Iterator[Span]:
    """Those that are to be seen at some time from `start` to `end`; the spans are in the order of their beginnings."""
    last = bisect_right(spans, end, key=lambda span: span.start)
    yield from (span for span in spans[:last] if span.end >= start)


def timeline_of(events: Events) -> RunTimeline:
    """Read the events once, from the beginning to the end."""
    timeline = RunTimeline()
    ends = _ends(events)
    names, lost = [events.kinds[kind] for kind in events.kind], events.of("lost")
    for i, name in enumerate(names):
        time, node, walk = float(events.time[i]), int(events.node[i]), int(events.walk[i])
        if name in (*STARTS, "send"):
            last = ends.get(i)
            end = math.inf if last is None else float(events.time[last])
            fell = last is not None and bool(lost[last])
            span = Span(time, end, node, int(events.peer[i]) if name == "send" else -1, walk, fell)
            (timeline.flights if name == "send" else timeline.trainings).append(span)
            if walk > 0:
                _move(timeline, walk, span, last is not None)
        elif name == "combine.mix":
            timeline.mixes.append((time, node))
        elif name in ("kill", "revive"):
            timeline.deaths.setdefault(node, []).append((time, name == "kill"))
            if name == "kill":
                _lose_walks(timeline, node, time)
        elif name in ("joined", "left_for_good") and node == int(events.peer[i]):
            if name == "joined":
                timeline.deaths.setdefault(node, [(-math.inf, True)])
            timeline.deaths.setdefault(node, []).append((time, name == "left_for_good"))
        elif name in ("restarted", "forked"):
            timeline.walks.setdefault(walk, []).append(Station(time, node, None))
    return timeline


def _ends(events: Events) -> dict[int, int]:
    """The event with which something began -> the one with which it ended."""
    found = np.flatnonzero(events.link >= 0)
    return dict(zip(events.link[found].tolist(), found.tolist(), strict=True))


def _move(timeline: RunTimeline, walk: int, span: Span, ended: bool) -> None:
    stations = timeline.walks.setdefault(walk, [])
    if span.to >= 0:
        stations.append(Station(span.start, -1 if span.lost or not ended else span.to, span))
    elif not stations or stations[-1].node != span.node:
        stations.append(Station(span.start, span.node, None))


def _lose_walks(timeline: RunTimeline, node: int, time: float) -> None:
    for stations in timeline.walks.values():
        if stations[-1].node == node:
            stations.append(Station(time, -1, None))
    timeline.trainings = [
        span._replace(end=time) if span.node == node and span.end == math.inf else span for span in timeline.trainings
    ]
