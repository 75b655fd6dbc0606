"""Which updates are in which model, from a trace alone: the check that no failure makes one count twice.

Every model is a sum of updates with weights; a combination of models is a combination of sums. What may happen once:

- Multi-Walk: an update is in no aggregate with more than its whole weight. And in one reign it comes in with one visit,
  as its part of x_r − u_r (line 8): over the visits of a reign these parts add up to 1 at most, and a copy of the walk
  that was accepted beside it would add as much again. (The first visit of a walk that comes from another reign is the
  exception: it is averaged with the model that the reign began with, which may hold the same updates.)
- Gossip: each side of an exchange adds its half of the difference once. A model that is offered is a sum of its own, so
  an offer that came twice is recognized by being the same sum.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.protocols import AGGREGATE, INITIAL, UPDATE
from walktalk.runtimes.peers.traces import DETAIL, EVENT, NODE, NUMBER, SLOT, WALK, Row

Sum: TypeAlias = npt.NDArray[np.float32]  # by number of the training: its weight
Halves: TypeAlias = collections.Counter[tuple[int, int]]  # (partner, the offer's sum) -> how often it was applied
ROUNDING = 1e-3


class Ledger:
    """The slots of all nodes as sums of updates."""

    def __init__(self, nodes: int, trainings: int) -> None:
        self.nothing: Sum = np.zeros(trainings, dtype=np.float32)
        self.slots: list[dict[str, Sum]] = [{INITIAL: self.nothing} for _ in range(nodes)]
        self.messages: dict[int, Sum] = {}
        self.saved: dict[tuple[int, int], dict[str, Sum]] = {}
        self.members: dict[int, Sum] = {}
        self.mixings = 0
        self.exchanges = 0  # halves of exchanges that were applied
        self.worst = 0.0  # the largest weight of an update in an aggregate
        self.counted = 0.0  # the largest part of an update that ever came in within one reign
        self._visits: dict[int, Sum] = {}  # by node: what the visit brings that is being mixed
        self._reigns: dict[tuple[int, int], Sum] = {}  # by node and term: what came in so far
        self._known: dict[int, set[str]] = {}  # by node: copies that were made by visits of its present reign
        self._halves: list[Halves] = [collections.Counter() for _ in range(nodes)]
        self._halves_saved: dict[tuple[int, int], Halves] = {}
        self.twice = 0  # halves of exchanges that were applied more than once to the same model
        self._kept: list[Sum] = []  # sums that `_halves` names: while they are kept, no other takes their place

    def play(self, trace: Iterable[Row]) -> Ledger:
        """Go through a trace."""
        for row in trace:
            take = getattr(self, f"_{row[EVENT]}", None)
            if take is not None:
                take(row, self.slots[row[NODE]])
        return self

    @property
    def sound(self) -> bool:
        """Whether nothing was ever counted more than once."""
        return max(self.counted, self.worst) <= 1.0 + ROUNDING and not self.twice

    def _trained(self, row: Row, here: dict[str, Sum]) -> None:
        here[UPDATE] = update = self.nothing.copy()
        update[row[NUMBER]] = 1.0

    def _handed_on(self, row: Row, here: dict[str, Sum]) -> None:
        here[UPDATE] = self.nothing

    def _combine(self, row: Row, here: dict[str, Sum]) -> None:
        terms: Mapping[str, float] = row[DETAIL] if isinstance(row[DETAIL], dict) else json.loads(row[DETAIL])
        if len(terms) == 1 and 1.0 in terms.values():
            here[row[SLOT]] = here.get(next(iter(terms)), self.nothing)
            return
        self._note_visit(row, terms, here)
        self._note_exchange(row, terms, here)
        total = self.nothing.copy()
        for slot, weight in terms.items():
            total += np.float32(weight) * here.get(slot, self.nothing)
        here[row[SLOT]] = total

    def _note_visit(self, row: Row, terms: Mapping[str, float], here: dict[str, Sum]) -> None:
        """Line 8: x_r ← u_l + (x_r − u_r)/R."""
        kind, _, walk = row[SLOT].partition("/")
        mine = f"copy/{walk}"
        if kind == "walk" and row[SLOT] in terms and mine in here and any(slot.startswith("copy/") for slot in terms):
            self._visits[row[NODE]] = here.get(row[SLOT], self.nothing) - here[mine]

    def _note_exchange(self, row: Row, terms: Mapping[str, float], here: dict[str, Sum]) -> None:
        """The passive side adds part of an offer; the active one an answer, and takes the same part of its own offer.

        Which exchange it is, the offer says: it is the same sum on both sides, however often it was sent.
        """
        for slot in terms:
            kind, _, peer = slot.partition("/")
            own = slot == "offered" or kind == "open"
            if kind != "offer" and not own:
                continue
            answered = next((other.partition("/")[2] for other in terms if other.startswith("answer/")), "")
            offer, partner = here.get(slot, self.nothing), int(answered if own else peer)
            self._kept.append(offer)
            halves = self._halves[row[NODE]]
            halves[partner, id(offer)] += 1
            self.twice += halves[partner, id(offer)] == 2
            self.exchanges += 1

    def _elected(self, row: Row, here: dict[str, Sum]) -> None:
        self._known[row[NODE]] = set()

    def _restarted(self, row: Row, here: dict[str, Sum]) -> None:
        self._known.setdefault(row[NODE], set()).add(f"copy/{row[WALK]}")

    def _send(self, row: Row, here: dict[str, Sum]) -> None:
        if row[SLOT]:
            self.messages[row[NUMBER]] = here.get(row[SLOT], self.nothing)

    def _receive(self, row: Row, here: dict[str, Sum]) -> None:
        if row[SLOT]:
            here[row[SLOT]] = self.messages.pop(row[NUMBER], self.members.get(row[WALK], self.nothing))

    def _saved(self, row: Row, here: dict[str, Sum]) -> None:
        self.saved[row[NODE], row[NUMBER]] = dict(here)
        self._halves_saved[row[NODE], row[NUMBER]] = self._halves[row[NODE]].copy()

    def _rejoined(self, row: Row, here: dict[str, Sum]) -> None:
        kept = row[NODE], row[NUMBER]
        here.update(self.saved.get(kept, {}))
        self._halves[row[NODE]] = self._halves_saved.get(kept, collections.Counter()).copy()

    def _record(self, row: Row, here: dict[str, Sum]) -> None:
        if row[DETAIL] != AGGREGATE:
            self.members[row[WALK]] = here.get(row[SLOT], self.nothing)
            return
        self.mixings += 1
        self.worst = max(self.worst, float(here.get(row[SLOT], self.nothing).max(initial=0.0)))
        visit, known = self._visits.pop(row[NODE], None), self._known.setdefault(row[NODE], set())
        reign = row[NODE], row[WALK]
        own = row[SLOT] in known or row[WALK] <= 1  # in the first reign all walks are its own from the start
        known.add(row[SLOT])
        if visit is not None and own:
            self._reigns[reign] = came_in = self._reigns.get(reign, self.nothing) + visit
            self.counted = max(self.counted, float(came_in.max(initial=0.0)))
