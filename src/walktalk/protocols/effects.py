"""What a node can ask of its runtime. Effects are imperative verbs, carried out in the order they are returned.

A model is a named slot of the node; the protocol never sees its numbers. Mixing is a linear combination of slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from walktalk.protocols.message import Message

INITIAL = "initial"  # every node's slot that holds the initial model x_0; never changes
UPDATE = "update"  # while a `Trained` is being handled: trained minus received


class Train(NamedTuple):
    """Train the model in a slot on this node's data; `Trained` reports the end.

    A node trains one model at a time; what is asked for meanwhile queues, first come first served. The model is read
    when the training starts, not when it is asked for.
    """

    slot: str  # the model to start from
    walk: int = -1  # the walk that carries it, which optimizer state may travel with; -1: the node's own model


class Send(NamedTuple):
    """Send a message to a neighbour, with a copy of a slot's model if one is named."""

    to: int  # the neighbour
    message: Message  # what to say
    slot: str = ""  # the model to send along; "" for none
    into: str = ""  # the slot that it arrives in


class Combine(NamedTuple):
    """Set a slot to a linear combination of slots of this node, all read before any is written."""

    into: str  # the slot that is set
    terms: Mapping[str, float]  # slot -> weight


class MixEveryone(NamedTuple):
    """Set this slot of every node to the combination that the matrix P gives, all at once: Algorithm 2, line 6.

    No real network can do this in an instant, so only the simulator carries it out.
    """

    slot: str  # the slot to mix


class Forget(NamedTuple):
    """A slot is not needed any more."""

    slot: str  # the slot


class SetTimer(NamedTuple):
    """Ask for `TimerFired` after some time; a timer of the same name that still runs is replaced."""

    name: str  # comes back in `TimerFired`
    after: float  # seconds


class Record(NamedTuple):
    """Tell the observer what a slot now is. Costs nothing and changes nothing."""

    role: str  # MEMBER: one of the models that are to agree; AGGREGATE: the model that the algorithm outputs
    key: int  # which member (a walk or a node); for the aggregate the term, of which the highest counts
    slot: str  # its model


class Note(NamedTuple):
    """Tell the observer that something happened: a line in the trace. Costs nothing and changes nothing."""

    event: str  # "suspected", "elected", "rerouted", "restarted", "retired" ...
    walk: int = -1  # the walk it concerns
    peer: int = -1  # the node it concerns
    number: int = -1  # the term, generation or round


MEMBER = "member"
AGGREGATE = "aggregate"

Effect: TypeAlias = Train | Send | Combine | MixEveryone | Forget | SetTimer | Record | Note
