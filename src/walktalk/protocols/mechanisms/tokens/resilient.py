"""Walks where nodes and messages are lost, and nodes come and go: Algorithm 1 and Section 5 of the paper together.

A node is made of parts that each answer for one thing: `membership` (who lives, who aggregates), `hops` (no walk is
lost on the way), `guards` (what an arriving walk is worth), `mixing` (what is mixed), `handovers` (what goes to the
next aggregator), `keeper` (which walks are dead, and what is done about it). While nothing fails, the models are
exactly those of `plain`: the same trainings, the same steps, the same sums.
"""

from __future__ import annotations

from collections.abc import Iterable

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Message, Note, Record, Send
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
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.tokens.guards import LATE, PRIOR, Guard
from walktalk.protocols.mechanisms.tokens.handovers import LAST
from walktalk.protocols.mechanisms.tokens.heartbeats import LEAP, NOBODY
from walktalk.protocols.mechanisms.tokens.hops import ACK, NO_TERM, WALK, Token, answer_to, is_ticket_of, token_of
from walktalk.protocols.mechanisms.tokens.keeper import GUARD, Farewell, WalkKeeper, mixer_facts, remembered, resumed
from walktalk.protocols.mechanisms.tokens.membership import BEAT, TIMERS
from walktalk.protocols.mechanisms.tokens.rule import (
    Carried,
    Slots,
    copy_slot,
    forgotten,
    in_slot,
    kept_slot,
    moved,
    next_slot,
    walk_slot,
)

REMEMBERED = 20.0  # heartbeats that a node remembers which copies of walks came: longer than any message is repeated


