"""A run's models as sums of updates: which updates are in which slot, and with what weight. From the trace alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

Sum = dict[int, float]  # number of the training -> its weight; the initial model is -1


def plus(terms: Iterable[tuple[Sum, float]]) -> Sum:
    total: Sum = {}
    for term, weight in terms:
        for key, value in term.items():
            total[key] = total.get(key, 0.0) + weight * value
    return {key: value for key, value in total.items() if abs(value) > 1e-12}


class Symbols:
    """The slots of every node; a node that dies keeps them, as its checkpoint."""

    def __init__(self, nodes: int) -> None:
        self.slots: list[dict[str, Sum]] = [{"initial": {-1: 1.0}} for _ in range(nodes)]
        self.on_the_way: dict[int, tuple[str, Sum]] = {}
        self.members: dict[int, Sum] = {}
        self.aggregate: tuple[int, Sum] = (0, {-1: 1.0})  # term, model
        self.aggregator = -1
        self.trained: dict[int, int] = {}  # training -> its node

    def play(self, events: Iterable[tuple], watch: Callable[[Symbols, tuple], None] | None = None) -> Symbols:
        for event in events:
            _, node, kind, slot, _, walk, _, number, _, _, _, detail = event
            here = self.slots[node]
            if kind == "trained":
                here["update"] = here["gradient"] = {number: 1.0}
                self.trained[number] = node
            elif kind == "handed_on":
                here["update"] = {}
            elif kind == "combine":
                terms = detail if isinstance(detail, dict) else json.loads(detail)
                weights = {name: weight for name, weight in terms.items() if not name.startswith("statistics:")}
                here[slot] = plus((here[name], weight) for name, weight in weights.items())
            elif kind == "send" and slot:
                into = (detail if isinstance(detail, dict) else json.loads(detail))["into"]
                self.on_the_way[number] = (into, here[slot])
            elif kind == "receive" and slot:
                into, model = self.on_the_way.pop(number)
                here[into] = model
            elif kind == "record" and detail == "aggregate":
                if walk >= self.aggregate[0]:
                    self.aggregate, self.aggregator = (walk, here[slot]), node
            elif kind == "kill" and node == self.aggregator:
                self.aggregate = (0, self.aggregate[1])
            elif kind == "record":
                self.members[walk] = here[slot]
            if watch is not None:
                watch(self, event)
        return self
