"""Keeps walks from dying out: how a node notices that walks are lost, and begins them again.

`resilient` has the rest: how walks come, are trained and go. The aggregator mixes (`mixing`) and, as a guard, looks for
walks that nobody has had for long (`heartbeats.Sightings`) or that are away for longer than any (`guards`); without a
centre every node judges by its own count (`guards.Headcount`) or its own clock (`guards.Lateness`).
"""

from __future__ import annotations

import json
import struct
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Note, Record, SetTimer
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import Arrivals
from walktalk.protocols.mechanisms.tokens.guards import (
    HARDLY_EVER,
    LATE,
    PRIOR,
    RARELY,
    Arrived,
    Guard,
    Headcount,
    KnownCopies,
    Lateness,
    ReturnTimes,
)
from walktalk.protocols.mechanisms.tokens.handovers import LAST, Handovers
from walktalk.protocols.mechanisms.tokens.heartbeats import NOBODY, Claim, Score, Sightings, TicketLimit
from walktalk.protocols.mechanisms.tokens.hops import NO_TERM, Hops, Token
from walktalk.protocols.mechanisms.tokens.membership import FIRST, Membership
from walktalk.protocols.mechanisms.tokens.mixing import GivenUp, TermMixer
from walktalk.protocols.mechanisms.tokens.rule import Carried, WalkRule, walk_slot

GUARD = "guard"  # timer: look for lost walks


