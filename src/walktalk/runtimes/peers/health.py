"""Is a node well? In words, for `walktalk status`, for its health page and for its metrics; from any thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from walktalk.runtimes.peers.namesakes import two_called

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node

STUCK = 10.0  # seconds: the loop turns four times a second
URGENT = 7  # days until a certificate ends in which a node is not well; it is warned of long before


def complaints_of(node: Node) -> list[str]:
    """Why this node is not well, one line each; empty: it is."""
    return list(_complaints(node))


def is_stuck(node: Node) -> bool:
    """Whether its loop stands still: only another start helps."""
    return node.begun and node.clock.stands_still > STUCK


def _complaints(node: Node) -> Iterator[str]:
    if node.state.leaving:
        yield "it leaves"
        return
    if node.state.aside:
        yield f"it stands aside and does nothing: {two_called(node.setup.endpoint.name)}"
        return
    if not node.begun:
        yield "it has not begun: it waits for its neighbours"
    elif is_stuck(node):
        yield f"its loop has stood still for {node.clock.stands_still:.0f} s"
    neighbours = node.setup.endpoint.neighbours
    if node.begun and neighbours and not node.state.alive and not node.end.seen:
        yield f"none of its {len(neighbours)} neighbours is there"
    for peer, why in dict(node.neighbours.strangers).items():
        yield f"it refuses {node.news.name_of(peer)}: {why}"
    for peer in node.link.namesakes.doubled():
        yield two_called(node.news.name_of(peer))
    if node.link.namesakes.is_behind:
        yield f"it is not heard: {two_called(node.setup.endpoint.name)}"
    if node.keeper.failure:
        yield f"its checkpoint cannot be written: {node.keeper.failure}"
    if node.diary.behind:
        yield f"its trace cannot be written: {node.diary.behind} lines wait; is the disk full?"
    renewal = node.link.renewal
    if renewal is not None and (renewal.outlook.state in ("expired", "revoked") or renewal.outlook.days < URGENT):
        yield renewal.outlook.in_words()


def warnings_of(node: Node) -> list[str]:
    """What a person should see to, though this node is well."""
    renewal = node.link.renewal
    if renewal is None or renewal.outlook.state != "soon" or renewal.outlook.days < URGENT:
        return []
    return [renewal.outlook.in_words()]


def checkpoint_age(node: Node) -> float | None:
    """Seconds since the last checkpoint of this life; None where there is none."""
    saved = node.keeper.saved_at
    return None if saved is None else max(0.0, time.time() - saved)


def certificate_end(node: Node) -> float | None:
    """When its certificate ends, or the authority's, in seconds since 1970; None where there is none."""
    renewal = node.link.renewal
    return None if renewal is None else renewal.outlook.until.timestamp()
