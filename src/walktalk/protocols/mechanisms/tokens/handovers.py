"""Handovers: what an aggregator that steps down had mixed, on its way to the one that aggregates now (`mixing`).

A handover travels like a walk, hop by hop and acknowledged, towards the neighbour that the aggregator's heartbeats
come from; nobody trains it. Its number is that of no walk: R + 1 and the node that steps down. What a walk of that part
has learned since it left goes the same way from wherever it is seen to be out of date, under a number above 2³⁰ that
tells its walk and, mostly, its ticket: two copies of a walk may be on their way at once, and must not end each other.
Walks that nodes keep notes of are not handed over: what they carry belongs to those notes.

The aggregator that it is meant for may be dead by then. So a node that steps down keeps its handover for a while, and
sends it again where yet another one aggregates; averaged in a second time, it still adds nothing that counts more than
once.

What is left of a walk that was lost with a node goes the same way: whoever passed it to that one still has its model,
if no other walk was trained there since (`LAST`). Where that node was the aggregator, it waits for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from walktalk.protocols.effects import Combine, Effect, Forget, Note, Send
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.tokens.hops import LARGEST, NO_TERM, Hops, Token, answer_to
from walktalk.protocols.mechanisms.tokens.membership import Membership
from walktalk.protocols.mechanisms.tokens.mixing import TermMixer, spare_slot
from walktalk.protocols.mechanisms.tokens.rule import NOTHING, Carried, Slots, copy_slot, forgotten, in_slot, kept_slot

OWN = "handover"  # the slot of what this node had mixed as an aggregator
LAST = "last"  # the model of the last walk that was trained here: what is left where every walk is lost
LEFTOVER = "leftover"  # that of a walk which went to an aggregator that is dead
KEPT = 40.0  # heartbeats that it is kept
ASTRAY = 4  # times as many hops as there are nodes: then it is given up
STRAYS = 2**30  # above all numbers of walks and of nodes
TOLD_APART = 64  # copies of one walk that can be on their way from one node at once, if their tickets or hops differ
DISPUTED = b"\1"  # what a walk carries that was ended because a later copy was said to be there
AGAIN = b"\3"  # what a handover carries that was sent before, to another: walks may have brought it all
LEFT = b"\2"  # what is left of one that was lost with a node: it may stand in for that one, and no more


@dataclass
class Handovers:
    """The handovers that one node sends, passes on and takes."""

    walks: int  # R
    around: NetworkView
    members: Membership
    hops: Hops[Token]
    take_back: Callable[[Token, str, Context], list[Effect]]  # a walk that was ended on a false word: it goes on
    nodes_keep_notes: bool = False  # whether nodes keep notes of walks (`NotingRule`)
    taken: set[tuple[int, int]] = field(default_factory=set)  # terms whose handover came to this aggregator
    own: Token | None = None  # this node's, while it is kept
    until: float = 0.0
    last: tuple[Token, int] | None = None  # the walk in `LAST`, as it left, and to whom
    leftover: Token | None = None

    def hand_over(self, mixer: TermMixer, context: Context) -> list[Effect]:
        """This node steps down: what came to it since the other began goes to the other; everything, if it leaves."""
        members = self.members
        since = context.now - members.beat * members.interval
        learned = mixer.updates if members.leaving or members.leads else mixer.updates_since(since)
        if not mixer.latest or learned <= 0 or self.nodes_keep_notes:
            return []
        handover = Token(self.walks + 1 + self.around.node, mixer.term_id, min(learned, LARGEST))
        self.own, self.until = handover, context.now + KEPT * members.interval
        kept = Combine(OWN, {copy_slot(mixer.latest): 1.0})
        return [kept] if members.leads else [kept, *self.send_own(None, context)]  # it may follow itself

    def send_own(self, mixer: TermMixer | None, context: Context) -> list[Effect]:
        """Send this node's handover to the aggregator, or mix it here; `mixer`: this node's, if it aggregates."""
        if self.own is None:
            return []
        handover, walk = self.own, self.own.walk
        self.own = handover._replace(carried=Carried(state=AGAIN))
        here = self.hops.give_up(walk) if mixer is not None and walk in self.hops.leaving else []  # it need not arrive
        kept = Combine(kept_slot(walk), {OWN: 1.0})
        return [*here, kept, *self.deliver(handover, kept_slot, mixer, context)]

    def trained(self, walk: int) -> None:
        """A walk was trained: its model is in `LAST` now, and it has left, unless it stays."""
        hop = self.hops.leaving.get(walk)
        self.last = (hop.token, hop.to) if hop is not None else None

    def peer_died(self, peer: int, mixer: TermMixer | None, context: Context) -> list[Effect]:
        """A neighbour is dead: if the last walk that was here went there, what it had learned until then goes on."""
        if self.last is None or self.last[1] != peer or self.nodes_keep_notes or self.last[0].term_id == NO_TERM:
            return []
        token, self.last = self._numbered(self.last[0], LEFT), None
        if peer == self.members.claim.node:
            self.leftover = token
            return [Combine(LEFTOVER, {LAST: 1.0})]
        return self._send_leftover(token, LAST, mixer, context)

    def send_leftover(self, mixer: TermMixer | None, context: Context) -> list[Effect]:
        """Another node aggregates: send it what was left of a walk that went to the one before."""
        token, self.leftover = self.leftover, None
        return [*self._send_leftover(token, LEFTOVER, mixer, context), Forget(LEFTOVER)] if token is not None else []

    def _send_leftover(self, token: Token, slot: str, mixer: TermMixer | None, context: Context) -> list[Effect]:
        if token.walk in self.hops.leaving:
            return []
        return [Combine(in_slot(token.walk), {slot: 1.0}), *self.deliver(token, in_slot, mixer, context)]

    def hand_over_spares(self, mixer: TermMixer, context: Context) -> list[Effect]:
        """This node steps down: what it kept of walks that did not come to it goes to the other."""
        effects: list[Effect] = []
        for spare in mixer.spares.values():
            token = self._numbered(spare, spare.carried.state)
            effects += self._send_leftover(token, spare_slot(spare.walk), None, context)
        return effects

    def forget_own(self, now: float) -> list[Effect]:
        """Forget this node's handover once it has been kept for long enough."""
        if self.own is None or now < self.until:
            return []
        self.own = None
        return [Forget(OWN)]

    def comes(self, token: Token, sender: int, mixer: TermMixer | None, context: Context) -> list[Effect]:
        """A handover arrives; `mixer`: this node's, if it aggregates."""
        answer: Effect = Send(sender, answer_to(token))
        taken = token.term_id in self.taken and token.walk <= STRAYS
        if taken or token.hop > ASTRAY * self.around.nodes or token.walk in self.hops.leaving:
            return [answer, Forget(in_slot(token.walk))]
        return [answer, *self.deliver(token, in_slot, mixer, context, sender)]

    def deliver(
        self, token: Token, at: Slots, mixer: TermMixer | None, context: Context, sender: int = -1
    ) -> list[Effect]:
        """A handover goes towards the aggregator, or is mixed in if this node is the aggregator.

        Where that would be back, it goes anywhere, and so it does every other time where it is on its way for too long:
        a liar's heartbeats make nodes believe that the aggregator is where the liar is. And it rests at every node
        then, for there may be none until one is elected. So does a handover that is sent again where no walk has come
        yet, nor was begun again: it may be old, and walks know better.
        """
        slot, towards = at(token.walk, ""), self.members.towards
        if mixer is not None and not mixer.latest and token.carried.state == AGAIN:
            return self.hops.wait(token, at, context.now, self.members.interval)
        if mixer is not None:
            return [*self._accept(token, slot, mixer, context), Forget(slot)]
        peers, _ = self.members.neighbours.row()
        if not peers:
            return [Forget(slot), Note("retired", walk=token.walk, number=token.ticket)]
        astray = token.hop > self.around.nodes
        if astray and at is not kept_slot:
            return self.hops.wait(token, at, context.now, self.members.interval)
        if (astray and token.hop % 2) or towards not in peers or towards == sender:
            towards = context.random.choice([peer for peer in peers if peer != sender] or peers)
        return self.hops.send(token.moved(), at, towards, context.now)

    def of_walk(
        self, token: Token, at: Slots, mixer: TermMixer | None, context: Context, disputed: bool = False
    ) -> list[Effect]:
        """A walk ends here, since another of its number is further, or of a later term: what it learned goes on.

        disputed: whether it ends on the word of another copy, or of a heartbeat, which the aggregator may know better.
        """
        slot = at(token.walk, "")
        gone = self._numbered(token, DISPUTED if disputed else b"")
        retired = Note("retired", walk=token.walk, number=token.ticket)
        if self.nodes_keep_notes or gone.walk in self.hops.leaving or token.term_id == NO_TERM or not token.hop:
            return [*forgotten(token.walk, self.hops.extras, at), retired]
        moved = (Combine(in_slot(gone.walk), {slot: 1.0}), Forget(slot))
        return [*moved, retired, *self.deliver(gone, in_slot, mixer, context)]

    def is_number(self, walk: int, node: int) -> bool:
        """Whether this is the number of a handover of this node, or of what is left of a walk."""
        return walk == self.walks + 1 + node or STRAYS < walk <= STRAYS + TOLD_APART * self.walks

    def _numbered(self, token: Token, why: bytes) -> Token:
        """The token of what is left of a walk: updates take the generation's place, hops count the way from here."""
        number = stray_number(token, self.walks)
        return token._replace(walk=number, hop=0, generation=token.hop, carried=Carried(state=why))

    def _accept(self, token: Token, slot: str, mixer: TermMixer, context: Context) -> list[Effect]:
        if self.nodes_keep_notes:  # nobody sends one
            return []
        if token.walk > STRAYS:
            number = (token.walk - STRAYS - 1) % self.walks + 1
            walk = token._replace(walk=number, hop=token.generation, generation=0, carried=NOTHING)
            why = token.carried.state
            if why == LEFT:
                return mixer.spare(walk._replace(carried=Carried(state=LEFT)), slot)
            back = self.take_back(walk, slot, context) if why == DISPUTED and mixer.admits(walk) else []
            if not back and mixer.readmits(walk):
                return mixer.readmit(walk, slot, context.now)
            return back or mixer.spare(walk, slot)
        if token.term_id in self.taken:
            return []
        self.taken.add(token.term_id)
        return mixer.inherit(token, slot, again=token.carried.state == AGAIN)


def stray_number(token: Token, walks: int) -> int:
    """The number under which what is left of a walk travels; its copies with another ticket or hop have others."""
    copy = (sum(token.term_id) + token.ticket // walks + token.hop) % TOLD_APART
    return STRAYS + copy * walks + token.walk