class WalkKeeper(Machine):
    """What a node of walks knows, and how it notices lost walks and begins them again."""

    __slots__ = (
        "aggregator",
        "around",
        "begun",
        "came",
        "copies",
        "count",
        "guard",
        "handovers",
        "hops",
        "lateness",
        "members",
        "mixer",
        "pace",
        "parts",
        "rule",
        "times",
        "trained",
        "visited",
        "walks",
    )

    def __init__(
        self, around: NetworkView, walks: int, aggregator: int, heartbeat: float, guard: str, rule: WalkRule
    ) -> None:
        self.around, self.walks, self.aggregator, self.guard = around, walks, aggregator, guard
        self.rule = rule
        self.came: dict[int, tuple[Token, int]] = {}  # walks that wait for their extras, and who sent them
        self.parts: dict[int, dict[str, bytes]] = {}  # walk -> kinds of extras that came, with their labels
        sightings = Sightings(walks if self.guards else 0, self._holds)
        self.members = Membership(around, heartbeat, sightings, TicketLimit(self._highest_ticket, walks))
        self.hops: Hops[Token] = Hops(Arrivals(heartbeat, 0.0), rule.extras)
        self.pace, self.visited = heartbeat, False  # what a visit takes, and whether there was one in this life
        self.trained = False  # whether there is a model in `LAST`, of this life or an earlier one
        self.begun: dict[int, float] = {}  # when the visits of now began
        self.times = ReturnTimes(PRIOR * around.nodes * heartbeat)
        self.count = Headcount(walks, self.times) if guard == "decentralized" else None
        self.lateness = Lateness(around.nodes, walks) if guard in ("average_crossing", "create_if_late") else None
        self.mixer: TermMixer | None = None
        self.copies = KnownCopies()
        self.handovers = Handovers(walks, around, self.members, self.hops, self._take_back, rule.nodes_keep_notes)

    @abstractmethod
    def _visit(self, token: Token, context: Context) -> list[Effect]:
        """A walk is in its slots: it is trained here, or runs on at once."""

    @abstractmethod
    def _take_back(self, token: Token, slot: str, context: Context) -> list[Effect]:
        """A walk that was ended elsewhere has the right ticket, as this aggregator knows: it goes on from here."""

    @property
    def guards(self) -> bool:
        """Whether the aggregator looks for lost walks."""
        return self.guard == "aggregator"

    @property
    def creates(self) -> bool:
        """Whether a node begins a walk by itself when none has come for too long."""
        return self.guard == "create_if_late"

    def _holds(self, walk: int) -> bool:
        return self.copies.holding(walk, self.hops.token(walk)) is not None

    # -- the aggregator -------------------------------------------------------------------------------------------

    def _make_mixer(self, name: tuple[int, int]) -> TermMixer:
        return TermMixer(self.walks, name, Guard(self.times), self.rule)

    def _learn_pace(self, seconds: float) -> None:
        """Learn how long a visit takes here: with the number of nodes this says what return times to expect."""
        self.pace += (seconds - self.pace) * (1 / 8 if self.visited else 1.0)
        self.visited = True
        self.times.assumed, self.times.pace = PRIOR * self.around.nodes * self.pace, self.pace

    def _highest_ticket(self) -> int:
        return max(self.mixer.tickets.values(), default=0) if self.mixer is not None else 0

    def _new_term(self, context: Context) -> list[Effect]:
        """Another node aggregates, or this one does: tickets of earlier terms are forgotten."""
        effects: list[Effect] = []
        now, before = context.now, self.mixer
        self.copies.new_term(self.members.claim.term_id)
        if before is not None:
            self.mixer = None
            stepped_down = Note("stepped_down", number=before.term_id[0])
            effects += [*self.handovers.hand_over(before, context), *self.handovers.hand_over_spares(before, context)]
            effects += [*before.end(), stepped_down]
        elif not self.members.leads:
            effects += self.handovers.send_own(None, context)
        if self.members.leads:
            self.members.incident_at = now  # there was an election, so a node has failed: walks may be lost with it
            self.mixer = self._make_mixer(self.copies.term_id)
            self.mixer.await_walks(now)
            self.handovers.taken.clear()  # in an earlier term of this node, if at all
            effects += [*self.handovers.send_own(self.mixer, context), *self._watch_walks(now)]
        return effects + self.handovers.send_leftover(self.mixer, context)

    def _watch_walks(self, now: float) -> list[Effect]:
        if not self.guards or self.mixer is None:
            return []
        return [SetTimer(GUARD, self.mixer.guard.next_check(now, self._chance(now)))]

    def _chance(self, now: float) -> Callable[[int, float], float]:
        """How often a living walk may be taken for lost because it is away for so long."""
        members, seen = self.members, self.members.sightings

        def of(walk: int, left: float) -> float:
            alive = now - seen.age(walk, members.beat) * members.interval if seen.is_known(walk) else left
            if max(left, alive) <= members.incident_at:
                return RARELY
            # Somebody has it, or will soon be known to have had it; before news of it can have come, few return times
            # are known as well, and those of walks that stayed where they were would speak for all.
            return 0.0 if seen.is_known(walk) or now < left + FIRST * members.interval else HARDLY_EVER

        return of

    def _unseen(self, mixer: TermMixer) -> list[int]:
        """Walks that nobody has had for longer than news takes to come here."""
        members, later = self.members, mixer.term_id[0] > 1
        return [walk for walk in mixer.everyone() if members.sightings.unseen(walk, members.beat, awaited=later)]

    def _look_for_lost_walks(self, context: Context) -> list[Effect]:
        mixer, now = self.mixer, context.now
        if mixer is None or not self.guards:
            return []
        effects: list[Effect] = []
        for walk in sorted({*mixer.guard.overdue(now, self._chance(now)), *self._unseen(mixer)}):
            if self._holds(walk):
                mixer.guard.leaves(walk, now)  # it is here: a queue, not a loss
            else:
                effects += self._restart(mixer, walk, context)
        return [*effects, *self._watch_walks(now)]

    def _restart(self, mixer: TermMixer, walk: int, context: Context) -> list[Effect]:
        effects = mixer.restart(walk, LAST if self.trained else INITIAL, context.now)
        token = mixer.stamped(walk)
        self.copies.remember(token, context.now)
        return [*effects, Record(MEMBER, walk, walk_slot(walk)), *self._visit(token, context)]

    # -- the guard without a centre -------------------------------------------------------------------------------

    def _fork_if_few(self, walk: int, context: Context) -> list[Effect]:
        """A walk has visited: where too few seem to be alive, another is forked from it."""
        now, random = context.now, context.random
        if self.count is not None:
            lost = self.count.missing(walk, now)
            return self._fork(lost, walk_slot(walk), context) if lost and random.random() * self.walks < 1.0 else []
        if self.lateness is None:
            return []
        crossed = self.lateness.crossed(now, self.pace)
        if self.creates:
            return self._wait_for_walks(now)
        lost = self._most_missed(walk, context) if crossed and self.lateness.bears(random) else 0
        return self._fork(lost, walk_slot(walk), context) if lost else []

    def _wait_for_walks(self, now: float) -> list[Effect]:
        """Wait for walks from now on, until one comes or it is too late."""
        if self.lateness is None or not self.creates:
            return []
        self.lateness.last = now
        return [SetTimer(LATE, self.lateness.limit(self.pace))]

    def _create(self, context: Context) -> list[Effect]:
        """No walk has been here for too long: one may be begun here."""
        again = self._wait_for_walks(context.now)
        if self.lateness is None or self.copies.here or not self.lateness.bears(context.random):
            return again
        return [*again, *self._fork(self._most_missed(0, context), LAST if self.trained else INITIAL, context)]

    def _most_missed(self, visiting: int, context: Context) -> int:
        """The walk that was here longest ago, or one of those that never were; 0 if there is no other."""
        left, dice = self.times.left, context.random
        others = [walk for walk in range(1, self.walks + 1) if walk != visiting and not self._holds(walk)]
        return min(others, key=lambda walk: (left[walk][0] if walk in left else -1.0, dice.random()), default=0)

    def _fork(self, lost: int, model: str, context: Context) -> list[Effect]:
        """Begin a new walk under the number of one that seems to be lost."""
        if not lost or self._holds(lost):
            return []
        self.times.left[lost] = (context.now, NO_TERM)  # a replacement goes out: it counts as seen now
        slot = walk_slot(lost)
        made = (Combine(slot, {model: 1.0}), Record(MEMBER, lost, slot))
        token = Token(lost, NO_TERM, 0, generation=context.random.getrandbits(31))  # told from others of its number
        return [Note("forked", walk=lost), *made, *self._visit(token, context)]


