"""How many walks there are, without a centre and against a node that swallows them.

Two ways for a node to see that walks are missing, by its own clock alone: nobody tells it anything, so nobody can lie.

- Average crossing (Chen, Parag, Bhagat, Liu, El Rouayheb, "Random walk learning and the Pac-Man attack", 2025): a walk
  visits, and the last visit of any walk is longer ago than A. Then, with probability q, the walk is doubled. If all
  walks are gone it is too late.
- Create if late (the same, "Self-creating random walks for decentralized learning under Pac-Man attacks", 2026): the
  last visit of any walk is longer ago than A. Then, with probability q, the node begins one with the model that it saw
  last, and waits for A again. Walks cannot die out.

The abstracts were read; the rules are from memory of the papers, which leave A and q to the user. Here they follow from
R: a node is visited about every V s / R seconds, s what one visit takes. With n walks a gap is longer than A in a share
exp(−A n / (V s)) of all visits, and each of them begets q; a node that swallows all that comes takes one visit in V. So
births and deaths balance at n = (V s / A) ln(qV), which is R for A = (V s / R) ln(qV). While nothing is swallowed
births go on until there are so many walks that they are rare; so they have numbers from 1 to R: a new one takes the
number that the node misses most, and of two with one number the one that is behind is retired where they meet or where
its ticket shows it (`walk_copies`, `aggregation`). That stands for the terminations of DecAFork+ (Egger et al. 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

LATE = "late"  # timer: no walk has been here for too long
FEWEST_BIRTHS = 3.0  # qV at least: ln(qV) is above 1, so that births outweigh deaths when there are few walks


@dataclass
class Lateness:
    """One node's: when a walk was here last, and how long that may be ago."""

    nodes: int  # V
    walks: int  # R
    last: float = 0.0  # when any walk was here

    @property
    def births(self) -> float:
        """qV: how many are born when all nodes miss them at once; no more than R, for that is how many may be gone."""
        return min(max(float(self.walks), FEWEST_BIRTHS), float(self.nodes))

    @property
    def chance(self) -> float:
        """q: of a birth, when it is too long ago."""
        return self.births / self.nodes

    def limit(self, visit: float) -> float:
        """A, where a visit takes so many seconds."""
        return self.nodes * visit / self.walks * max(math.log(self.births), 1.0)

    def crossed(self, now: float, visit: float) -> bool:
        """A walk visits: whether the last visit is too long ago."""
        before, self.last = self.last, now
        return now - before > self.limit(visit)

    def bears(self, random: Random) -> bool:
        """Whether one is born now."""
        return random.random() < self.chance
