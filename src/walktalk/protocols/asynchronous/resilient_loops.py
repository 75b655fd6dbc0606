"""Two free loops a node where nodes and messages are lost: one trains on anyway, the other asks again.

Exchanges are those of resilient gossip (`async_gossip.exchanges`): they change both sides or neither. What an answer
brings is a difference, so it is added however late it comes. The talking loop goes on with others meanwhile, after as
long as answers ever took; neighbours that are lost, and those with an open exchange, are left out.
"""

from __future__ import annotations

from walktalk.protocols.arrivals import Arrivals
from walktalk.protocols.async_gossip.exchanges import Exchange, Exchanges
from walktalk.protocols.async_gossip.habit import kept_offer
from walktalk.protocols.async_gossip.resilient import CLOSED, given_slot
from walktalk.protocols.asynchronous.free_loops import MODEL, TALK, Training
from walktalk.protocols.effects import INITIAL, Combine, Effect, Forget, Note, Send, SetTimer
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside
from walktalk.protocols.message import Arrival, Message

CLOSING = {CLOSED: Arrival()}  # a kind of message that is needed here alone


class ResilientLoops(Machine):
    """One node."""

    __slots__ = ("around", "cut", "exchanges", "loop")

    def __init__(self, loop: Training, patience: float) -> None:
        self.loop, self.around = loop, loop.around
        self.exchanges = Exchanges(Arrivals(patience / 4, 0.0))
        self.cut: set[int] = set()  # neighbours that are lost

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Started():
                return [Combine(MODEL, {INITIAL: 1.0}), *self.loop.begin(outside.now)]
            case Rejoined(memory):
                self.exchanges.life = outside.random.getrandbits(30) + 1
                self.exchanges.remember(memory, outside.now)
                asked = [effect for peer in self.exchanges.begun for effect in self._ask_again(peer)]
                return [*self.loop.begin(outside.now), *asked]
        return [*self.loop.drift(outside.now), *self._react(event, outside)]

    def _react(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Trained():
                return self.loop.learn(outside)
            case TimerFired(name) if name == TALK:
                return self._offer(outside)
            case TimerFired(name):
                peer = int(name.rpartition("/")[2])
                return [*self._wait_no_longer(peer, outside), *self._ask_again(peer)]
            case Received(sender, message):
                if sender not in self.around.neighbours:
                    raise ValueError(f"{sender} is no neighbour")
                if message.kind == "offer":
                    return self._answer(event)
                return self._answered(event, outside)
            case PeerLost(peer):
                self.cut.add(peer)
                return self._wait_no_longer(peer, outside)
            case PeerFound(peer):
                self.cut.discard(peer)
                return self._ask_again(peer)
        return []

    def keepsake(self) -> bytes:
        return self.exchanges.keepsake()

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """An offer is over for the one that made it; an answer that is none ends what this node began."""
        if message.kind == "offer":
            return [Send(sender, Message(CLOSED, round=message.round, term=message.term))]
        return self._answered(Received(sender, message._replace(kind=CLOSED), ""), outside)

    # -- the active side ------------------------------------------------------------------------------------------

    def _offer(self, outside: Outside) -> list[Effect]:
        peers = [p for p in self.around.neighbours if p not in self.cut and p not in self.exchanges.begun]
        if not peers:
            return self.loop.talk_later(outside)
        peer = peers[int(outside.random.random() * len(peers))]
        exchange = self.exchanges.begin(peer, outside.now)
        timer = SetTimer(f"ask/{peer}", self.exchanges.patience(peer))
        return [Combine(kept_offer(peer), {MODEL: 1.0}), self._say_offer(peer, exchange, again=False), timer]

    def _say_offer(self, peer: int, exchange: Exchange, again: bool) -> Effect:
        return Send(peer, Message("offer", round=exchange.number, term=exchange.life), kept_offer(peer), again)

    def _answered(self, event: Received, outside: Outside) -> list[Effect]:
        """Take what the answer brings, however late; or nothing, where the other says that this is long over."""
        peer, message = event.sender, event.message
        exchange = self.exchanges.answered(peer, message.term, message.round, outside.now)
        if exchange is None:
            return [Forget(event.slot)] if event.slot else []
        mix = [*self.loop.meet(event.slot, kept_offer(peer)), Forget(event.slot)] if event.slot else []
        later = self.loop.talk_later(outside) if exchange.waiting else []
        return [*mix, Forget(kept_offer(peer)), self.loop.record(), *later]

    def _wait_no_longer(self, peer: int, outside: Outside) -> list[Effect]:
        """What was offered is kept; talk to others."""
        exchange = self.exchanges.begun.get(peer)
        if exchange is None or not exchange.waiting:
            return []
        exchange.waiting = False
        return [Note("interrupted", peer=peer, number=exchange.number), *self.loop.talk_later(outside)]

    def _ask_again(self, peer: int) -> list[Effect]:
        exchange = self.exchanges.begun.get(peer)
        if exchange is None or peer in self.cut:
            return []
        exchange.tries += 1
        again = self._say_offer(peer, exchange, again=True)
        return [again, SetTimer(f"ask/{peer}", self.exchanges.patience(peer))]

    # -- the passive side -----------------------------------------------------------------------------------------

    def _answer(self, event: Received) -> list[Effect]:
        """Send the model of before, then take the difference; the same offer again changes nothing."""
        peer, life, number = event.sender, event.message.term, event.message.round
        before, kept = self.exchanges.given.get(peer, (-1, 0)), given_slot(peer)
        answer = Message("answer", round=number, term=life)
        if (life, number) == before:
            return [Forget(event.slot), Send(peer, answer, kept, again=True)]
        if life == before[0] and number < before[1]:
            return [Forget(event.slot), Send(peer, Message(CLOSED, round=number, term=life))]
        self.exchanges.given[peer] = life, number
        mix = self.loop.meet(event.slot, MODEL)
        return [Combine(kept, {MODEL: 1.0}), Send(peer, answer, kept), *mix, Forget(event.slot), self.loop.record()]
