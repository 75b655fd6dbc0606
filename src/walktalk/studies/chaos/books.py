"""What the ledger says of partitions: how much of what each half learned is in the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from walktalk.protocols import Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Ledger
from walktalk.studies.chaos.verdict import Half

WORTH = 0.01  # of an update's usual weight: less than that is not in the model


@dataclass
class Partition:
    """One, as the trace tells of it."""

    side: frozenset[int]
    updates: tuple[list[int], list[int]]  # numbers of trainings that ended meanwhile, on that side and on the other
    lasts: bool = True
    halves: tuple[Half, ...] = ()  # once it has been judged


class Books(Ledger):
    """The ledger, and who was on which side when."""

    def __init__(self, protocol: Protocol, nodes: int, trainings: int) -> None:
        super().__init__(protocol, nodes, trainings)
        self.partitions: list[Partition] = []

    def before(self, row: TraceRow) -> None:
        """Where all nodes are killed, what was learned since their checkpoints is lost, and what walks learned since
        they last came to the aggregator, too: judge what was before, in the model or with a walk.

        Where they are stopped in order nothing may be lost: walks that had not come to the aggregator by then still do.
        """
        super().before(row)
        if row.event == "restart_of_all" and row.detail == "kill":
            self.judge(np.maximum.reduce([self.interpreter.output("aggregated"), *self.interpreter.in_order()]))

    def after(self, row: TraceRow) -> None:
        """Note whose update it is."""
        super().after(row)
        if row.event == "partition":
            side = frozenset(int(word) for word in row.detail.split())
            self.partitions.append(Partition(side, ([], [])))
        elif row.event == "heal":
            self.partitions[-1].lasts = False
        elif row.event == "trained":
            for partition in self.partitions:
                if partition.lasts:
                    partition.updates[row.node not in partition.side].append(row.number)

    def judge(self, model: np.ndarray | None = None) -> None:
        """Compare with a model; None: the one of now."""
        model = self.interpreter.output("aggregated") if model is None else model
        for partition in self.partitions:
            if not partition.halves and not partition.lasts:
                partition.halves = tuple(self._half(np.asarray(numbers, int), model) for numbers in partition.updates)

    def _half(self, numbers: np.ndarray, model: np.ndarray) -> Half:
        return Half(len(numbers), int((model[numbers] > WORTH * self.share).sum()))

    @property
    def halves(self) -> tuple[Half, ...]:
        """Of all partitions."""
        return tuple(half for partition in self.partitions for half in partition.halves)
