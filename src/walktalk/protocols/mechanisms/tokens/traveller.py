"""One token that travels while all nodes train: it visits a node, takes in what was learned there, and moves on.

A protocol says in a `TravellerRule` what a node keeps and what a visit does. `PlainTraveller` is a node in a world
without failures. `ResilientTraveller` keeps the travelling model until it has arrived, and begins it anew if lost:

Every hop is acknowledged (`hops`). No answer: the same message again. The next node is dead: the sender takes its copy
back, and it goes elsewhere after the next training. A node that has not been visited for twice as long as ever before
begins the travelling model anew, from what it had of it last: times of return have long tails, and their deviations
(`timeouts`) are no measure of the longest. Visits are numbered, and one that is begun anew, or was taken back, is
`JUMP` visits ahead of the one that may still be about somewhere: of two that meet, at a node that both come to, the one
that is behind ends. What it had gathered since they parted is lost; nothing counts twice. A node that was dead does not
know whether what it had learned was gathered already, and shows only what it learns from then on.

A node that joins begins with the travelling model when that comes by. One that leaves sends it on, or, if it is
elsewhere, sends what it has learned since the last visit to a neighbour, where it is gathered at the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from walktalk.chains import metropolis_step
from walktalk.protocols.effects import (
    AGGREGATE,
    MEMBER,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Note,
    Record,
    Send,
    SetTimer,
)
from walktalk.protocols.events import (
    Event,
    Leaving,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import Arrivals
from walktalk.protocols.mechanisms.tokens.hops import Hops
from walktalk.protocols.mechanisms.tokens.rule import kept_slot

MODEL, TRAVELLER = "model", "traveller"  # slots: the node's own model, and the travelling one
KIND, TAKEN, REST = "traveller", "taken", "rest"  # kinds of messages: the travelling model, its acknowledgement,
# and what a node that leaves has learned since the last visit
PLAIN_MESSAGES = {KIND: Arrival(TRAVELLER)}
RESILIENT_MESSAGES = {KIND: Arrival("in/{sender}", prompt=True), TAKEN: Arrival(), REST: Arrival("rest/{sender}")}
THE_TRAVELLER, THE_REST = 1, 2  # numbers of hops
GUARD = "guard"  # timer: the travelling model has been away for too long
JUMP = 2**16  # visits, more than any that is behind makes before it ends
LAST = 2**31  # no number of a visit is higher


class TravellerRule(ABC):
    """What a node keeps, how it trains, and what a visit of the travelling model does."""

    __slots__ = ()

    @abstractmethod
    def begin(self, traveller: bool) -> list[Effect]:
        """The run begins, at the node where the travelling model is (`traveller`) or elsewhere."""

    @abstractmethod
    def train(self) -> Effect:
        """The node's own model is trained."""

    @abstractmethod
    def learn(self) -> Effect:
        """That training is done."""

    @abstractmethod
    def gather(self, nodes: int) -> list[Effect]:
        """The travelling model takes in what was learned here since its last visit. `nodes`: V."""

    @abstractmethod
    def adopt(self) -> list[Effect]:
        """This node has joined: it begins with the travelling model."""

    @abstractmethod
    def restart(self) -> Effect:
        """The travelling model is begun anew from what this node had of it last."""

    @abstractmethod
    def forget(self) -> Effect:
        """What was learned here since the last visit is not to be gathered."""

    @abstractmethod
    def rest(self, into: str) -> Effect:
        """Set a slot to what was learned here since the last visit."""

    @abstractmethod
    def take_rest(self, slot: str) -> Effect:
        """Take over what another node had learned, to be gathered here."""


class Visit(NamedTuple):
    """The travelling model at one point of its way, or a rest that is sent once."""

    number: int  # of the visit
    walk: int = THE_TRAVELLER

    @property
    def place(self) -> int:
        """What tells two copies apart: the greater is ahead."""
        return self.number

    def message(self, kind: str) -> Message:
        """A message about this visit."""
        return Message(kind, walk=self.walk, round=self.number)

    def parts(self, extras: tuple[str, ...]) -> list[tuple[str, Message]]:
        """The one message of a hop."""
        return [("", self.message(KIND if self.walk == THE_TRAVELLER else REST))]


def traveller_slot(walk: int, kind: str) -> str:
    """The slot from which a hop begins."""
    return TRAVELLER if walk == THE_TRAVELLER else REST


