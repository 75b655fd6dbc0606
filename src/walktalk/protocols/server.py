"""What all protocols with a server have in common, in rounds or not: its place, and what it demands of the graph.

The server is one node that has a link with every other, the middle of a star; some can do with the root of a tree. It
has data as all others have, and trains as they do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.demands import Demand, server_at, tree_with
from walktalk.protocols.machine import Protocol
from walktalk.protocols.self_description import InLabel

MODEL = "model"  # the slot of the server's model x, and at other nodes of the one that they train from
CHANGE = "change"  # what a node's training changed


@dataclass(frozen=True)
class ServerProtocol(Protocol):
    """A protocol with a server.

    Args:
        steps: local steps K of a training; 0: as many as the study says.
        server: the node that is the server; it needs a link with every other, unless it is the root of a tree.
        resilient: whether it survives failures of others than the server for good; if left out, where there may be any.
        patience: seconds to wait for others at first; after that it is known how long they take.
    """

    steps: Annotated[int, Ge(0)] = 0
    server: Annotated[int, Ge(0)] = 0
    resilient: bool | None = field(default=None, kw_only=True)
    patience: Annotated[float, Gt(0), InLabel("")] = field(default=10.0, kw_only=True)
    family: ClassVar[str] = "server"
    made_for: ClassVar[str] = "star"

    @property
    def demands(self) -> tuple[Demand, ...]:
        return server_at(self.server)


@dataclass(frozen=True)
class TreeServerProtocol(ServerProtocol):
    """One whose server may be the root of a tree, too.

    Args:
        tree: whether the graph is a tree with the server as its root, along which models are handed on; if not, the
            server needs a link with every other node. On a tree it does not survive failures.
    """

    tree: bool = field(default=False, kw_only=True)

    @property
    def demands(self) -> tuple[Demand, ...]:
        return tree_with(self.server) if self.tree else super().demands

    @property
    def made_for(self) -> str:  # type: ignore[override]
        return "binary_tree" if self.tree else "star"

    @property
    def instead(self) -> str:
        return "a star, without tree"

    @property
    def survives_failures(self) -> bool:
        return not self.tree
