"""Tokens that cannot be lost on a hop: the sender keeps the models until the receiver has acknowledged them.

No answer in time, and the receiver seems alive: the same message again, with twice the patience (it is recognized if it
had come through). The receiver is dead: another neighbour is chosen by the matrix of the graph that is left. A copy
that the dead one had after all is sorted out by its ticket.

A `Token` is what a walk carries beside its models, so that no update is counted twice and no hop is taken twice. Every
time the aggregator lets a walk go, it writes a *ticket* on it, higher than the last, and none that another walk ever
has. It accepts a returning walk only with the ticket that it wrote last; a second copy of the walk (the sender believed
the receiver dead, and sent it elsewhere) carries a ticket that is used up, and is retired. The token says in which term
of which aggregator the ticket was written; hops are counted from there, so that a message that was sent twice is
recognized. Further models of a walk come in messages of their own, which say with which copy they belong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from typing import Protocol as TypingProtocol

from walktalk.protocols.effects import Effect, Message, Send, SetTimer
from walktalk.protocols.mechanisms.attendance import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.mechanisms.tokens.rule import NOTHING, Carried, Slots, carried_in, forgotten, kept_slot, moved

WALK = "walk"  # kind of the message that brings a walk
ACK = "ack"  # kind of its acknowledgement
NO_TERM = (0, -1)  # of a fork: no aggregator knows of it yet

_NOTE = struct.Struct("<iII")
_LABEL = struct.Struct("<IiII")
LARGEST = 2**31 - 1  # hop or generation that is believed: counted on from there, the field is not full for long


class Token(NamedTuple):
    """One copy of a walk, at one point of its way."""

    walk: int
    term_id: tuple[int, int]  # term and node of the aggregator that wrote the ticket
    ticket: int
    hop: int = 0  # since the ticket was written
    generation: int = 0  # how often the walk was started again
    carried: Carried = NOTHING

    @property
    def place(self) -> tuple[tuple[int, int], int, int]:
        """What tells two copies of a walk apart, in the order of their ways."""
        return self.term_id, self.ticket, self.hop

    def moved(self) -> Token:
        """The token after one more hop."""
        return self._replace(hop=min(self.hop + 1, LARGEST))

    def message(self, kind: str) -> Message:
        """A message about this copy."""
        term, leader = self.term_id
        note = _NOTE.pack(leader, self.hop, self.generation)
        return Message(kind, walk=self.walk, round=self.ticket, term=term, note=note + self.carried.encode())

    @property
    def label(self) -> bytes:
        """What is written on the walk's extras, so that they are not taken for those of another copy."""
        return _LABEL.pack(*self.term_id, self.ticket, self.hop)

    def parts(self, extras: tuple[str, ...]) -> list[tuple[str, Message]]:
        """All messages of a hop, by the kind of the model that each brings; the walk's own, "", comes last.

        Those of extras have no number of a walk, since no optimizer state goes along with them.
        """
        term = self.term_id[0]
        return [
            *((kind, Message(kind, round=self.walk, term=term, note=self.label)) for kind in extras),
            ("", self.message(WALK)),
        ]


def ticket_after(last: int, walk: int, walks: int) -> int:
    """The next ticket of a walk: no two walks ever have the same, so none can be passed off as another.

    Args:
        last: the walk's last ticket, 0 where there was none.
        walk: which walk it is.
        walks: how many walks there are.
    """
    return last + 1 + (walk - last - 1) % walks


def is_ticket_of(ticket: int, walk: int, walks: int) -> bool:
    """Whether a ticket can be this walk's; 0 is everybody's, before the first visit."""
    return not ticket or (ticket - walk) % walks == 0


def token_of(message: Message) -> Token:
    """The token in a message; `ValueError` where there is none."""
    try:
        leader, hop, generation = _NOTE.unpack_from(message.note)
    except struct.error as error:
        raise ValueError(f"not a walk's token: {error}") from error
    if leader < NO_TERM[1] or max(hop, generation) > LARGEST:
        raise ValueError(f"not a walk's token: of node {leader}, hop {hop}, generation {generation}")
    carried = carried_in(message.note[_NOTE.size :])
    return Token(message.walk, (message.term, leader), message.round, hop, generation, carried)


