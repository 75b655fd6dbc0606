"""DIGEST where nodes and messages are lost: the travelling model is kept until it has arrived, and begun anew if lost.

Every hop is acknowledged. No answer: the same message again. The next node is dead: the sender takes its copy back, and
it goes elsewhere after the next training. A node that has not been visited for twice as long as ever before begins the
travelling model anew, from what it had of it last: times of return have long tails, and their deviations (`arrivals`)
are no measure of the longest. Visits are numbered, and one that is begun anew, or was
taken back, is `JUMP` visits ahead of the one that may still be about somewhere: of two that meet, at a node that both
come to, the one that is behind ends. What it had gathered since they parted is lost; nothing counts twice. A node that
was dead does not know whether what it had learned was gathered already, and shows only what it learns from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.chains import metropolis_step
from walktalk.protocols.arrivals import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.effects import Combine, Effect, Forget, Note, Send, SetTimer, apply_update
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.walks.digest_visits import BASE, KIND, MODEL, TRAVELLER, begun, gathered, trains_on

TAKEN = "taken"  # kind of a message: the travelling model has arrived
MESSAGES = {KIND: Arrival("in/{sender}"), TAKEN: Arrival()}
KEPT = "hop"  # slot: the travelling model while it is on its way
HOP, GUARD = "hop", "guard"  # timers
JUMP = 2**16  # visits, more than any that is behind makes before it ends
LAST = 2**31  # no number of a visit is higher


@dataclass
class Hop:
    """The travelling model was sent, and has not been acknowledged yet."""

    to: int
    number: int
    since: float
    tries: int = 0


class ResilientDigest(Machine):
    """Any node."""

    __slots__ = ("answers", "around", "cut", "here", "hop", "longest", "seen", "start", "steps", "visits")

    def __init__(self, around: Surroundings, start: int, steps: int, patience: float) -> None:
        self.around, self.start, self.steps = around, start, steps
        self.here = False  # whether the travelling model is
        self.seen = 0  # the number of its latest visit that was heard of
        self.hop: Hop | None = None
        self.cut: set[int] = set()  # neighbours that are lost
        self.answers = Arrivals(patience / 4, 0.0)  # how long acknowledgements take
        self.visits = Arrivals(patience / 4 * around.nodes, 0.0)  # how long it stays away
        self.longest = 0.0  # that it ever did

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received(sender, message):
                if sender not in self.around.neighbours or message.round > LAST:
                    raise ValueError(f"{sender} sends {message.kind!r} of visit {message.round}")
                return self._arrived(event, outside) if message.kind == KIND else self._taken(event, outside.now)
            case Trained():
                effects: list[Effect] = [apply_update(MODEL), *(self._gather(outside) if self.here else ())]
                return [*effects, *trains_on(self.around.node, self.steps)]
            case TimerFired(name):
                return self._ask_again() if name == HOP else self._stays_away(outside.now)
            case PeerLost(peer):
                self.cut.add(peer)
                return self._take_back() if self.hop is not None and self.hop.to == peer else []
            case PeerFound(peer):
                self.cut.discard(peer)
                return []
            case Started(late):
                self.here = self.around.node == self.start and not late
                return [*begun(self.here), *self._begin(outside.now)]
            case Rejoined(memory):
                self.seen = min(int.from_bytes(memory, "little"), LAST)
                return [Combine(BASE, {MODEL: 1.0}), *self._begin(outside.now)]
        return []

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """What is no model ends here."""
        return [self._answer(sender, message)] if message.kind == KIND else []

    def keepsake(self) -> bytes:
        return self.seen.to_bytes(8, "little")

    def _begin(self, now: float) -> list[Effect]:
        self.visits.last = now
        return [*trains_on(self.around.node, self.steps), self._guard()]

    def _guard(self) -> Effect:
        return SetTimer(GUARD, max(self.visits.patience, 2.0 * self.longest))

    # -- a visit --------------------------------------------------------------------------------------------------

    def _arrived(self, event: Received, outside: Outside) -> list[Effect]:
        answer, number = self._answer(event.sender, event.message), event.message.round
        if number <= self.seen:  # it came before, or one that is ahead of it did
            return [answer, Forget(event.slot)]
        self.here, self.seen = True, number
        self.longest = max(self.longest, outside.now - self.visits.last)
        self.visits.arrived(outside.now)
        end = self._end_of_hop()  # a copy of one that is behind, or of this one, which has evidently arrived
        take: list[Effect] = [Combine(TRAVELLER, {event.slot: 1.0}), Forget(event.slot)]
        return [answer, *end, *take, self._guard()]

    def _answer(self, sender: int, message: Message) -> Effect:
        return Send(sender, Message(TAKEN, walk=message.walk, round=message.round))

    def _gather(self, outside: Outside) -> list[Effect]:
        around = self.around
        self.seen = min(self.seen + 1, LAST)
        effects = gathered(around.nodes, self.seen)
        alive = [(peer, d) for peer, d in zip(around.neighbours, around.degrees, strict=True) if peer not in self.cut]
        peers, degrees = [peer for peer, _ in alive], [degree for _, degree in alive]
        to = metropolis_step(around.node, len(around.neighbours), peers, degrees, outside.random)
        if to == around.node:
            return effects
        self.here, self.hop = False, Hop(to, self.seen, outside.now)
        return [*effects, Combine(KEPT, {TRAVELLER: 1.0}), Forget(TRAVELLER), *self._send()]

    def _stays_away(self, now: float) -> list[Effect]:
        """Begin the travelling model anew, unless it is here or on its way from here."""
        effects: list[Effect] = []
        if not self.here and self.hop is None:
            self.here, self.seen = True, min(self.seen + JUMP, LAST)
            effects = [Combine(TRAVELLER, {BASE: 1.0}), Note("restarted", walk=1, number=self.seen)]
        self.visits.last = now  # nothing is learned from a wait that was in vain
        return [*effects, self._guard()]

    # -- a hop ----------------------------------------------------------------------------------------------------

    def _send(self) -> list[Effect]:
        hop = self.hop
        assert hop is not None
        message = Message(KIND, walk=1, round=hop.number)
        patience = self.answers.patience * 2.0 ** min(hop.tries, MOST_DOUBLINGS)
        return [Send(hop.to, message, KEPT, again=hop.tries > 0), SetTimer(HOP, patience)]

    def _ask_again(self) -> list[Effect]:
        if self.hop is None:
            return []
        self.hop.tries += 1
        return self._send()

    def _taken(self, event: Received, now: float) -> list[Effect]:
        hop = self.hop
        if hop is None or (hop.to, hop.number) != (event.sender, event.message.round):
            return []
        if not hop.tries:  # else nobody knows which of the messages was answered
            self.answers.observe(now - hop.since)
        return self._end_of_hop()

    def _end_of_hop(self) -> list[Effect]:
        if self.hop is None:
            return []
        self.hop = None
        return [Forget(KEPT)]

    def _take_back(self) -> list[Effect]:
        """The next node is dead; if it has the travelling model all the same, that one is behind from now on."""
        self.here, self.seen = True, min(self.seen + JUMP, LAST)
        back = Combine(TRAVELLER, {KEPT: 1.0})
        return [back, *self._end_of_hop(), Note("rerouted", walk=1, number=self.seen)]
