"""What all protocols with a server have in common, in rounds or not: its place, and what it demands of the graph.

The server is one node that has a link with every other, the middle of a star; some can do with the root of a tree. It
has data as all others have, and trains as they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.demands import Demand, server_at
from walktalk.protocols.machine import Protocol

MODEL = "model"  # the slot of the server's model x, and at other nodes of the one that they train from
CHANGE = "change"  # what a node's training changed


@dataclass(frozen=True)
class ServerProtocol(Protocol):
    """A protocol with a server.

    Args:
        steps: local steps K of a training; 0: as many as the study says.
        server: the node that is the server; it needs a link with every other, unless it is the root of a tree.
    """

    steps: Annotated[int, Ge(0)] = 0
    server: Annotated[int, Ge(0)] = 0
    family: ClassVar[str] = "server"
    made_for: ClassVar[str] = "star"

    @property
    def demands(self) -> tuple[Demand, ...]:
        return server_at(self.server)
