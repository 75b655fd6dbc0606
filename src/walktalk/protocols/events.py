"""What can happen to a node. Events are nouns; a protocol answers each with effects.

They are named tuples, not frozen dataclasses: just as immutable, and four times cheaper to make, which a simulation
of a hundred thousand nodes notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from walktalk.protocols.message import Message

if TYPE_CHECKING:
    from walktalk.protocols.network_view import NetworkView


class Started(NamedTuple):
    """The node begins, with the initial model in slot `INITIAL`."""

    late: bool = False  # it was part of this run before, and nothing of that is left: the others are in its middle


class Rejoined(NamedTuple):
    """The node is back after a death, in place of `Started`: its slots are those of its last checkpoint."""

    memory: bytes = b""  # what `Machine.keepsake` said when that checkpoint was made, or `farewell`


class Received(NamedTuple):
    """A message has arrived whole."""

    sender: int  # the node that sent it
    message: Message  # what it says
    slot: str  # where what came with it is when the effects of this event are carried out; "" when nothing came


class Trained(NamedTuple):
    """What `Train` or `Differentiate` asked for is done: one iteration."""

    slot: str  # the slot that was named; the result is in slot `UPDATE` or `GRADIENT`
    walk: int = -1  # the walk that was named
    lr: float = 0.0  # the learning rate of that moment, by the study's schedule
    steps: int = 1  # local steps that were done, or batches that the gradient is the mean over
    # 0: it was given up, because the node leaves; a walk is to be handed on as it is.


class TimerFired(NamedTuple):
    """A timer set by `SetTimer` has run out."""

    name: str  # the timer's name


class PeerLost(NamedTuple):
    """The runtime believes that a neighbour is gone: a connection broke, or a message could not be delivered."""

    peer: int  # the neighbour


class PeerFound(NamedTuple):
    """A neighbour that was lost can be reached again."""

    peer: int  # the neighbour


class NetworkChanged(NamedTuple):
    """A node has joined, or is about to leave for good, or has left: the graph around this node is another from now on.

    Given to machines of protocols that say so (`Protocol.nodes_come_and_go`). New neighbours count as lost until
    `PeerFound`; of those that are none any more nothing is heard again.
    """

    around: NetworkView  # what this node knows of the network now


class Leaving(NamedTuple):
    """This node is to leave for good: let others take over what only it does, until `Machine.may_go`."""


Event: TypeAlias = (
    Started | Rejoined | Received | Trained | TimerFired | PeerLost | PeerFound | NetworkChanged | Leaving
)
