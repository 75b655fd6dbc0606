"""Protocols that send parts of models, cut out by the codec `part`: the part is what is encoded, and nothing beside it.

Such a protocol sends a code, and takes one out of a slot. So the part is taken out of its code before it is encoded,
and where something else has become of what came, it is put into one again. Nothing is lost by that: a part is exact.
"""

from __future__ import annotations

from walktalk.codecs import Part, codec_named
from walktalk.protocols.effects import Combine, Decode, Effect, Encode
from walktalk.protocols.message import Arrival


def is_part(codec: str) -> bool:
    """Whether a codec leaves a part of a model as it is."""
    return isinstance(codec_named(codec), Part)


def behind(arrival: Arrival, codec: str) -> str:
    """A codec for what comes so: for the part, where the protocol sends one."""
    return f"{arrival.codec}+{codec}" if arrival.codec else codec


def taken(arrival: Arrival, slot: str, into: str) -> Effect:
    """Put the model that a protocol sends so, from a slot, into another."""
    return Decode(slot, into) if arrival.codec else Combine(into, {slot: 1.0})


def given(arrival: Arrival, slot: str, into: str) -> list[Effect]:
    """What a protocol sends or takes so is a code: make it of the model in a slot; nothing, where it is the model."""
    return [Encode(slot, into, arrival.codec)] if arrival.codec else []
