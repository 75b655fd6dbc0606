"""What a node says of itself to a person who asks; read from any thread while it works."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walktalk.runtimes.peers.link import Link
    from walktalk.runtimes.peers.node import Node

WORKING = 2.0  # seconds after a training in which a node counts as one that trains


def status_of(node: Node) -> dict[str, Any]:
    """Everything, as JSON can say it."""
    state, traffic, link, what = node.state, node.link.traffic, node.link, node.interpreter
    strangers = dict(node.neighbours.strangers)
    return {
        "name": node.setup.endpoint.name,
        "node": node.me,
        "seconds": round(node.clock.run_time, 3),
        "alive": sorted(state.alive),
        "state": doing(node),
        "aggregates": what.aggregate_slot in what.slots[node.me],
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
        "certificate": certificate_facts(link),
        "relay": link.tunnels.status() if link.tunnels is not None else None,
        "done": node.end.seen,
    }


def certificate_facts(link: Link) -> dict[str, Any] | None:
    """How long a node's certificate holds; None where it has none."""
    if link.renewal is None:
        return None
    now = link.renewal.outlook
    said = now.in_words() if now.state != "good" else ""
    return {"until": now.until.isoformat(), "days": now.days, "state": now.state, "said": said}


def doing(node: Node) -> str:
    """In a word. A node that has had nothing to train for a while waits for a walk."""
    if not node.begun:
        return "leaving" if node.state.leaving else "starting"
    if node.end.seen:
        return "done"
    busy = len(node.trainings) or node.clock.elapsed < node.state.busy_at + WORKING
    return "training" if busy else "waiting"
