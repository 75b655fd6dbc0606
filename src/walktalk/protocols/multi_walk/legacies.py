"""What another part of a split network learned, on its way to the one aggregator that remains (`aggregation`).

A legacy travels like a walk, hop by hop and acknowledged, towards the neighbour that the aggregator's heartbeats come
from; nobody trains it. Its number is that of no walk: R + 1 and the node that steps down. Walks with luggage have no
legacies: what they carry belongs to what nodes noted of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from walktalk.protocols.effects import Combine, Effect, Forget, Note, Send
from walktalk.protocols.machine import Outside, Surroundings
from walktalk.protocols.multi_walk.aggregation import Reign, copy_slot
from walktalk.protocols.multi_walk.hops import Hops
from walktalk.protocols.multi_walk.membership import Membership
from walktalk.protocols.multi_walk.visits import Slots, in_slot, kept_slot
from walktalk.protocols.multi_walk.walk_pass import LARGEST, Pass, answer_to


@dataclass
class Legacies:
    """One node's part of it."""

    walks: int  # R
    around: Surroundings
    members: Membership
    hops: Hops
    taken: set[tuple[int, int]] = field(default_factory=set)  # reigns whose legacy came to this node's

    def bequeath(self, reign: Reign, outside: Outside) -> list[Effect]:
        """This node steps down: what came to it since the other began goes to the other; all, where it leaves."""
        members = self.members
        since = outside.now - members.beat * members.interval
        learned = reign.updates if members.leaving else reign.updates_since(since)
        if not reign.latest or learned <= 0 or self.hops.luggage or members.leads:
            return []
        legacy = Pass(self.walks + 1 + self.around.node, reign.name, min(learned, LARGEST))
        kept = Combine(kept_slot(legacy.walk), {copy_slot(reign.latest): 1.0})
        return [kept, *self.deliver(legacy, kept_slot, None, outside)]

    def comes(self, what: Pass, sender: int, reign: Reign | None, outside: Outside) -> list[Effect]:
        """One arrives; `reign`: this node's, if it aggregates."""
        answer: Effect = Send(sender, answer_to(what))
        if what.reign in self.taken or what.hop > 2 * self.around.nodes or what.walk in self.hops.leaving:
            return [answer, Forget(in_slot(what.walk))]
        return [answer, *self.deliver(what, in_slot, reign, outside)]

    def deliver(self, what: Pass, at: Slots, reign: Reign | None, outside: Outside) -> list[Effect]:
        """One goes towards the aggregator, or is taken by it."""
        slot, towards = at(what.walk, ""), self.members.towards
        if reign is not None:
            self.taken.add(what.reign)
            return [*reign.inherit(what, slot), Forget(slot)]
        peers, _ = self.members.row()
        if not peers:
            return [Forget(slot), Note("retired", walk=what.walk, number=what.ticket)]
        return self.hops.send(what.moved(), at, towards if towards in peers else peers[0], outside.now)
