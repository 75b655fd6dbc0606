"""What a node can ask of its runtime. Effects are imperative verbs, carried out in the order they are returned.

A model is a named slot of the node; the protocol never sees its numbers. Mixing is a linear combination of slots, or
what a screen makes of them. What each effect means is written once, in `runtimes.semantics`, for virtual time and
real peers alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

# -- What nodes say to each other: a kind, a few small numbers, and perhaps a model beside them -----------------------

HEADER_BYTES = 64
NOTE_BYTES = 4096  # the longest note of a message, with all nodes
"""Bytes of every message on the wire before the model: kind, sender, receiver, the numbers below, lengths, checksum.

The simulator counts them as sent, and the real runtime's encoding fits in them exactly.
"""


class Message(NamedTuple):
    """The small part of a message. What a kind does not need stays 0."""

    kind: str  # what it is about, e.g. "walk", "offer", "answer"
    walk: int = 0  # the walk it concerns
    round: int = 0  # the round, exchange or generation it belongs to
    term: int = 0  # the election term in which it was sent
    note: bytes = b""  # anything longer, already encoded; counted by its length


class Arrival(NamedTuple):
    """How messages of one kind arrive; a protocol declares one for each kind that it sends.

    Nothing else is let in: a message of another kind, with a model where none belongs, or encoded in another way is
    refused before the machine sees it, and no slot is written before the machine has taken the message.
    """

    slot: str = ""  # where what comes with it is put, such as "offer/{sender}"; "": nothing comes with it
    # {sender}, {walk} and {round} of the message are filled in.
    codec: str = ""  # what comes is encoded by this codec; "": a model as it is
    once: bool = False  # what comes is mixed in once at most; the ledger checks it
    latest: bool = False  # only the last one for each receiver and walk counts: an earlier one that still waits is void

    prompt: bool = False  # the receiver's machine answers as it comes, whatever it trains: who does not is deaf

    def slot_of(self, sender: int, message: Message) -> str:
        """The slot in which this message's model is put."""
        return self.slot.format(sender=sender, walk=message.walk, round=message.round)


def control_bytes(message: Message) -> int:
    """Bytes that the message takes on the wire without its model."""
    return HEADER_BYTES + len(message.note)


# -- What a node can ask of its runtime. Effects are imperative verbs, carried out in the order they are returned -----

INITIAL = "initial"  # every node's slot that holds the initial model x_0; never changes
UPDATE = "update"  # while the `Trained` of a `Train` is being handled: trained minus received
GRADIENT = "gradient"  # while the `Trained` of a `Differentiate` is being handled: the gradient


class Train(NamedTuple):
    """Train the model in a slot on this node's data; `Trained` reports the end, with the change in slot `UPDATE`.

    A node trains one model at a time; what is asked for meanwhile queues, first come first served. All slots are read
    when the training starts, not when it is asked for.
    """

    slot: str  # the model to start from
    walk: int = -1  # the walk that carries it, which optimizer state may travel with; -1: the node's own model
    steps: int = 0  # local steps; 0: as many as the study says
    rate: float = 1.0  # times the study's learning rate
    correction: str = ""  # a slot that is added to every gradient (SCAFFOLD, quasi-global momentum); "": none
    anchor: str = ""  # a slot that every step is pulled back to (FedProx); "": none
    pull: float = 0.0  # μ: μ · (model − anchor) is added to every gradient


class Differentiate(NamedTuple):
    """Compute a gradient at the model in a slot on this node's data, the mean over a few batches.

    It is reported, queued and counted like a training: `Trained`, with the gradient in slot `GRADIENT`.
    """

    slot: str  # the model at which
    walk: int = -1  # the walk that carries it; -1: the node's own model
    steps: int = 0  # batches that it is the mean over; 0: as many as a training has steps


class Send(NamedTuple):
    """Send a message to a neighbour, with a copy of a slot's model, or of what `Encode` made, if one is named.

    In which slot it arrives, the protocol's `messages` say.
    """

    to: int  # the neighbour
    message: Message  # what to say
    slot: str = ""  # what to send along; "" for nothing
    again: bool = False  # repeats an earlier message: need not be sent while that one is still on its way


class Combine(NamedTuple):
    """Set a slot to a linear combination of slots of this node, all read before any is written."""

    into: str  # the slot that is set
    terms: Mapping[str, float]  # slot -> weight
    statistics: Mapping[str, float] | None = None  # weights for BatchNorm's means and variances; None: the same
    # Those are no sums of increments: a variance that others are taken away from can fall below zero. For them an
    # update is the trained model itself.


class Encode(NamedTuple):
    """Encode a slot's model by a codec; `Send` the result, or `Decode` it to see what the receiver will."""

    slot: str  # the model
    into: str  # where the encoded message is kept; it can be sent, decoded and forgotten, nothing else
    codec: str  # the codec's name with its settings, e.g. "int8" or "top_k(0.01)"


class Decode(NamedTuple):
    """Set a slot to the model that an encoded message stands for."""

    slot: str  # the encoded message: made here by `Encode`, or received
    into: str  # the slot that is set


class Apply(NamedTuple):
    """Set a slot to what a number rule makes of this node's model and others (`transforms.rules`), a screen or another.

    `Combine` only weighs slots, whatever is in them; this looks at the numbers. Traces call it "screen".
    """

    into: str  # the slot that is set
    own: str  # the model that is trusted
    terms: Mapping[str, float]  # the others: slot -> weight; what is left to 1 is the own model's
    rule: str  # the rule's name with its settings, e.g. "median" or "clip(0.5)"


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

Effect: TypeAlias = (
    Train | Differentiate | Send | Combine | Apply | Encode | Decode | MixEveryone | Forget | SetTimer | Record | Note
)


@lru_cache(maxsize=1024)  # the same few are asked for at every iteration
def apply_update(slot: str, moved: bool = False) -> Combine:
    """Add the update of a training to the model in a slot.

    `moved`: the model has been mixed with others since the training began. Then its statistics and the trained model's
    count half each; otherwise they are the trained model's.
    """
    return Combine(slot, {slot: 1.0, UPDATE: 1.0}, {slot: 0.5, UPDATE: 0.5} if moved else {UPDATE: 1.0})


@lru_cache(maxsize=4096)  # two slots a node
def absorb(into: str, base: str, share: float, new: str, old: str) -> Combine:
    """into ← base + share · (new − old), slots of which some may be the same; of statistics (1 − share) base + share
    new: what is taken away is taken from the one that is added to."""
    if old == base != new and 0.0 < share < 1.0:  # an average of two: most are, and their slots are many
        half = {base: 1.0 - share, new: share}
        return Combine(into, half, half)
    weights = _sum_terms((base, 1.0), (new, share), (old, -share))
    return Combine(into, weights, _sum_terms((base, 1.0 - share), (new, share)))


def cut_out(slot: str, into: str, codec: str) -> list[Effect]:
    """Put that part of a slot's model into another which a codec leaves of it, with zeros around."""
    packed = f"packed/{into}"
    return [Encode(slot, packed, codec), Decode(packed, into), Forget(packed)]


def _sum_terms(*terms: tuple[str, float]) -> dict[str, float]:
    """A linear combination in which a slot may be named twice."""
    total: dict[str, float] = {}
    for slot, weight in terms:
        total[slot] = total.get(slot, 0.0) + weight
    return {slot: weight for slot, weight in total.items() if weight}
