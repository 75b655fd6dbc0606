"""What another part of a split network learned, on its way to the one aggregator that remains (`aggregation`).

A legacy travels like a walk, hop by hop and acknowledged, towards the neighbour that the aggregator's heartbeats come
from; nobody trains it. Its number is that of no walk: R + 1 and the node that steps down. What a walk of that part has
learned since it left goes the same way from wherever it is seen to be out of date, under a number above 2³⁰ that tells
its walk and, mostly, its ticket: two copies of a walk may be on their way at once, and must not end each other.
Walks that nodes keep notes of have no legacies: what they carry belongs to those notes.

The aggregator that it is meant for may be dead by then. So who steps down keeps its legacy for a while, and sends it
again where yet another one aggregates; averaged in a second time, it still adds nothing that counts more than once.

What is left of a walk that was lost with a node goes the same way: whoever passed it to that one still has its model,
if no other walk was trained there since (`LAST`). Where that node was the aggregator, it waits for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from walktalk.protocols.effects import Combine, Effect, Forget, Note, Send
from walktalk.protocols.machine import Outside, Surroundings
from walktalk.protocols.multi_walk.aggregation import Reign, copy_slot, spare_slot
from walktalk.protocols.multi_walk.hops import Hops
from walktalk.protocols.multi_walk.membership import Membership
from walktalk.protocols.multi_walk.visits import NOTHING, Carried, Slots, forgotten, in_slot, kept_slot
from walktalk.protocols.multi_walk.walk_pass import LARGEST, NO_REIGN, Pass, answer_to

OWN = "legacy"  # the slot of what this node's reign left
LAST = "last"  # the model of the last walk that was trained here: what is left where every walk is lost
REMAINS = "remains"  # that of a walk which went to an aggregator that is dead
KEPT = 40.0  # heartbeats that it is kept
ASTRAY = 4  # times as many hops as there are nodes: then it is given up
STRAYS = 2**30  # above all numbers of walks and of nodes
TOLD_APART = 64  # copies of one walk that can be on their way from one node at once, if their tickets or hops differ
DISPUTED = b"\1"  # what a walk carries that was ended because a later copy was said to be there
AGAIN = b"\3"  # what a legacy carries that was sent before, to another: walks may have brought it all
LEFT = b"\2"  # what is left of one that was lost with a node: it may stand in for that one, and no more


@dataclass
class Legacies:
    """One node's part of it."""

    walks: int  # R
    around: Surroundings
    members: Membership
    hops: Hops
    take_back: Callable[[Pass, str, Outside], list[Effect]]  # a walk that was ended on a false word: it goes on
    noted: bool = False  # whether nodes keep notes of walks (`Visiting.noted`)
    taken: set[tuple[int, int]] = field(default_factory=set)  # reigns whose legacy came to this node's
    own: Pass | None = None  # this node's, while it is kept
    until: float = 0.0
    last: tuple[Pass, int] | None = None  # the walk in `LAST`, as it left, and to whom
    remains: Pass | None = None

    def bequeath(self, reign: Reign, outside: Outside) -> list[Effect]:
        """This node steps down: what came to it since the other began goes to the other; all, where it leaves."""
        members = self.members
        since = outside.now - members.beat * members.interval
        learned = reign.updates if members.leaving or members.leads else reign.updates_since(since)
        if not reign.latest or learned <= 0 or self.noted:
            return []
        legacy = Pass(self.walks + 1 + self.around.node, reign.name, min(learned, LARGEST))
        self.own, self.until = legacy, outside.now + KEPT * members.interval
        kept = Combine(OWN, {copy_slot(reign.latest): 1.0})
        return [kept] if members.leads else [kept, *self.send_own(None, outside)]  # it may follow itself

    def send_own(self, reign: Reign | None, outside: Outside) -> list[Effect]:
        """To the aggregator of now, who may be this node, with this reign."""
        if self.own is None:
            return []
        legacy, walk = self.own, self.own.walk
        self.own = legacy._replace(carried=Carried(more=AGAIN))
        here = self.hops.give_up(walk) if reign is not None and walk in self.hops.leaving else []  # it need not arrive
        kept = Combine(kept_slot(walk), {OWN: 1.0})
        return [*here, kept, *self.deliver(legacy, kept_slot, reign, outside)]

    def trained(self, walk: int) -> None:
        """This walk is in `LAST` now, and has left, unless it stays."""
        hop = self.hops.leaving.get(walk)
        self.last = (hop.what, hop.to) if hop is not None else None

    def bereaved(self, peer: int, reign: Reign | None, outside: Outside) -> list[Effect]:
        """A neighbour is dead: if the last walk that was here went there, what it had learned by then goes on."""
        if self.last is None or self.last[1] != peer or self.noted or self.last[0].reign == NO_REIGN:
            return []
        what, self.last = self._numbered(self.last[0], LEFT), None
        if peer == self.members.claim.node:
            self.remains = what
            return [Combine(REMAINS, {LAST: 1.0})]
        return self._send_remains(what, LAST, reign, outside)

    def send_remains(self, reign: Reign | None, outside: Outside) -> list[Effect]:
        """Another node aggregates, maybe this one, with this reign."""
        what, self.remains = self.remains, None
        return [*self._send_remains(what, REMAINS, reign, outside), Forget(REMAINS)] if what is not None else []

    def _send_remains(self, what: Pass, slot: str, reign: Reign | None, outside: Outside) -> list[Effect]:
        if what.walk in self.hops.leaving:
            return []
        return [Combine(in_slot(what.walk), {slot: 1.0}), *self.deliver(what, in_slot, reign, outside)]

    def hand_on(self, reign: Reign, outside: Outside) -> list[Effect]:
        """This node steps down: what it has kept of walks that did not come to it goes to the other."""
        effects: list[Effect] = []
        for spare in reign.spares.values():
            what = self._numbered(spare, spare.carried.more)
            effects += self._send_remains(what, spare_slot(spare.walk), None, outside)
        return effects

    def forget_own(self, now: float) -> list[Effect]:
        """Once it has been kept for long enough."""
        if self.own is None or now < self.until:
            return []
        self.own = None
        return [Forget(OWN)]

    def comes(self, what: Pass, sender: int, reign: Reign | None, outside: Outside) -> list[Effect]:
        """One arrives; `reign`: this node's, if it aggregates."""
        answer: Effect = Send(sender, answer_to(what))
        taken = what.reign in self.taken and what.walk <= STRAYS
        if taken or what.hop > ASTRAY * self.around.nodes or what.walk in self.hops.leaving:
            return [answer, Forget(in_slot(what.walk))]
        return [answer, *self.deliver(what, in_slot, reign, outside, sender)]

    def deliver(self, what: Pass, at: Slots, reign: Reign | None, outside: Outside, sender: int = -1) -> list[Effect]:
        """One goes towards the aggregator, or is taken by it.

        Where that would be back, it goes anywhere, and so it does every other time where it is on its way for too long:
        who lies about heartbeats makes nodes believe that the aggregator is where he is. And it rests at every node
        then, for there may be none until one is elected. So does a legacy that is sent again where no walk has come
        yet, nor was begun again: it may be old, and walks know better.
        """
        slot, towards = at(what.walk, ""), self.members.towards
        if reign is not None and not reign.latest and what.carried.more == AGAIN:
            return self.hops.wait(what, at, outside.now, self.members.interval)
        if reign is not None:
            return [*self._take(what, slot, reign, outside), Forget(slot)]
        peers, _ = self.members.row()
        if not peers:
            return [Forget(slot), Note("retired", walk=what.walk, number=what.ticket)]
        astray = what.hop > self.around.nodes
        if astray and at is not kept_slot:
            return self.hops.wait(what, at, outside.now, self.members.interval)
        if (astray and what.hop % 2) or towards not in peers or towards == sender:
            towards = outside.random.choice([peer for peer in peers if peer != sender] or peers)
        return self.hops.send(what.moved(), at, towards, outside.now)

    def of_walk(
        self, what: Pass, at: Slots, reign: Reign | None, outside: Outside, disputed: bool = False
    ) -> list[Effect]:
        """A walk ends here, since another of its number is further, or of a later reign: what it learned goes on.

        disputed: whether it ends on the word of another copy, or of a heartbeat, which the aggregator may know better.
        """
        slot = at(what.walk, "")
        gone = self._numbered(what, DISPUTED if disputed else b"")
        retired = Note("retired", walk=what.walk, number=what.ticket)
        if self.noted or gone.walk in self.hops.leaving or what.reign == NO_REIGN or not what.hop:
            return [*forgotten(what.walk, self.hops.luggage, at), retired]
        moved = (Combine(in_slot(gone.walk), {slot: 1.0}), Forget(slot))
        return [*moved, retired, *self.deliver(gone, in_slot, reign, outside)]

    def is_number(self, walk: int, node: int) -> bool:
        """Whether this is the number of a legacy of this node, or of a walk of it."""
        return walk == self.walks + 1 + node or STRAYS < walk <= STRAYS + TOLD_APART * self.walks

    def _numbered(self, what: Pass, why: bytes) -> Pass:
        """Its updates are counted where no generation is needed any more; from here on hops are of the way alone."""
        number = stray_number(what, self.walks)
        return what._replace(walk=number, hop=0, generation=what.hop, carried=Carried(more=why))

    def _take(self, what: Pass, slot: str, reign: Reign, outside: Outside) -> list[Effect]:
        if self.noted:  # nobody sends one
            return []
        if what.walk > STRAYS:
            number = (what.walk - STRAYS - 1) % self.walks + 1
            walk = what._replace(walk=number, hop=what.generation, generation=0, carried=NOTHING)
            why = what.carried.more
            if why == LEFT:
                return reign.spare(walk._replace(carried=Carried(more=LEFT)), slot)
            back = self.take_back(walk, slot, outside) if why == DISPUTED and reign.admits(walk) else []
            if not back and reign.readmits(walk):
                return reign.readmit(walk, slot, outside.now)
            return back or reign.spare(walk, slot)
        if what.reign in self.taken:
            return []
        self.taken.add(what.reign)
        return reign.inherit(what, slot, again=what.carried.more == AGAIN)


def stray_number(what: Pass, walks: int) -> int:
    """What is left of a walk goes under this number; other copies of it, with another ticket or hop, under others."""
    copy = (sum(what.reign) + what.ticket // walks + what.hop) % TOLD_APART
    return STRAYS + copy * walks + what.walk
