"""A codec with error feedback: both ends of a link keep a reference, and only the difference to it is encoded.

A *stream* is all messages of one kind from one node to another. Its first model goes whole (kind `whole-…`), and both
ends keep it as the reference h. From then on

    q = Q(x − h),   h ← h + q at both ends,   and the receiver works with h,

so what the codec has left out is still in x − h, and is sent later. A node keeps one reference for every neighbour and
kind that it sends, and one for every neighbour and kind that it hears.

A walk that leaves a node goes on as what the receiver has, h; what the codec left out of it is not kept. (Kept at the
node and added to the next walk, it makes training unstable: the walk has long made up for what it had lost. And a link
that is seldom used has an old reference, so for walks a codec without memory is the better choice.)

Messages of a stream are numbered. One that overtakes another waits for it. Where messages can be lost, the receiver
asks for a whole model when one is missing, and after a neighbour was lost or found the next goes whole anyway; the same
message sent again is the same bytes. Where nodes come and go, the streams of a new neighbour begin anew, too.

Protocols that send parts of models, cut out by the codec `part`, send a code and take one out of a slot. So the part is
taken out of its code before it is encoded, and where something else has become of what came, it is put into one again.
Nothing is lost by that: a part is exact.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from walktalk.protocols.effects import Arrival, Combine, Decode, Effect, Encode, Forget, Message, Send
from walktalk.protocols.events import Event, NetworkChanged, PeerFound, PeerLost, Received
from walktalk.protocols.machine import Context, Machine
from walktalk.protocols.wrappers.wrapped import WrappedNode
from walktalk.transforms.codecs import Part, codec_named


def is_part(codec: str) -> bool:
    """Whether a codec leaves a part of a model as it is."""
    return isinstance(codec_named(codec), Part)


def behind(arrival: Arrival, codec: str) -> str:
    """The codec behind the protocol's own: for the part, where the protocol sends one."""
    return f"{arrival.codec}+{codec}" if arrival.codec else codec


def taken(arrival: Arrival, slot: str, into: str) -> Effect:
    """Put the model that a protocol sends so, from a slot, into another."""
    return Decode(slot, into) if arrival.codec else Combine(into, {slot: 1.0})


def given(arrival: Arrival, slot: str, into: str) -> list[Effect]:
    """What a protocol sends or takes so is a code: make it of the model in a slot; nothing, where it is the model."""
    return [Encode(slot, into, arrival.codec)] if arrival.codec else []


WHOLE = "whole-"  # before a kind: the same message with a model as it is
ASK = "ask-whole"  # a message: send the next of a stream whole
MOST_HELD = 256  # messages that wait for one that they have overtaken; what is beyond is refused
_NUMBER = struct.Struct("<I")


def arrivals_with_feedback(messages: Mapping[str, Arrival], codec: str) -> dict[str, Arrival]:
    """How the messages of a protocol arrive where both ends of a link keep a reference."""
    found: dict[str, Arrival] = {ASK: Arrival()}
    for kind, arrival in messages.items():
        found[kind] = arrival
        if arrival.slot:
            found[kind] = arrival._replace(codec=behind(arrival, codec))
            # Not `once`: it is kept as the reference, which every later message of the stream is added to.
            found[WHOLE + kind] = arrival._replace(slot=f"whole/{arrival.slot}", once=False)
    return found


@dataclass
class Outgoing:
    """A stream at its sender: the last message of a kind to a neighbour."""

    number: int  # of the last message
    said: Message  # the last message, as the protocol said it
    sent: Send  # the same, as it went


@dataclass
class Incoming:
    """A stream at its receiver: how far it is, and what has overtaken others."""

    number: int = -1  # of the last message that is in the reference; -1: none has come whole
    held: dict[int, Received] = field(default_factory=dict)  # those that have overtaken others, by number