class ResilientNode(WalkKeeper):
    """Trains the walks that visit a node and sends them on, whatever fails; the node that is elected also mixes."""

    __slots__ = ()

    def handle(self, event: Event, context: Context) -> list[Effect]:
        incidents = self.members.incidents
        self.members.resources = context.resources or self.members.resources
        effects = self._react(event, context)
        if self.members.claim.term_id != self.copies.term_id:
            effects += self._new_term(context)
        elif self.members.incidents != incidents:
            effects += self._watch_walks(context.now)
        return effects

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """Answer the sender, so that it need not keep the walk: what is no model is lost, and started again."""
        if message.kind == WALK:
            return [Send(sender, answer_to(token_of(message)))]
        token, _ = self.came.pop(message.round, (None, -1))  # a walk without its extras is none either
        return [Send(sender, answer_to(token))] if token is not None else []

    def has_work(self) -> bool:
        """Whether a walk is here; always, where lost walks are started again."""
        return self.guards or self.creates or bool(self.copies.here or self.copies.next or self.hops.leaving)

    def may_go(self) -> bool:
        """When it aggregates no more, and all walks that were here, and what it had aggregated, are with others."""
        return self.mixer is None and not (self.copies.here or self.copies.next or self.hops.leaving)

    def keepsake(self) -> bytes:
        """Whether there is a model in `LAST`, and the term."""
        return Farewell(self.trained, term=self.members.highest_term).short()

    def farewell(self) -> bytes:
        """What this node has to know to go on after it was stopped in order."""
        copies, members, leaving = self.copies, self.members, self.hops.leaving.values()
        here = tuple(token for walk, token in copies.here.items() if walk not in copies.next)
        mixer = mixer_facts(self.mixer) if self.mixer is not None else None
        walks = here, tuple(copies.next.values()), tuple(hop.token for hop in leaving)
        return Farewell(self.trained, *walks, members.claim, members.beat, mixer).encode()

    def _react(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received():
                return self._received(event, context)
            case Trained():
                return self._trained(event, context)
            case TimerFired(name):
                return self._timer(name, context)
            case Started(late=False):
                return self._start(context)
            case Started():  # its walk is long on its way, and somebody aggregates
                return self.members.rejoin(context.now)
            case Rejoined(memory):
                return self._rejoin(remembered(memory), context)
            case PeerLost(peer):
                effects = [*self.members.lost(peer, context.now), *self._reroute(self.hops.to(peer), context)]
                return effects + self.handovers.peer_died(peer, self.mixer, context)
            case PeerFound(peer):
                return self.members.found(peer, context.now)
            case NetworkChanged(around):
                return self._change(around, context)
            case Leaving():
                return [*self.members.leave(context.now), *self._hand_over(context)]

    def _hand_over(self, context: Context) -> list[Effect]:
        """This node leaves: send what it keeps for the next aggregator now."""
        if self.mixer is not None:  # that goes when this node steps down
            return []
        return [*self.handovers.send_own(None, context), *self.handovers.send_leftover(None, context)]

    def _start(self, context: Context) -> list[Effect]:
        """Lines 1 to 3: walk r (counted from 1) starts at node r − 1."""
        around, now = self.around, context.now
        effects = self.members.start(self.aggregator, now)
        first = self.members.claim.term_id
        self.copies.new_term(first)
        if self.members.leads:
            self.mixer = self._make_mixer(first)
            effects += [*self.mixer.begin_afresh(now), *self._watch_walks(now)]
        if around.node < self.walks:
            walk = around.node + 1
            slot = walk_slot(walk)
            token = Token(walk, first, 0, carried=Carried(state=self.rule.first_state))
            effects += (Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), *self._visit(token, context))
        return effects + self._wait_for_walks(now)

    def _rejoin(self, past: Farewell, context: Context) -> list[Effect]:
        """The node is back: after a death its walks are elsewhere or lost, after a stop in order they are here."""
        self.trained = past.trained
        self.rule.rejoined()
        kept: dict[Slots, tuple[Token, ...]] = {walk_slot: past.here, next_slot: past.next, kept_slot: past.leaving}
        dropped: list[Effect] = []
        for place, walks in kept.items():
            gone = {*range(1, self.walks + 1)} - {token.walk for token in walks}
            dropped += [effect for walk in sorted(gone) for effect in forgotten(walk, self.rule.extras, place)]
        if past.claim == NOBODY:
            return [*dropped, *self.members.rejoin(context.now, past.term), *self._wait_for_walks(context.now)]
        return [*dropped, *self._resume(past, context), *self._wait_for_walks(context.now)]

    def _resume(self, past: Farewell, context: Context) -> list[Effect]:
        """Go on where this node was when it left."""
        now, extras, led = context.now, self.hops.extras, past.mixer is not None
        effects = self.members.resume(past.claim, past.beat, led, now)
        self.copies.new_term(past.claim.term_id)
        if past.mixer is not None:
            self.mixer = resumed(past.mixer, self.walks, past.claim.term_id, Guard(self.times), self.rule, now)
            if self.mixer.latest:
                effects.append(Record(AGGREGATE, past.claim.term, copy_slot(self.mixer.latest)))
            effects += self._watch_walks(now)
        for token in (*past.here, *past.next):
            if token in past.next:
                effects += moved(token.walk, extras, next_slot, walk_slot)
            self.copies.accept(token, now)
            effects += [Record(MEMBER, token.walk, walk_slot(token.walk)), *self._visit(token, context)]
        for token in past.leaving:
            effects += self._send_on(token, kept_slot, context)
        return effects

    def _change(self, around: NetworkView, context: Context) -> list[Effect]:
        """Other neighbours from now on: walks on their way to one that is none any more go elsewhere."""
        self.around = self.handovers.around = around
        self.rule.changed(around)
        self.times.assumed = PRIOR * around.nodes * self.pace
        if self.lateness is not None:
            self.lateness.nodes = around.nodes
        gone, effects = self.members.change(around, context.now)
        for peer in gone:
            effects += self._reroute(self.hops.to(peer), context)
        return effects

    def _visit(self, token: Token, context: Context) -> list[Effect]:
        """A walk is in its slots: it is trained here, or runs on at once."""
        walk, carried = token.walk, token.carried
        if carried.jumps:
            return self._move_on(token, walk_slot, context)
        effects, state = self.rule.work(walk, carried.state, context.random)
        self.members.sightings.saw(walk, self.members.beat)  # one that was just started again is not missing
        self.copies.here[walk] = token if state == carried.state else token._replace(carried=Carried(state=state))
        self.begun[walk] = context.now
        return effects

    def _timer(self, name: str, context: Context) -> list[Effect]:
        if name in TIMERS:
            effects = self.members.timer(name, context.now)
            if name != BEAT:
                return effects
            return [*effects, *self._tidy(context), *self._look_for_lost_walks(context)]
        if name == GUARD:
            return self._look_for_lost_walks(context)
        if name == LATE:
            return self._create(context)
        walk = int(name.rpartition("/")[2])
        hop = self.hops.leaving.get(walk)
        if hop is None:
            return []
        return self.hops.again(walk) if hop.to in self.members.neighbours.living else self._reroute([walk], context)

    def _tidy(self, context: Context) -> list[Effect]:
        """Clean up at every beat, the node's own and the aggregator's, which may be the only one."""
        self.copies.forget_old(context.now, REMEMBERED * self.members.interval)
        return [*self.handovers.forget_own(context.now), *self._leave_out_the_silent(context)]

    def _leave_out_the_silent(self, context: Context) -> list[Effect]:
        """Neighbours that say nothing any more get no walks; what is on its way to them goes elsewhere."""
        gone, effects = self.members.silent(context.now)
        for peer in gone:
            effects += [Note("silent", peer=peer), *self._reroute(self.hops.to(peer), context)]
        return effects

    # -- walks come -----------------------------------------------------------------------------------------------

    def _received(self, event: Received, context: Context) -> list[Effect]:
        message, now = event.message, context.now
        if message.kind == BEAT:
            beat = self.members.beat
            effects = self.members.hear(event.sender, message.note, now)
            return effects if self.members.beat == beat else [*effects, *self._tidy(context)]
        effects = self.members.neighbours.sign_of_life(event.sender, now)
        if message.kind in self.hops.extras:
            self.parts.setdefault(self._known(message.round), {})[message.kind] = message.note
            return effects + self._if_whole(message.round, context)
        token = token_of(message)
        if message.kind == ACK:
            return effects + self.hops.acknowledged(token, event.sender, now)
        self._check(token)
        if token.walk > self.walks:
            return effects + self.handovers.comes(token, event.sender, self.mixer, context)
        if token.term_id[0] > self.members.claim.term:
            # Nobody here has heard of its aggregator. It is not answered, so it will come again, and a heartbeat before
            # it; one of a term that is forged will not.
            self.came.pop(token.walk, None)
            return effects + forgotten(token.walk, self.hops.extras, in_slot)
        self.came[token.walk] = (token, event.sender)
        return effects + self._if_whole(token.walk, context)

    def _check(self, token: Token) -> None:
        """Raise `ValueError` for a token that cannot be."""
        if not self.handovers.is_number(token.walk, token.term_id[1]):
            self._known(token.walk)
        if token.walk <= self.walks and not is_ticket_of(token.ticket, token.walk, self.walks):
            raise ValueError(f"walk {token.walk} has no ticket {token.ticket}")
        known = token.term_id[1] == NO_TERM[1] or self.around.knows(token.term_id[1])
        if not known or token.term_id[0] > self.members.claim.term + LEAP:
            raise ValueError(f"node {token.term_id[1]} does not aggregate in term {token.term_id[0]}")

    def _known(self, walk: int) -> int:
        if not 1 <= walk <= self.walks:
            raise ValueError(f"there is no walk {walk}")
        return walk

    def _if_whole(self, walk: int, context: Context) -> list[Effect]:
        """Acknowledge a walk that has come with all its extras; until then it will be sent again."""
        token, sender = self.came.get(walk, (None, -1))
        if token is None:
            return []
        labels, extras = self.parts.get(walk, {}), self.hops.extras
        if not self.copies.repeats(token) and any(labels.get(kind) != token.label for kind in extras):
            return []
        del self.came[walk]
        self.parts.pop(walk, None)
        return [Send(sender, answer_to(token)), *self._arrives(token, context)]

    def _arrives(self, token: Token, context: Context) -> list[Effect]:
        walk, copies, extras = token.walk, self.copies, self.hops.extras
        if copies.repeats(token):
            return forgotten(walk, extras, in_slot)
        never = self.mixer is not None and self.mixer.never_wrote(token)
        forged = token.term_id == copies.term_id and not self.members.believes(token.ticket, context.now)
        if copies.lags(token, self.hops.token(walk)) or never or forged:
            disputed = forged or copies.is_stale(token)
            return self.handovers.of_walk(token, in_slot, self.mixer, context, disputed)
        copies.accept(token, context.now)
        self.members.sightings.saw(walk, self.members.beat)
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        if walk in copies.here:
            copies.next[walk] = token
            return [*effects, *moved(walk, extras, in_slot, next_slot)]
        move = moved(walk, extras, in_slot, walk_slot)
        return [*effects, *move, Record(MEMBER, walk, walk_slot(walk)), *self._visit(token, context)]

    # -- walks are trained and go ---------------------------------------------------------------------------------

    def _trained(self, event: Trained, context: Context) -> list[Effect]:
        walk, now, extras = event.walk, context.now, self.hops.extras
        slot = walk_slot(walk)
        token = self.copies.here.pop(walk, None)
        newer = self.copies.next.pop(walk, None)
        if newer is not None:  # the copy that was trained is out of date
            begin = (*moved(walk, extras, next_slot, walk_slot), Record(MEMBER, walk, slot))
            return [*self._ends(token, event, context), *begin, *self._visit(newer, context)]
        if token is None:
            return forgotten(walk, extras, walk_slot)
        self._learn_pace(now - self.begun.pop(walk, now))
        mixer = self.mixer
        if mixer is not None and token.term_id[0] > mixer.term_id[0]:
            mixer = None  # somebody else aggregates, of whom this node has not heard yet
        if mixer is not None and not mixer.admits(token):
            late = mixer.readmits(token) and not self.rule.nodes_keep_notes
            learned = self.rule.learn(event, token.carried.state)[0] if late else []
            counts = [*learned, *mixer.readmit(token, slot, now)] if late else []
            return [*counts, *forgotten(walk, extras, walk_slot), Note("retired", walk=walk, number=token.ticket)]
        effects, state = self.rule.learn(event, token.carried.state)  # line 6
        if mixer is not None:
            effects += mixer.mix(token, now)
            token = mixer.stamped(walk)
            self.copies.remember(token, now)
        token = token._replace(carried=Carried(state=state))
        self.times.visit(walk, (token.term_id, token.generation), now)
        effects += (Record(MEMBER, walk, slot), Combine(LAST, {slot: 1.0}))
        self.trained = True
        effects += [*self._fork_if_few(walk, context), *self._move_on(token, walk_slot, context)]
        self.handovers.trained(walk)
        return effects

    def _ends(self, token: Token | None, event: Trained, context: Context) -> list[Effect]:
        """A later copy of this walk has come while it was trained."""
        if token is None or self.rule.nodes_keep_notes:
            number = token.ticket if token is not None else 0
            retired = Note("retired", walk=event.walk, number=number)
            return [*forgotten(event.walk, self.hops.extras, walk_slot), retired]
        learned, _ = self.rule.learn(event, token.carried.state)
        disputed = self.copies.is_stale(token)
        return [*learned, *self.handovers.of_walk(token.moved(), walk_slot, self.mixer, context, disputed)]

    def _take_back(self, token: Token, slot: str, context: Context) -> list[Effect]:
        walk, now, mixer = token.walk, context.now, self.mixer
        if mixer is None or walk in self.copies.here or walk in self.copies.next:
            return []
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        effects += [Combine(walk_slot(walk), {slot: 1.0}), Note("taken_back", walk=walk, number=token.ticket)]
        effects += mixer.mix(token, now)
        stamped = mixer.stamped(walk)
        self.copies.remember(stamped, now)
        self.members.sightings.saw(walk, self.members.beat)
        return [*effects, Record(MEMBER, walk, walk_slot(walk)), *self._move_on(stamped, walk_slot, context)]

    def _move_on(self, token: Token, at: Slots, context: Context) -> list[Effect]:
        """Lines 11 and 12, on the graph that is left."""
        me, (peers, degrees) = self.around.node, self.members.neighbours.row()
        to, carried = self.rule.step(me, peers, degrees, token.carried, context.random)
        if to != me:
            return self.hops.send(token.moved()._replace(carried=carried), at, to, context.now)
        stay = [] if at is walk_slot else moved(token.walk, self.hops.extras, at, walk_slot)
        return [*stay, *self._visit(token._replace(carried=carried._replace(jumps=0)), context)]

    def _reroute(self, walks: Iterable[int], context: Context) -> list[Effect]:
        """Send walks elsewhere that were on their way to a node that is dead."""
        effects: list[Effect] = []
        for walk in walks:
            hop = self.hops.leaving.pop(walk, None)
            if hop is None:  # one of the others was what is left of it, and it has begun again here with that
                continue
            effects.append(Note("rerouted", walk=walk, peer=hop.to))
            token = hop.token
            if walk <= self.walks:
                token = token._replace(carried=self.rule.turned_back(token.carried))
            effects += self._send_on(token, kept_slot, context)
            if self.handovers.last is not None and self.handovers.last[0].walk == walk:
                self.handovers.trained(walk)
        return effects

    def _send_on(self, token: Token, at: Slots, context: Context) -> list[Effect]:
        if token.walk <= self.walks:
            return self._move_on(token, at, context)
        return self.handovers.deliver(token, at, self.mixer, context)
