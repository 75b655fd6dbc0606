"""How a node goes: its walks are handed on, its neighbours told, its checkpoint written, its connections closed."""

from __future__ import annotations

import logging
import queue
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from walktalk.protocols import Trained
from walktalk.runtimes.peers import tally as tallies

if TYPE_CHECKING:
    from walktalk.runtimes.peers.node import Node

log = logging.getLogger(__name__)

HAND_OVER = 10.0  # seconds that a leaving node takes at most to pass its walks on
LAZY_STEPS = 10_000  # a walk that stays put so often has nowhere to go


class Parting:
    """One node's."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def close(self) -> None:
        """Part in order. Whatever of it fails is logged, and the rest is done: no token may outlive its node."""
        node = self._node
        words = (self._hand_walks_on, self._say_goodbye, node.members.say_left)
        for part in (*words, self.keep, node.link.close, node.trainings.close):
            try:
                part()
            except Exception:
                log.exception("%s: something failed while it left", node.setup.endpoint.name)
        node.diary.close()

    def _hand_walks_on(self) -> None:
        """Send every walk that is here to a neighbour, as if its training here had brought nothing."""
        node = self._node
        if not node.state.leaving or not node.state.alive:
            return
        what = node.interpreter
        for effect in node.trainings.give_up():
            for _ in range(LAZY_STEPS):
                node.trainings.give_up()  # it stays here, by the matrix: once more
                if effect.slot not in what.slots[node.me] or effect.walk <= 0:
                    break
                what.hand_on(node.me, effect.slot, effect.walk)
                node.give(Trained(effect.slot, effect.walk, node.setup.lr, 0))
        what.forget_result(node.me)

    def _say_goodbye(self) -> None:
        node = self._node
        node.state.tally.end(over=False)
        for peer in node.state.alive:
            node.tell_tally(peer)
        if node.state.leaving:
            node.note("left")
            self._drain()

    def _drain(self) -> None:
        """Wait until the walks that were handed on are taken, by all that are not leaving too. Takes nothing in."""
        node, end = self._node, time.monotonic() + HAND_OVER
        state = node.state
        node.begun = False
        while time.monotonic() < end:
            staying = [peer for peer in state.alive if not state.tally.counts.get(peer, tallies.Count()).done]
            if not node.link.waiting(staying):
                return
            with suppress(queue.Empty):
                node.events.get(timeout=0.02)()

    def keep(self) -> None:
        """Write the checkpoint, what was spent, and the copy of the model for whoever collects."""
        node = self._node
        if node.purse is not None:
            node.purse.close()
        node.keeper.save(node.to_keep())
        node.desk.put_copy()
