"""Copies of walks that a node knows of, and what that says about one that arrives; what an aggregator did with copies.


| the node has | the walk is |
| --- | --- |
| seen a later ticket of the same term, or the walk under the present term while it is of another | retired |
| or had the same walk, as far on its way or further | retired: it is a repetition, or a copy that lags behind |
| the same walk, less far, in training | put aside; it goes on when that training ends, whose result is dropped |
| the same walk, less far, sent and not yet acknowledged | accepted, and the old one forgotten: this is its return |
| nothing of it, or another fork of its number and no aggregator has seen either | accepted |

What came is remembered for a while only: a copy with a ticket that nobody wrote would otherwise be the latest for ever.
That no update is counted twice is the aggregator's to see to, who knows its tickets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from walktalk.protocols.mechanisms.tokens.hops import NO_TERM, Token
from walktalk.protocols.mechanisms.tokens.rule import share_of_a_walk


@dataclass
class KnownCopies:
    """The copies of walks that one node has, or had a while ago."""

    here: dict[int, Token] = field(default_factory=dict)  # walks in training
    next: dict[int, Token] = field(default_factory=dict)  # walks that wait for the training of an older copy to end
    accepted: dict[int, Token] = field(default_factory=dict)  # the copy of each walk that came last
    term_id: tuple[int, int] = NO_TERM  # the present one, as far as is known here
    since: dict[int, float] = field(default_factory=dict)  # when each walk was here last
    seen: dict[int, int] = field(default_factory=dict)  # the highest ticket of each walk, of that term only

    def repeats(self, token: Token) -> bool:
        """Whether this very copy came before: its acknowledgement was lost or overtaken."""
        before = self.accepted.get(token.walk)
        return before is not None and before.place == token.place and related(token, before)

    def lags(self, token: Token, leaving: Token | None) -> bool:
        """Whether the node knows of a copy that is as far or further; `leaving`: one that it has just sent."""
        before, holding = self.accepted.get(token.walk), self.holding(token.walk, leaving)
        if (
            before is not None
            and before.term_id == token.term_id
            and not further(token, before)
            and related(token, before)
        ):
            return True
        return (holding is not None and not further(token, holding)) or self.is_stale(token)

    def holding(self, walk: int, leaving: Token | None) -> Token | None:
        """The copy of a walk that is here, in whatever state."""
        return self.next.get(walk) or self.here.get(walk) or leaving

    def accept(self, token: Token, now: float) -> None:
        """A copy has come and stays."""
        self.remember(token, now)
        self.accepted[token.walk] = token

    def remember(self, token: Token, now: float) -> None:
        """Remember that a copy with this ticket was seen."""
        self.since[token.walk] = now
        if token.term_id == self.term_id:
            self.seen[token.walk] = max(token.ticket, self.seen.get(token.walk, 0))

    def forget_old(self, now: float, age: float) -> None:
        """Forget which copies came of walks that have not been here for so long."""
        for walk in [walk for walk, since in self.since.items() if since < now - age]:
            for memory in (self.since, self.seen, self.accepted):
                memory.pop(walk, None)

    def new_term(self, term_id: tuple[int, int]) -> None:
        """Another node aggregates: tickets of earlier terms are forgotten."""
        self.term_id, self.seen = term_id, {}

    def is_stale(self, token: Token) -> bool:
        """Whether a later copy of the walk was seen under the present term."""
        if token.term_id == NO_TERM or token.walk not in self.seen:
            return False
        return token.term_id != self.term_id or token.ticket < self.seen[token.walk]


def related(token: Token, to: Token) -> bool:
    """Whether tickets and hops say which copy is the later; of two forks unknown to any aggregator they do not."""
    return token.term_id != NO_TERM or token.generation == to.generation


def further(token: Token, than: Token) -> bool:
    """Whether a copy is further on the same walk's way, or of another term, which its aggregator will judge."""
    if token.term_id != than.term_id:
        return token.term_id[0] >= than.term_id[0]
    return (token.ticket, token.hop) > (than.ticket, than.hop)


# -- what came to an aggregator ---------------------------------------------------------------------------------------
#
# A walk may be sent twice, since its receiver seemed dead, or because somebody lies, and be trained by both: a copy
# that comes after another, with a ticket that is used up, is averaged in by its updates among all that came since it
# left. Copies with one ticket are together no more of the mean than a walk is, and each takes half of what is left of
# that at most, so that forged ones leave something to others.

REMEMBERED = 4096  # tickets whose copies are known, of all walks together
COPIES = 16  # with one ticket that count: each has half of the share that is left
BACK = 64  # visits of a walk whose other copies are still welcome, if there are not too many walks

Key: TypeAlias = tuple[int, tuple[int, int], int]  # walk, term and ticket: what tells it from those of other times


class Arrived(NamedTuple):
    """Copies of a walk that came with one ticket."""

    since: int = 0  # updates that had come here when it left from here; 0 where it did not
    hops: tuple[int, ...] = ()  # of each that came: another with as many is the same
    share: float = 0.0  # of the mean that they had, but for the first of this term

    def takes(self, hop: int) -> bool:
        """Whether a copy with so many hops has not come yet, and not too many others have."""
        return hop not in self.hops and len(self.hops) < COPIES


class ArrivedCopies(dict[Key, Arrived]):
    """All copies that came in one term, by walk and ticket."""

    def of(self, token: Token) -> Arrived | None:
        """The copies that came with the same ticket; None where nothing is known of it."""
        return self.get(_key(token))

    def has_room(self, token: Token) -> bool:
        """Whether there is room to remember that this copy came."""
        return _key(token) in self or len(self) < REMEMBERED

    def leaves(self, token: Token, updates: int, walks: int) -> None:
        """A walk leaves with a new ticket, after so many updates; of one that is long used up no copy is taken."""
        self[_key(token)] = Arrived(updates)
        back = min(BACK, REMEMBERED // walks // 2) * walks
        self.pop(_key(token._replace(ticket=token.ticket - back)), None)

    def comes(self, token: Token, share: float = 0.0) -> None:
        """A copy has come, and has this share of the mean."""
        arrived = self.of(token) or Arrived()
        self[_key(token)] = arrived._replace(hops=(*arrived.hops, token.hop), share=arrived.share + share)

    def share(self, token: Token, learned: int, updates: int, walks: int) -> float:
        """The share of the mean for a copy that came beside others.

        Args:
            token: the copy.
            learned: how many updates it brings.
            updates: that have come to the aggregator.
            walks: R; copies with one ticket have 1/R together.
        """
        arrived = self.of(token) or Arrived()
        return min(learned / (updates - arrived.since + learned), (share_of_a_walk(walks) - arrived.share) / 2)


def _key(token: Token) -> Key:
    return token.walk, token.term_id, token.ticket
