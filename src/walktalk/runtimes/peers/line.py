"""One more line of a node, to a neighbour that it got while it ran: a Zenoh session of its own that only dials.

Whom a session connects to, and whose words it takes in, is said when it is opened and stays so. So a node that gets a
new neighbour opens another, for that one alone; the threads are the same as those of the first, and it costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import zenoh

from walktalk.runtimes.peers.session import Endpoint, close_session, open_session
from walktalk.runtimes.peers.tunnels import Tunnels

SECONDS = 5.0  # until a line is closed


def at_once(callback: Callable[[zenoh.Sample], None]) -> zenoh.handlers.Callback[zenoh.Sample]:
    """Called in Zenoh's own thread: one queue and one change of thread less for every chunk."""
    return zenoh.handlers.Callback(callback, indirect=False)


def declared(
    session: zenoh.Session,
    endpoint: Endpoint,
    channels: Mapping[str, Callable[[zenoh.Sample], None]],
    token: Callable[[zenoh.Sample], None],
) -> list[object]:
    """Say in a session that this node is alive, and listen to others; what is given back must be kept.

    - `channels`: who takes what comes on which.
    - `token`: told of tokens that come and go.
    """
    own = endpoint.name
    inboxes = [
        session.declare_subscriber(endpoint.key(own, "*", channel), at_once(callback))
        for channel, callback in channels.items()
    ]
    alive = session.liveliness().declare_token(endpoint.alive(own))
    others = session.liveliness().declare_subscriber(endpoint.alive("*"), at_once(token), history=True)
    return [*inboxes, alive, others]


def take_back(held: list[Any]) -> None:
    """Undo what was declared: the session stays open, so forgetting it is not enough."""
    for one in held:
        with suppress(zenoh.ZError):
            one.undeclare()
    held.clear()


class Line:
    """To one neighbour."""

    def __init__(
        self, endpoint: Endpoint, name: str, number: int, address: str, tunnels: Tunnels | None = None
    ) -> None:
        """
        - `endpoint`: the node's place.
        - `name`, `number`, `address`: the neighbour's; "" where it is met at the relay.
        - `tunnels`: the node's way there.
        """
        self.name, self.address = name, address
        alone = replace(endpoint, listen="", neighbours={name: number}, connect=(), admits=())
        if address or tunnels is None:
            self.session = open_session(replace(alone, connect=(address,), relay=None))
        else:
            self.session = open_session(alone, [tunnels.door(name)])
        self.held: list[object] = []

    def close(self) -> None:
        """Give it up."""
        self.held.clear()
        close_session(self.session, SECONDS)
