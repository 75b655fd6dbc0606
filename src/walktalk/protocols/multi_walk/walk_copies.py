"""Which copies of walks a node has or has had, and what that says about one that arrives, by its pass (`walk_pass`).

| the node has | the walk is |
| --- | --- |
| seen a later ticket of the same reign, or the walk under the present reign while it is of another | retired |
| or had the same walk, as far on its way or further | retired: it is a repetition, or a copy that lags behind |
| the same walk, less far, in training | put aside; it goes on when that training ends, whose result is dropped |
| the same walk, less far, sent and not yet acknowledged | accepted, and the old one forgotten: this is its return |
| nothing of it, or another fork of its number and no aggregator has seen either | accepted |

What came is remembered for a while only: a copy with a ticket that nobody wrote would otherwise be the latest for ever.
That no update is counted twice is the aggregator's to see to, who knows its tickets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from walktalk.protocols.multi_walk.walk_pass import NO_REIGN, Pass


@dataclass
class Copies:
    """One node's."""

    here: dict[int, Pass] = field(default_factory=dict)  # walks in training
    next: dict[int, Pass] = field(default_factory=dict)  # walks that wait for the training of an older copy to end
    accepted: dict[int, Pass] = field(default_factory=dict)  # the copy of each walk that came last
    reign: tuple[int, int] = NO_REIGN  # the present one, as far as is known here
    since: dict[int, float] = field(default_factory=dict)  # when each walk was here last
    seen: dict[int, int] = field(default_factory=dict)  # the highest ticket of each walk, of that reign only

    def repeats(self, what: Pass) -> bool:
        """Whether this very copy came before: its acknowledgement was lost, or overtaken."""
        before = self.accepted.get(what.walk)
        return before is not None and before.place == what.place and related(what, before)

    def lags(self, what: Pass, leaving: Pass | None) -> bool:
        """Whether the node knows of a copy that is as far or further; `leaving`: one that it has just sent."""
        before, holding = self.accepted.get(what.walk), self.holding(what.walk, leaving)
        if before is not None and before.reign == what.reign and not further(what, before) and related(what, before):
            return True
        return (holding is not None and not further(what, holding)) or self.is_stale(what)

    def holding(self, walk: int, leaving: Pass | None) -> Pass | None:
        """The copy of a walk that is here, in whatever state."""
        return self.next.get(walk) or self.here.get(walk) or leaving

    def accept(self, what: Pass, now: float) -> None:
        """It stays."""
        self.remember(what, now)
        self.accepted[what.walk] = what

    def remember(self, what: Pass, now: float) -> None:
        """Its ticket was seen."""
        self.since[what.walk] = now
        if what.reign == self.reign:
            self.seen[what.walk] = max(what.ticket, self.seen.get(what.walk, 0))

    def forget_old(self, now: float, age: float) -> None:
        """Of walks that were not here for so long, which copy was."""
        for walk in [walk for walk, since in self.since.items() if since < now - age]:
            for memory in (self.since, self.seen, self.accepted):
                memory.pop(walk, None)

    def new_reign(self, reign: tuple[int, int]) -> None:
        """Another node aggregates: tickets of the past are remembered no more."""
        self.reign, self.seen = reign, {}

    def is_stale(self, what: Pass) -> bool:
        """Whether a later copy of the walk was seen under the present reign."""
        if what.reign == NO_REIGN or what.walk not in self.seen:
            return False
        return what.reign != self.reign or what.ticket < self.seen[what.walk]


def related(what: Pass, to: Pass) -> bool:
    """Whether how far each has come says which is the later; of two forks that no aggregator has seen it does not."""
    return what.reign != NO_REIGN or what.generation == to.generation


def further(what: Pass, than: Pass) -> bool:
    """Whether a copy is further on the same walk's way, or of another reign, which its aggregator will judge."""
    if what.reign != than.reign:
        return what.reign[0] >= than.reign[0]
    return (what.ticket, what.hop) > (than.ticket, than.hop)
