"""Asynchronous protocols with a server at the root of a tree: results and answers are handed on by those between.

Every message says whose result it is, or whose answer: in `walk`, counted from 1. The server says at first that it is
the root, which goes down the whole tree: so everybody knows its parent. An answer goes back the way that the result
came. What is on the way lies in a slot of its own at every node that it passes. Nothing of this survives failures: who
is behind one that is dead is not heard.
"""

from __future__ import annotations

from dataclasses import replace

from walktalk.protocols.effects import Effect, Forget, Send
from walktalk.protocols.events import Event, Received, Started
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.wrapped import WrappedNode

ROOT = "root"
TREE_MESSAGES = {ROOT: Arrival(), "result": Arrival("result/{walk}"), "model": Arrival("model/{walk}")}
NOBODY = -1


def with_links_to_all(around: Surroundings) -> Surroundings:
    """What the node inside is told: it can send to anybody."""
    others = tuple(peer for peer in range(around.nodes) if peer != around.node)
    return replace(around, neighbours=others, degrees=(around.nodes - 1,) * len(others))


class HandingOn(WrappedNode):
    """One node of a tree; the one inside believes that it has a link with the server, or as the server with all."""

    __slots__ = ("around", "held", "parent", "routes", "server")

    def __init__(self, inner: Machine, around: Surroundings, server: int) -> None:
        super().__init__(inner)
        self.around, self.server = around, server
        self.parent = NOBODY  # at the server, and until the root is known
        self.routes: dict[int, int] = {}  # node below this one -> the child that is on the way to it
        self.held: list[Send] = []  # what was to be sent up before the parent was known

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return self._received(event, outside)
        effects = self.changed(self.inner.handle(event, outside))
        is_root = isinstance(event, Started) and self.around.node == self.server
        return [*self._call(), *effects] if is_root else effects

    def changed(self, effects: list[Effect]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            done += self._sent(effect) if isinstance(effect, Send) else (effect,)
        return done

    def _sent(self, effect: Send) -> list[Effect]:
        """With the next node on the way in place of the last."""
        if self.around.node == self.server:
            return [effect._replace(to=self.routes[effect.to], message=effect.message._replace(walk=effect.to + 1))]
        up = effect._replace(to=self.parent, message=effect.message._replace(walk=self.around.node + 1))
        if self.parent == NOBODY:
            self.held.append(up)
            return []
        return [up]

    def _call(self) -> list[Effect]:
        """Let all below know where the root is."""
        return [Send(peer, Message(ROOT)) for peer in self.around.neighbours if peer != self.parent]

    def _received(self, event: Received, outside: Outside) -> list[Effect]:
        kind, node = event.message.kind, event.message.walk - 1
        if event.sender not in self.around.neighbours:
            raise ValueError(f"{event.sender} is no neighbour")
        if kind == ROOT:
            return self._rooted(event.sender)
        if not 0 <= node < self.around.nodes or (kind == "model") != (event.sender == self.parent):
            raise ValueError(f"{event.sender} hands on {kind!r} of node {node}")
        if kind == "result":
            return self._result(event, node, outside)
        if node == self.around.node:
            return self.changed(self.inner.handle(event._replace(sender=self.server), outside))
        return [Send(self.routes[node], event.message, event.slot), Forget(event.slot)]

    def _rooted(self, sender: int) -> list[Effect]:
        if self.parent != NOBODY or self.around.node == self.server:
            raise ValueError(f"{sender} says that it is nearer to the root, which is known already")
        self.parent = sender
        held, self.held = [one._replace(to=sender) for one in self.held], []
        return [*self._call(), *held]

    def _result(self, event: Received, node: int, outside: Outside) -> list[Effect]:
        if node == self.around.node:
            raise ValueError(f"{event.sender} hands on a result of this node")
        if self.around.node == self.server:
            self.routes[node] = event.sender
            return self.changed(self.inner.handle(event._replace(sender=node), outside))
        if self.parent == NOBODY:
            raise ValueError(f"{event.sender} hands on a result, but the root is not known")
        self.routes[node] = event.sender
        return [Send(self.parent, event.message, event.slot), Forget(event.slot)]
