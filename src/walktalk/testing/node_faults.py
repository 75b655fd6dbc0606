"""Faults of a real node that files in its folder switch on and off while it runs: for tests, trials and chaos.

    blocked     numbers of neighbours from which it hears nothing, as with a cut cable
    spoils      how it spoils the models that it sends: flip, scale(C) or noise(S)
    swallows    it keeps every walk that comes to it, and says that it has them

The node knows nothing of this: its link, its interpreter and its trainings are wrapped from outside.
"""

from __future__ import annotations

import random
import threading
import time

from walktalk.protocols import Send
from walktalk.runtimes.peers import Node, TrainingRequest
from walktalk.runtimes.semantics import Packed

BLOCKED, SPOILS, SWALLOWS = "blocked", "spoils", "swallows"
LOOK_EVERY = 0.1  # seconds, at the files


class SwitchedFaults:
    """Wraps a node that has not begun yet, and looks at its files as long as it lives."""

    def __init__(self, node: Node) -> None:
        self._node, self._folder, self._dice = node, node.setup.folder, random.Random(node.models.me)
        self._blocked: frozenset[int] = frozenset()
        self._spoils = ""
        self._swallowed: list[TrainingRequest] = []
        self._receive, node.link.receive = node.link.receive, self._hear  # type: ignore[method-assign]
        interpreter = node.models.interpreter
        self._pack, interpreter.pack = interpreter.pack, self._spoil  # type: ignore[method-assign]
        self._ask, node.training.ask = node.training.ask, self._swallow  # type: ignore[method-assign]
        self._look()
        threading.Thread(target=self._run, name="faults", daemon=True).start()

    def _run(self) -> None:
        while not self._node.link.connections.closed:
            time.sleep(LOOK_EVERY)
            self._look()

    def _look(self) -> None:
        self._blocked = frozenset(int(word) for word in self._text(BLOCKED).split() if word.isdecimal())
        self._spoils = self._text(SPOILS).strip()
        if self._swallowed and not self._swallows:
            self._node.events.put(self._let_go)

    def _text(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except OSError:
            return ""

    @property
    def _swallows(self) -> bool:
        return (self._folder / SWALLOWS).exists()

    def _hear(self, channel: str, sender: int, data: bytes) -> None:
        if sender not in self._blocked:
            self._receive(channel, sender, data)

    def _spoil(self, node: int, effect: Send) -> Packed:
        packed, interpreter = self._pack(node, effect), self._node.models.interpreter
        if not self._spoils:
            return packed
        interpreter.corrupt[node] = self._spoils
        return interpreter.corrupted(node, effect.slot, packed, self._dice.getrandbits(63))

    def _swallow(self, request: TrainingRequest) -> None:
        if request.walk > 0 and self._swallows:
            self._swallowed.append(request)
            self._node.reports.trace("swallowed", walk=request.walk)
        else:
            self._ask(request)

    def _let_go(self) -> None:
        swallowed, self._swallowed = self._swallowed, []
        for request in swallowed:
            self._ask(request)
