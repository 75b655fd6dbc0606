"""Up to which heartbeat each walk was in somebody's hands: how the aggregator knows in a few beats that one is lost.

A living walk is always with some node: in training, waiting, or sent and not yet acknowledged. Every heartbeat that a
node passes on says, walk by walk, at which of the aggregator's beats somebody is known to have had it last; nodes take
the greater of what they hear and what they see. So the news travel with the heartbeats that there are anyway, one hop
towards the aggregator with every beat, and a walk of which nothing is heard for longer than that takes is lost: however
long its trainings are, how many walks there are, and how seldom they come by. The depth of the network, which says how
long news take, is found out in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from walktalk.protocols.arrivals import Arrivals

STRETCH = 4  # beats for which what was said of depths is remembered at least


class Sightings:
    """What one node knows, all of it about the present aggregator's beats."""

    __slots__ = ("_deepest", "_gaps", "_heard", "_holds", "_stretch", "beats", "depth")

    def __init__(self, walks: int, holds: Callable[[int], bool]) -> None:
        """walks: how many there are, 0 where nobody asks. holds: whether a walk, counted from 1, is here."""
        self._holds = holds
        self.beats = [0] * walks  # by walk: the latest beat at which somebody had it
        self.new_reign()

    def new_reign(self) -> None:
        """Another node aggregates, and counts from 1 again."""
        self.beats = [0] * len(self.beats)
        self.depth = 0  # this node's hops from the aggregator
        self._deepest = (0, 0)  # the most hops that were heard of, in this stretch of beats and in the one before
        self._stretch = 0
        self._heard = [0] * len(self.beats)  # the beat at which the news came here
        self._gaps = Arrivals(1.0, 0.0)  # beats from news to news: more than one where messages are lost

    def resume(self, beat: int) -> None:
        """The same reign goes on, at this beat: nothing is missed yet."""
        self.new_reign()
        self.beats = [beat] * len(self.beats)
        self._heard = list(self.beats)

    def saw(self, walk: int, beat: int) -> None:
        """A walk is here, at this beat."""
        if self.beats:
            self._learn(walk - 1, beat, beat)

    def look(self, beat: int) -> None:
        """See which walks are here."""
        for walk in range(1, len(self.beats) + 1):
            if self._holds(walk):
                self.saw(walk, beat)

    def passed_on(self, depth: int, nodes: int) -> None:
        """A new beat came first from a neighbour of this depth; no path is longer than all nodes."""
        self.depth = min(depth + 1, nodes - 1)

    @property
    def deepest(self) -> int:
        """The most hops from the aggregator to any node, as far as is known."""
        return max(self.depth, *self._deepest)

    def hear_depth(self, depth: int, deepest: int, beat: int, nodes: int) -> None:
        """How far a neighbour is from the aggregator, and the farthest that it knows of.

        Only those that are farther know of those behind them. And it is forgotten unless it is said again: what one has
        made up would go from node to node for the rest of the reign, and every lost walk would be waited for.
        """
        if beat // STRETCH != self._stretch:
            self._deepest = (0, self._deepest[0] if beat // STRETCH == self._stretch + 1 else 0)
            self._stretch = beat // STRETCH
        if depth > self.depth:
            self._deepest = (max(self._deepest[0], min(deepest, nodes - 1)), self._deepest[1])

    def hear(self, beats: Sequence[int], beat: int) -> None:
        """What a neighbour knows. `beat`: the latest of all, here and there; nothing was seen after it."""
        for place, seen in enumerate(beats[: len(self.beats)]):
            self._learn(place, min(seen, beat), beat)

    def _learn(self, place: int, seen: int, beat: int) -> None:
        if seen > self.beats[place]:
            if beat > self._heard[place] > 0:
                self._gaps.observe(float(beat - self._heard[place]))
            self.beats[place], self._heard[place] = seen, beat

    def unseen(self, walk: int, beat: int, awaited: bool) -> bool:
        """Whether news of a walk stay out for longer than they take, at the aggregator's latest beat.

        awaited: whether one that was not seen at all counts as well; nodes of a new network do not start all at once.
        """
        if not self.beats or not (awaited or self.is_known(walk)):
            return False
        return beat - self.beats[walk - 1] > self.deepest + self._gaps.patience

    def is_known(self, walk: int) -> bool:
        """Whether anybody has seen it under this aggregator."""
        return bool(self.beats) and self.beats[walk - 1] > 0

    def age(self, walk: int, beat: int) -> int:
        """How many beats ago, at most, somebody had a walk that is known."""
        return beat - self.beats[walk - 1] + 1
