"""Who took part in a run and for how long, from what nodes wrote down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from walktalk.records import TraceRow
from walktalk.runtimes.peers import Cluster
from walktalk.studies.collecting.gather import Gathered


@dataclass(frozen=True)
class Participant:
    """One node's part in a run."""

    name: str
    site: str
    state: str  # finished: it saw the end; training; left: it was asked to; gone; "" where nothing is known of it
    seconds: float  # that it was there, over all its lives
    lives: int  # how often it was started
    samples: int  # of its data, as far as it has measured on them
    iterations: int
    bytes: int  # that it sent
    source: str  # whence this is known: the node's answer, its folder, or what others say


def participants(
    cluster: Cluster, gathered: Gathered, written: Mapping[str, list[list[TraceRow]]]
) -> list[Participant]:
    """All nodes, in order; `written`: what they wrote down, life by life."""
    found = []
    for name, place in cluster.nodes.items():
        lives, answers = written.get(name, []), name in gathered.answered
        rows = [row for life in lives for row in life]
        known = "its answer" if answers else "its folder" if name in gathered.from_folder else "an earlier answer"
        found.append(
            Participant(
                name,
                place.site,
                _state(lives, answers),
                round(sum(life[-1].time - life[0].time for life in lives), 3),
                len(lives),
                max((int(row.detail["samples"]) for row in rows if row.event == "measured"), default=0),
                sum(row.event == "trained" for row in rows),
                sum(_sent(row) for row in rows),
                known if rows else "",
            )
        )
    return found


def state_of(members: Sequence[Participant]) -> str:
    """How the run is: running, finished, or stopped before its end."""
    states = {one.state for one in members}
    return "running" if "training" in states else "finished" if "finished" in states else "stopped"


def as_facts(members: Sequence[Participant]) -> list[dict[str, Any]]:
    """For `summary.json`."""
    return [asdict(one) for one in members]


def _state(lives: Sequence[Sequence[TraceRow]], answers: bool) -> str:
    """As its last life says."""
    events = {row.event for row in lives[-1]} if lives else set()
    if events & {"over", "left"}:
        return "finished" if "over" in events else "left"
    return "training" if answers else "gone" if lives else ""


def _sent(row: TraceRow) -> int:
    return row.bytes if row.event == "send" else -row.bytes if row.event == "superseded" else 0