# -- What a node that left in order must know to go on: the walks that were with it, and who aggregated ---------------
# Where all nodes are stopped and started again, nothing is lost: walks that nobody took any more are in the
# checkpoints of those that had them last, and the aggregator goes on with the tickets that it wrote. A node that died
# knows nothing of this: its checkpoint is older than its death, and its walks are elsewhere by then. It knows the
# term: where all nodes died at once, the next aggregator's is a later one.

TRAINED = b"\1"  # what a keepsake begins with where there is a model of an earlier visit
BY_WALK = ("tickets", "generations")  # numbers that an aggregator has of each walk
_TERM = struct.Struct("<I")


class Farewell(NamedTuple):
    """What a node knew when it was stopped in order, or when it died."""

    trained: bool = False  # whether there is a model of an earlier visit
    here: tuple[Token, ...] = ()  # walks in training
    next: tuple[Token, ...] = ()  # walks that waited for the training of an older copy to end
    leaving: tuple[Token, ...] = ()  # walks that were sent, and that nobody has taken
    claim: Claim = NOBODY
    beat: int = 0
    mixer: dict[str, Any] | None = None  # of the aggregator, `mixer_facts`
    term: int = 0  # the highest that was known

    def encode(self) -> bytes:
        """Bytes for a checkpoint, of a node that stops in order."""
        walks = {name: [_said(token) for token in getattr(self, name)] for name in ("here", "next", "leaving")}
        claim = [self.claim.term, list(self.claim.score), self.claim.rank]
        content = {**walks, "claim": claim, "beat": self.beat, "reign": self.mixer}
        return (TRAINED if self.trained else b"\0") + json.dumps(content).encode()

    def short(self) -> bytes:
        """Bytes for a checkpoint of a node that may die: whether there is a model, and the term."""
        return (TRAINED if self.trained else b"\0") + _TERM.pack(self.term)


def remembered(memory: bytes) -> Farewell:
    """Reads either kind of bytes; those of a node that died say only whether there is a model, and the term."""
    trained = memory[:1] == TRAINED
    if len(memory) <= 1 + _TERM.size:
        return Farewell(trained, term=_TERM.unpack(memory[1:])[0] if len(memory) > _TERM.size else 0)
    content = json.loads(memory[1:])
    here, coming, leaving = (tuple(_token(said) for said in content[name]) for name in ("here", "next", "leaving"))
    term, score, rank = content["claim"]
    claim = Claim(term, Score(*score), rank)
    return Farewell(trained, here, coming, leaving, claim, content["beat"], content["reign"], term)


def mixer_facts(mixer: TermMixer) -> dict[str, Any]:
    """What an aggregator knows, as JSON can say it."""
    counts = {"latest": mixer.latest, "updates": mixer.updates, "left": mixer.left, "awaited": sorted(mixer.awaited)}
    by_walk = {name: list(getattr(mixer, name).items()) for name in BY_WALK}
    met = [[walk, *name, ticket, *came] for (walk, name, ticket), came in mixer.met.items()]
    missing = [[walk, *given_up] for walk, given_up in mixer.missing.items()]
    spares = [_said(token) for token in mixer.spares.values()]
    return {**counts, **by_walk, "missing": missing, "met": met, "spares": spares}


def resumed(
    facts: dict[str, Any], walks: int, name: tuple[int, int], guard: Guard, rule: WalkRule, now: float
) -> TermMixer:
    """Reads what `mixer_facts` wrote: the term goes on, and waits for all its walks from now on."""
    tickets, generations = (_numbers(facts.get(key, [])) for key in BY_WALK)
    mixer = TermMixer(walks, name, guard, rule, facts["latest"], tickets, generations, facts["updates"])
    mixer.left = facts.get("left", 1.0)
    mixer.awaited = {int(walk) for walk in facts.get("awaited", [])}
    mixer.missing = {int(walk): GivenUp(*map(int, said)) for walk, *said in facts.get("missing", [])}
    met = facts.get("met", [])
    for walk, term, node, ticket, since, hops, share in met:
        mixer.met[walk, (term, node), ticket] = Arrived(since, tuple(hops), share)
    mixer.spares = {token.walk: token for token in map(_token, facts.get("spares", []))}
    mixer.visits.append((now, mixer.updates))
    mixer.await_walks(now)
    return mixer


def _numbers(said: list[list[int]]) -> dict[int, int]:
    """A mapping of walks to numbers, from JSON."""
    return {int(walk): int(number) for walk, number in said}


def _said(token: Token) -> list[Any]:
    return [token.walk, list(token.term_id), token.ticket, token.hop, token.generation, token.carried.state.hex()]


def _token(said: list[Any]) -> Token:
    walk, (term, leader), ticket, hop, generation, more = said
    return Token(walk, (term, leader), ticket, hop, generation, Carried(state=bytes.fromhex(more)))
