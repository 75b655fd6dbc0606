"""How a node goes: its walks are handed on, its neighbours told, its checkpoint written, its connections closed."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from contextlib import suppress

from walktalk.runtimes.peers.node.members import Members
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeState
from walktalk.runtimes.peers.node.tally import Count
from walktalk.runtimes.peers.node.training import TrainingControl
from walktalk.runtimes.peers.wire.link import Link

log = logging.getLogger(__name__)

HAND_OVER = 10.0  # seconds that a leaving node takes at most to pass its walks on


class Shutdown:
    """Takes a node out of its cluster in order."""

    def __init__(
        self,
        state: NodeState,
        training: TrainingControl,
        members: Members,
        progress: Progress,
        link: Link,
        reports: Reports,
        events: queue.SimpleQueue[Callable[[], None]],
        keep: Callable[[], None],
    ) -> None:
        """
        - `state`, `training`, `members`, `progress`, `link`, `reports`, `events`: the node's.
        - `keep`: writes what a later life needs, and what is collected.
        """
        self._state, self._training, self._members, self._progress = state, training, members, progress
        self._link, self._reports, self._events, self._keep = link, reports, events, keep

    def close(self) -> None:
        """Leave in order. Whatever of it fails is logged, and the rest is done: no token may outlive its node."""
        words = (self._hand_walks_on, self._say_goodbye, self._members.say_left)
        for part in (*words, self._keep, self._link.close, self._training.queue.close):
            try:
                part()
            except Exception:
                log.exception("%s: something failed while it left", self._link.endpoint.name)
        self._reports.event_log.close()

    def _hand_walks_on(self) -> None:
        if self._state.leaving and self._state.alive:
            self._training.hand_walks_on()

    def _say_goodbye(self) -> None:
        self._progress.tally.end(over=False)
        self._progress.announce_to_all()
        if self._state.leaving:
            self._reports.trace("left")
            self._drain()

    def _drain(self) -> None:
        """Wait until the walks that were handed on are taken, by all that are not leaving too. Handles nothing more."""
        state, counts, end = self._state, self._progress.tally.counts, time.monotonic() + HAND_OVER
        state.begun = False
        while time.monotonic() < end:
            staying = [peer for peer in state.alive if not counts.get(peer, Count()).done]
            if not self._link.waiting(staying):
                return
            with suppress(queue.Empty):
                self._events.get(timeout=0.02)()
