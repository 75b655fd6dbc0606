"""Hops that cannot lose a walk: the sender keeps the model until the receiver has acknowledged it.

No answer in time, and the receiver seems alive: the same message again, with twice the patience (it is recognized if it
had come through). The receiver is dead: another neighbour is chosen by the matrix of the graph that is left. A copy
that the dead one had after all is sorted out by its ticket.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from walktalk.protocols.arrivals import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.effects import Effect, Send, SetTimer
from walktalk.protocols.multi_walk.visits import Slots, forgotten, kept_slot, moved
from walktalk.protocols.multi_walk.walk_pass import WALK, Pass

NOWHERE = -1  # the number of no node


@dataclass
class Leaving:
    """A walk that was sent and is not acknowledged yet."""

    what: Pass
    to: int
    since: float
    tries: int = 1


@dataclass
class Hops:
    """All walks that are on their way from one node."""

    answers: Arrivals  # how long acknowledgements take
    luggage: tuple[str, ...] = ()  # kinds of further models that walks carry
    leaving: dict[int, Leaving] = field(default_factory=dict)  # by walk

    def send(self, what: Pass, at: Slots, to: int, now: float) -> list[Effect]:
        """Send the walk that is there; its models are kept under other names, so that the slots are free."""
        self.leaving[what.walk] = Leaving(what, to, now)
        move = moved(what.walk, self.luggage, at, kept_slot) if at is not kept_slot else []
        return [*move, *self._transmit(self.leaving[what.walk], again=False)]

    def wait(self, what: Pass, at: Slots, now: float, seconds: float) -> list[Effect]:
        """The walk that is there stays for a while, as if on its way to nobody: then it is sent elsewhere."""
        self.leaving[what.walk] = Leaving(what, NOWHERE, now)
        move = moved(what.walk, self.luggage, at, kept_slot) if at is not kept_slot else []
        return [*move, SetTimer(timer_of(what.walk), seconds)]

    def again(self, walk: int) -> list[Effect]:
        """The same message to the same node."""
        hop = self.leaving[walk]
        hop.tries += 1
        return self._transmit(hop, again=True)

    def acknowledged(self, what: Pass, by: int, now: float) -> list[Effect]:
        """The receiver has it; what is not the hop that is awaited says nothing."""
        hop = self.leaving.get(what.walk)
        if hop is None or hop.to != by or hop.what.place != what.place:
            return []
        if hop.tries == 1:  # else nobody knows which of the messages was answered
            self.answers.observe(now - hop.since)
        return self.give_up(what.walk)

    def give_up(self, walk: int) -> list[Effect]:
        """The walk is elsewhere."""
        del self.leaving[walk]
        return forgotten(walk, self.luggage, kept_slot)

    def what(self, walk: int) -> Pass | None:
        """The copy of a walk that is on its way."""
        hop = self.leaving.get(walk)
        return hop.what if hop is not None else None

    def to(self, peer: int) -> list[int]:
        """Walks that are on their way to this neighbour."""
        return [walk for walk, hop in self.leaving.items() if hop.to == peer]

    def _transmit(self, hop: Leaving, again: bool) -> list[Effect]:
        what, walk = hop.what, hop.what.walk
        patience = self.answers.patience * 2 ** min(hop.tries - 1, MOST_DOUBLINGS)
        more = [Send(hop.to, what.luggage(kind), kept_slot(walk, kind), again) for kind in self.luggage]
        return [*more, Send(hop.to, what.message(WALK), kept_slot(walk), again), SetTimer(timer_of(walk), patience)]


def timer_of(walk: int) -> str:
    """The timer of a hop."""
    return f"hop/{walk}"