class PlainTraveller(Machine):
    """A node that trains all the time, where nothing fails."""

    __slots__ = ("around", "here", "rule", "visits")

    def __init__(self, around: NetworkView, start: int, rule: TravellerRule) -> None:
        self.around, self.rule = around, rule
        self.here = around.node == start  # whether the travelling model is
        self.visits = 0  # of the travelling model to any node, when it came here: the latest is what counts

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Started):
            return [*begun(self.rule, self.here), *training(self.rule, self.around.node)]
        if isinstance(event, Received):
            self.here, self.visits = True, event.message.round
        if isinstance(event, Trained):
            gathered = self._gather(context) if self.here else ()
            return [self.rule.learn(), *gathered, *training(self.rule, self.around.node)]
        return []

    def _gather(self, context: Context) -> list[Effect]:
        around = self.around
        self.visits += 1
        effects = visited(self.rule, around.nodes, self.visits)
        to = metropolis_step(around.node, len(around.neighbours), around.neighbours, around.degrees, context.random)
        if to == around.node:
            return effects
        self.here = False
        return [*effects, Send(to, Visit(self.visits).message(KIND), TRAVELLER), Forget(TRAVELLER)]


class ResilientTraveller(Machine):
    """A node that trains all the time, where nodes and messages are lost and nodes come and go."""

    __slots__ = (
        "around",
        "cut",
        "empty",
        "here",
        "hops",
        "leaving",
        "longest",
        "rests",
        "rule",
        "seen",
        "start",
        "training",
        "visits",
    )

    def __init__(self, around: NetworkView, start: int, patience: float, rule: TravellerRule) -> None:
        self.around, self.start, self.rule = around, start, rule
        self.here = False  # whether the travelling model is
        self.seen = 0  # the number of its latest visit that was heard of
        self.hops: Hops[Visit] = Hops(Arrivals(patience / 4, 0.0))
        self.cut: set[int] = set()  # neighbours that are lost
        self.visits = Arrivals(patience / 4 * around.nodes, 0.0)  # how long it stays away
        self.longest = 0.0  # that it ever did
        self.empty = False  # whether this node has joined, and has no model yet
        self.training = False
        self.leaving = False  # whether it is to leave for good
        self.rests: set[int] = set()  # nodes whose rest was taken over

    def handle(self, event: Event, context: Context) -> list[Effect]:
        effects = self._react(event, context)
        return [*effects, *self._hand_over(context)] if self.leaving else effects

    def _react(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received(sender, message):
                if sender not in self.around.neighbours or message.round > LAST:
                    raise ValueError(f"{sender} sends {message.kind!r} of visit {message.round}")
                if message.kind == TAKEN:
                    return self.hops.acknowledged(Visit(message.round, message.walk), sender, context.now)
                return self._arrived(event, context) if message.kind == KIND else self._take_rest(event)
            case Trained():
                self.training = False
                effects: list[Effect] = [self.rule.learn(), *(self._gather(context) if self.here else ())]
                return [*effects, *self._train()]
            case TimerFired(name):
                return self._stays_away(context.now) if name == GUARD else self._ask_again(name)
            case PeerLost(peer):
                self.cut.add(peer)
                return self._take_back(peer)
            case PeerFound(peer):
                self.cut.discard(peer)
                return []
            case NetworkChanged(around):
                return self._change(around)
            case Leaving():
                self.leaving = True
                return []
            case Started(late):
                self.here, self.empty = self.around.node == self.start and not late, late
                return [*([] if late else begun(self.rule, self.here)), *self._begin(context.now)]
            case Rejoined(memory):
                self.empty, self.seen = not memory, min(int.from_bytes(memory, "little"), LAST)
                return [*([] if self.empty else [self.rule.forget()]), *self._begin(context.now)]
        return []

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model ends here."""
        return [] if message.kind == TAKEN else [answer_to(sender, message)]

    def keepsake(self) -> bytes:
        return b"" if self.empty else self.seen.to_bytes(8, "little")

    def has_work(self) -> bool:
        return not self.empty

    def may_go(self) -> bool:
        """When its last training is done, and what it had is with others."""
        return not (self.training or self.here or self.hops.leaving)

    def _begin(self, now: float) -> list[Effect]:
        self.visits.last = now
        return [*self._train(), self._guard()]

    def _train(self) -> list[Effect]:
        if self.empty or self.leaving:
            return []
        self.training = True
        return training(self.rule, self.around.node)

    def _guard(self) -> Effect:
        return SetTimer(GUARD, max(self.visits.patience, 2.0 * self.longest))

    def _change(self, around: NetworkView) -> list[Effect]:
        """Nodes have joined or left; new neighbours count as lost until they are found."""
        before, self.around = self.around.neighbours, around
        self.cut = self.cut.intersection(around.neighbours).union(set(around.neighbours).difference(before))
        return [effect for peer in before if peer not in around.neighbours for effect in self._take_back(peer)]

    # -- a visit --------------------------------------------------------------------------------------------------

    def _arrived(self, event: Received, context: Context) -> list[Effect]:
        answer, number = answer_to(event.sender, event.message), event.message.round
        if number <= self.seen:  # it came before, or one that is ahead of it did
            return [answer, Forget(event.slot)]
        self.here, self.seen = True, number
        self.longest = max(self.longest, context.now - self.visits.last)
        self.visits.arrived(context.now)
        # What is on its way from here is a copy of one that is behind, or of this one, which has evidently arrived.
        end = self.hops.give_up(THE_TRAVELLER) if THE_TRAVELLER in self.hops.leaving else []
        take: list[Effect] = [Combine(TRAVELLER, {event.slot: 1.0}), Forget(event.slot)]
        adopt = []
        if self.empty:
            self.empty = False
            adopt = [*self.rule.adopt(), *self._train()]
        return [answer, *end, *take, *adopt, self._guard()]

    def _gather(self, context: Context) -> list[Effect]:
        self.seen = min(self.seen + 1, LAST)
        effects = [] if self.empty else visited(self.rule, self.around.nodes, self.seen)
        to = self._next(context)
        if to == self.around.node:
            return effects
        self.here = False
        return [*effects, *self.hops.send(Visit(self.seen), traveller_slot, to, context.now)]

    def _next(self, context: Context) -> int:
        """Where the travelling model goes, by the matrix P of the graph that is left; not stay, if this node leaves."""
        around, gone = self.around, self.cut.union(self.around.leaving)
        alive = [(peer, d) for peer, d in zip(around.neighbours, around.degrees, strict=True) if peer not in gone]
        peers, degrees = [peer for peer, _ in alive], [degree for _, degree in alive]
        if self.leaving and peers:
            return context.random.choice(peers)
        return metropolis_step(around.node, len(around.neighbours), peers, degrees, context.random)

    def _stays_away(self, now: float) -> list[Effect]:
        """Begin the travelling model anew, unless it is here or on its way from here."""
        effects: list[Effect] = []
        if not self.here and THE_TRAVELLER not in self.hops.leaving and not self.empty:
            self.here, self.seen = True, min(self.seen + JUMP, LAST)
            effects = [self.rule.restart(), Note("restarted", walk=1, number=self.seen)]
        self.visits.last = now  # nothing is learned from a wait that was in vain
        return [*effects, self._guard()]

    # -- a hop ----------------------------------------------------------------------------------------------------

    def _ask_again(self, timer: str) -> list[Effect]:
        walk = int(timer.rpartition("/")[2])
        return self.hops.again(walk) if walk in self.hops.leaving else []

    def _take_back(self, peer: int) -> list[Effect]:
        """This node is dead; if it has the travelling model all the same, that one is behind from now on."""
        effects: list[Effect] = []
        for walk in self.hops.to(peer):
            if walk == THE_TRAVELLER:
                self.here, self.seen = True, min(self.seen + JUMP, LAST)
                effects.append(Combine(TRAVELLER, {kept_slot(walk): 1.0}))
            effects += self.hops.give_up(walk)  # a rest may have arrived, and counts once at most
            if walk == THE_TRAVELLER:
                effects.append(Note("rerouted", walk=1, number=self.seen))
        return effects

    # -- leaving for good -----------------------------------------------------------------------------------------

    def _hand_over(self, context: Context) -> list[Effect]:
        """Once the last training is done: the travelling model, or what it has yet to take in."""
        if self.training or self.hops.leaving:
            return []
        if self.here:
            self.empty, gathered = True, self._gather(context)
            return gathered
        peers = [peer for peer in self.around.neighbours if peer not in self.cut.union(self.around.leaving)]
        if self.empty or not peers:
            return []
        self.empty = True
        rest = Visit(1, THE_REST)
        return [self.rule.rest(REST), *self.hops.send(rest, traveller_slot, context.random.choice(peers), context.now)]

    def _take_rest(self, event: Received) -> list[Effect]:
        new = event.sender not in self.rests and not self.empty
        self.rests.add(event.sender)
        take = [self.rule.take_rest(event.slot)] if new else []
        return [answer_to(event.sender, event.message), *take, Forget(event.slot)]


def begun(rule: TravellerRule, traveller: bool) -> list[Effect]:
    """The effects with which a run begins at a node."""
    return [*rule.begin(traveller), *([Record(AGGREGATE, 0, TRAVELLER)] if traveller else [])]


def training(rule: TravellerRule, node: int) -> list[Effect]:
    """The node's own model is trained, again and again."""
    return [Record(MEMBER, node, MODEL), rule.train()]


def visited(rule: TravellerRule, nodes: int, visit: int) -> list[Effect]:
    """A visit ends: what was learned here is in the travelling model."""
    return [*rule.gather(nodes), Note("counted", walk=1, number=visit), Record(AGGREGATE, visit, TRAVELLER)]


def answer_to(sender: int, message: Message) -> Effect:
    """The acknowledgement of a hop."""
    return Send(sender, Message(TAKEN, walk=message.walk, round=message.round))
