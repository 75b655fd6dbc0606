"""What a node says of itself to a person who asks; read from any thread while it works."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

from walktalk.runtimes.peers.health import certificate_end, checkpoint_age, complaints_of, warnings_of

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node

STATES = ("starting", "training", "waiting", "done", "leaving", "aside")
WORKING = 2.0  # seconds after a training in which a node counts as one that trains


def status_of(node: Node) -> dict[str, Any]:
    """Everything, as JSON can say it."""
    state, traffic, link, what = node.state, node.link.traffic, node.link, node.interpreter
    strangers, age = dict(node.neighbours.strangers), checkpoint_age(node)
    aggregates = what.aggregate_slot in what.slots[node.me]
    since = node.counts.aggregates_since if aggregates else None
    return {
        "name": node.setup.endpoint.name,
        "node": node.me,
        "site": node.members.site,
        "seconds": round(node.clock.run_time, 3),
        "alive": sorted(state.alive),
        "state": doing(node),
        "aggregates": aggregates,
        "aggregates_since": None if since is None else round(max(0.0, node.clock.wall - since), 3),
        "term": what.aggregate_term,
        "loss": state.loss if state.loss is not None and math.isfinite(state.loss) else None,
        "bandwidth": link.bandwidth,
        "walks": node.trainings.walks,
        "iterations": state.tally.own.iterations,
        "total_iterations": state.tally.iterations,
        "bytes_sent": state.tally.own.sent,
        "wire_bytes": traffic.sent_bytes,
        "unacknowledged": link.waiting(),
        "resent": traffic.resent,
        "dropped": dict(traffic.dropped),
        "refused": dict(state.refused),
        "strangers": {node.news.name_of(peer): why for peer, why in strangers.items()},
        "diverged": state.diverged,
        "checkpoint_age": None if age is None else round(age, 3),
        "certificate_ends": _moment(certificate_end(node)),
        "complaints": complaints_of(node),
        "warnings": warnings_of(node),
        "relay": link.tunnels.status() if link.tunnels is not None else None,
        "epsilon": round(node.purse.epsilon, 4) if node.purse is not None else None,
        "done": node.end.seen,
    }


def _moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601, in UTC."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")


def doing(node: Node) -> str:
    """In a word. A node that has had nothing to train for a while waits for a walk."""
    if not node.begun:
        return "leaving" if node.state.leaving else "aside" if node.state.aside else "starting"
    if node.end.seen:
        return "done"
    busy = len(node.trainings) or node.clock.elapsed < node.state.busy_at + WORKING
    return "training" if busy else "waiting"