def answer_to(token: Token) -> Message:
    """The acknowledgement of a copy."""
    return token._replace(carried=NOTHING).message(ACK)


# -- the hop ----------------------------------------------------------------------------------------------------------

NOWHERE = -1  # the number of no node


class Sendable(TypingProtocol):
    """What hops have to know of a token."""

    @property
    def walk(self) -> int:
        """Its number: of each there is one on its way from a node."""

    @property
    def place(self) -> object:
        """What tells two copies apart."""

    def parts(self, extras: tuple[str, ...]) -> list[tuple[str, Message]]:
        """The messages of a hop, by the kind of the model that each brings."""


TokenT = TypeVar("TokenT", bound=Sendable)


@dataclass
class OpenHop(Generic[TokenT]):
    """A token that was sent and is not acknowledged yet."""

    token: TokenT
    to: int
    since: float
    tries: int = 1


@dataclass
class Hops(Generic[TokenT]):
    """All tokens that are on their way from one node: sent, asked for again, acknowledged or given up."""

    answers: Arrivals  # how long acknowledgements take
    extras: tuple[str, ...] = ()  # kinds of further models that walks carry
    leaving: dict[int, OpenHop[TokenT]] = field(default_factory=dict)  # by walk

    def send(self, token: TokenT, at: Slots, to: int, now: float) -> list[Effect]:
        """Send the token that is there; its models are kept under other names, so that the slots are free."""
        return [*self._keep(token, at, to, now), *self._transmit(self.leaving[token.walk], again=False)]

    def wait(self, token: TokenT, at: Slots, now: float, seconds: float) -> list[Effect]:
        """The token that is there stays for a while, as if on its way to nobody: then it is sent elsewhere."""
        return [*self._keep(token, at, NOWHERE, now), SetTimer(timer_of(token.walk), seconds)]

    def again(self, walk: int) -> list[Effect]:
        """Send the same message to the same node once more."""
        hop = self.leaving[walk]
        hop.tries += 1
        return self._transmit(hop, again=True)

    def acknowledged(self, token: Sendable, by: int, now: float) -> list[Effect]:
        """The receiver has it; an answer to anything but the hop that is awaited says nothing."""
        hop = self.leaving.get(token.walk)
        if hop is None or hop.to != by or hop.token.place != token.place:
            return []
        if hop.tries == 1:  # else nobody knows which of the messages was answered
            self.answers.observe(now - hop.since)
        return self.give_up(token.walk)

    def give_up(self, walk: int) -> list[Effect]:
        """The token is elsewhere: its models need not be kept."""
        del self.leaving[walk]
        return forgotten(walk, self.extras, kept_slot)

    def token(self, walk: int) -> TokenT | None:
        """The copy of a walk that is on its way."""
        hop = self.leaving.get(walk)
        return hop.token if hop is not None else None

    def to(self, peer: int) -> list[int]:
        """Walks that are on their way to this neighbour."""
        return [walk for walk, hop in self.leaving.items() if hop.to == peer]

    def _keep(self, token: TokenT, at: Slots, to: int, now: float) -> list[Effect]:
        self.leaving[token.walk] = OpenHop(token, to, now)
        return moved(token.walk, self.extras, at, kept_slot) if at is not kept_slot else []

    def _transmit(self, hop: OpenHop[TokenT], again: bool) -> list[Effect]:
        walk = hop.token.walk
        patience = self.answers.patience * 2.0 ** min(hop.tries - 1, MOST_DOUBLINGS)
        parts = hop.token.parts(self.extras)
        sent = [Send(hop.to, message, kept_slot(walk, kind), again) for kind, message in parts]
        return [*sent, SetTimer(timer_of(walk), patience)]


def timer_of(walk: int) -> str:
    """The name of a hop's timer."""
    return f"hop/{walk}"