class FeedbackNode(WrappedNode):
    """Sends what its references lack; `inner` is the node that it would be without a codec."""

    __slots__ = ("askable", "codec", "heard", "messages", "numbers", "sent")

    def __init__(self, inner: Machine, messages: Mapping[str, Arrival], codec: str, askable: Iterable[int]) -> None:
        """
        - `inner`: the protocol's own machine.
        - `messages`: the protocol's own declarations.
        - `codec`: the codec's name with its settings.
        - `askable`: whom a whole model can be asked of; empty where no message is ever lost.
        """
        super().__init__(inner)
        self.messages, self.codec, self.askable = messages, codec, frozenset(askable)
        self.sent: dict[tuple[int, str], Outgoing] = {}  # receiver, kind
        self.heard: dict[tuple[int, str], Incoming] = {}  # sender, kind
        self.numbers: dict[tuple[int, str], int] = {}  # of messages that were sent, also before a stream began anew

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            return self._received(event, context)
        if isinstance(event, PeerLost | PeerFound):
            self._begin_anew(event.peer)
        if isinstance(event, NetworkChanged):
            self.askable = frozenset(event.around.neighbours)
        return self.changed(self.inner.handle(event, context))

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What was refused is missing in the reference: the next should come whole."""
        return [*self._lacks(sender, message), *self.changed(self.inner.refused(sender, self._said(message), context))]

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What was lost may be said again; where it is not, the next message shows the gap, and is asked for whole."""
        return self.changed(self.inner.missed(sender, self._said(message), context))

    def _said(self, message: Message) -> Message:
        """The message as the protocol said it."""
        if not self._models(message):
            return message
        return numbered(message._replace(kind=message.kind.removeprefix(WHOLE)))[1]

    def _lacks(self, sender: int, message: Message) -> list[Effect]:
        asks = self._models(message) and sender in self.askable
        return [self._ask(sender, message.kind.removeprefix(WHOLE))] if asks else []

    def _models(self, message: Message) -> bool:
        """Whether a model comes with it."""
        arrival = self.messages.get(message.kind.removeprefix(WHOLE))
        return arrival is not None and bool(arrival.slot)

    def _ask(self, sender: int, kind: str) -> Send:
        """Let the next of a stream come whole."""
        return Send(sender, Message(ASK, note=kind.encode("ascii")))

    def _begin_anew(self, peer: int) -> None:
        """What it has of us, and we of it, is not sure any more."""
        self.sent = {stream: one for stream, one in self.sent.items() if stream[0] != peer}
        self.heard = {stream: one for stream, one in self.heard.items() if stream[0] != peer}

    # -- out --------------------------------------------------------------------------------------------------------

    def changed(self, effects: list[Effect]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            done += self._send(effect) if isinstance(effect, Send) and effect.slot else (effect,)
        return done

    def _send(self, effect: Send) -> list[Effect]:
        stream = (effect.to, effect.message.kind)
        before = self.sent.get(stream)
        if before is not None and effect.again and before.said == effect.message:
            return [before.sent._replace(again=True)]
        number = self.numbers[stream] = self.numbers.get(stream, -1) + 1
        message = effect.message._replace(note=_NUMBER.pack(number) + effect.message.note)
        work, kind, slot = self._whole(effect) if before is None else self._difference(effect)
        sent = Send(effect.to, message._replace(kind=kind), slot, effect.again)
        self.sent[stream] = Outgoing(number, effect.message, sent)
        return [*work, sent]

    def _whole(self, effect: Send) -> tuple[list[Effect], str, str]:
        """The model as it is, or the part of it, which becomes the reference."""
        kind, reference = effect.message.kind, f"sent/{effect.to}/{effect.message.kind}"
        arrival, code = self.messages[kind], f"code/{effect.to}/{kind}"
        work = [taken(arrival, effect.slot, reference), *given(arrival, reference, code)]
        return work, WHOLE + kind, code if arrival.codec else reference

    def _difference(self, effect: Send) -> tuple[list[Effect], str, str]:
        """What the reference lacks, encoded. The code is kept: it may have to be sent again."""
        kind, reference = effect.message.kind, f"sent/{effect.to}/{effect.message.kind}"
        lacks, seen, code = "lacks", "seen", f"code/{effect.to}/{kind}"
        arrival = self.messages[kind]
        work: list[Effect] = [
            taken(arrival, effect.slot, lacks),  # a copy: its optimizer state comes along
            Combine(lacks, {lacks: 1.0, reference: -1.0}, {lacks: 1.0}),
            Encode(lacks, code, behind(arrival, self.codec)),
            Decode(code, seen),
            Combine(reference, {reference: 1.0, seen: 1.0}, {seen: 1.0}),
            Forget(lacks),
            Forget(seen),
        ]
        return work, kind, code

    # -- in ---------------------------------------------------------------------------------------------------------

    def _received(self, event: Received, context: Context) -> list[Effect]:
        sender, kind, note = event.sender, event.message.kind, event.message.note
        if kind == ASK:
            self.sent.pop((sender, note.decode("ascii")), None)
            return []
        if not event.slot:
            return self.changed(self.inner.handle(event, context))
        inner_kind = kind.removeprefix(WHOLE)
        number, message = numbered(event.message._replace(kind=inner_kind))
        stream = self.heard.setdefault((sender, inner_kind), Incoming())
        into = self.messages[inner_kind].slot_of(sender, message)
        asked = Received(sender, message, into)
        if kind != inner_kind:
            return self._take_whole(stream, number, asked, event.slot, context)
        if number == stream.number + 1 and stream.number >= 0:
            effects = self._take_difference(asked, context)
            stream.number = number
            return [Decode(event.slot, event.slot), *effects, *self._release(stream, context)]
        if number == stream.number:  # the same again; the protocol knows what to do with it
            repeated = self.changed(self.inner.handle(asked, context))
            return [Combine(into, {heard_slot(asked): 1.0}), *given(self.messages[inner_kind], into, into), *repeated]
        return self._hold(stream, number, asked, event.slot)

    def _take_whole(self, stream: Incoming, number: int, asked: Received, came: str, context: Context) -> list[Effect]:
        effects = self.changed(self.inner.handle(asked, context))
        stream.number = number
        stream.held = {later: one for later, one in stream.held.items() if later > number}
        heard, slot, arrival = heard_slot(asked), asked.slot, self.messages[asked.message.kind]
        first: list[Effect] = [taken(arrival, came, heard), Combine(slot, {heard: 1.0}), Forget(came)]
        return [*first, *given(arrival, slot, slot), *effects, *self._release(stream, context)]

    def _take_difference(self, asked: Received, context: Context) -> list[Effect]:
        """A difference is where the protocol looks for a model: the reference goes on, and is that model."""
        effects = self.changed(self.inner.handle(asked, context))
        heard, slot = heard_slot(asked), asked.slot
        code = given(self.messages[asked.message.kind], slot, slot)
        return [Combine(slot, {heard: 1.0, slot: 1.0}, {slot: 1.0}), Combine(heard, {slot: 1.0}), *code, *effects]

    def _hold(self, stream: Incoming, number: int, asked: Received, came: str) -> list[Effect]:
        """It has overtaken another, or another was lost."""
        if number < stream.number or len(stream.held) >= MOST_HELD:
            raise ValueError(f"message {number} of a stream that is at {stream.number}")
        stream.held[number] = asked
        effects: list[Effect] = [Decode(came, held_slot(asked, number))]
        if asked.sender in self.askable:
            effects.append(self._ask(asked.sender, asked.message.kind))
        return effects

    def _release(self, stream: Incoming, context: Context) -> list[Effect]:
        """Those that have waited for what is there now."""
        effects: list[Effect] = []
        while stream.number + 1 in stream.held:
            stream.number += 1
            asked = stream.held.pop(stream.number)
            difference = held_slot(asked, stream.number)
            try:
                taken = self._take_difference(asked, context)
                effects += [Combine(asked.slot, {difference: 1.0}), *taken]
            except (KeyError, ValueError):  # the protocol refuses it; the stream goes on
                heard = heard_slot(asked)
                effects.append(Combine(heard, {heard: 1.0, difference: 1.0}, {difference: 1.0}))
            effects.append(Forget(difference))
        return effects


def numbered(message: Message) -> tuple[int, Message]:
    """The number of a message in its stream, and the message as the protocol said it; `ValueError` if it has none."""
    try:
        (number,) = _NUMBER.unpack_from(message.note)
    except struct.error as error:
        raise ValueError(f"not numbered: {error}") from error
    return int(number), message._replace(note=message.note[_NUMBER.size :])


def heard_slot(asked: Received) -> str:
    """Where a node keeps the reference of a stream that it hears."""
    return f"heard/{asked.sender}/{asked.message.kind}"


def held_slot(asked: Received, number: int) -> str:
    """Where a difference waits."""
    return f"held/{asked.sender}/{asked.message.kind}/{number}"
