"""Which updates are in which model, from a trace alone: the check that no failure makes one count twice.

Every model is a sum of updates with weights; a combination of models is a combination of sums. So the aggregate's sum
tells how often each update was counted: with weight 1/R in the first reign, never above 1 in any (`aggregation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.protocols import AGGREGATE, INITIAL, UPDATE
from walktalk.runtimes.peers.traces import DETAIL, EVENT, NODE, NUMBER, SLOT, WALK, Row

Sum: TypeAlias = npt.NDArray[np.float32]  # by number of the training: its weight
ROUNDING = 1e-4


class Ledger:
    """The slots of all nodes as sums of updates."""

    def __init__(self, nodes: int, trainings: int) -> None:
        self.nothing: Sum = np.zeros(trainings, dtype=np.float32)
        self.slots: list[dict[str, Sum]] = [{INITIAL: self.nothing} for _ in range(nodes)]
        self.messages: dict[int, Sum] = {}
        self.saved: dict[tuple[int, int], dict[str, Sum]] = {}
        self.members: dict[int, Sum] = {}
        self.mixings = 0
        self.worst = 0.0  # the largest weight that an update ever had in an aggregate

    def play(self, trace: Iterable[Row]) -> Ledger:
        """Go through a trace."""
        for row in trace:
            take = getattr(self, f"_{row[EVENT]}", None)
            if take is not None:
                take(row, self.slots[row[NODE]])
        return self

    @property
    def sound(self) -> bool:
        """Whether no update was ever counted more than once."""
        return self.worst <= 1.0 + ROUNDING

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
        total = self.nothing.copy()
        for slot, weight in terms.items():
            total += np.float32(weight) * here.get(slot, self.nothing)
        here[row[SLOT]] = total

    def _send(self, row: Row, here: dict[str, Sum]) -> None:
        if row[SLOT]:
            self.messages[row[NUMBER]] = here.get(row[SLOT], self.nothing)

    def _receive(self, row: Row, here: dict[str, Sum]) -> None:
        if row[SLOT]:
            here[row[SLOT]] = self.messages.pop(row[NUMBER], self.members.get(row[WALK], self.nothing))

    def _saved(self, row: Row, here: dict[str, Sum]) -> None:
        self.saved[row[NODE], row[NUMBER]] = dict(here)

    def _rejoined(self, row: Row, here: dict[str, Sum]) -> None:
        here.update(self.saved.get((row[NODE], row[NUMBER]), {}))

    def _record(self, row: Row, here: dict[str, Sum]) -> None:
        model = here.get(row[SLOT], self.nothing)
        if row[DETAIL] == AGGREGATE:
            self.mixings += 1
            self.worst = max(self.worst, float(model.max(initial=0.0)))
        else:
            self.members[row[WALK]] = model
