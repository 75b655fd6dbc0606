"""Recomputes a run from its trace, in NumPy and float64, sharing no code with the package.

Only the meanings of the trace's events are used, and f_v(x) = ½ (x − b_v)ᵀ diag(a) (x − b_v) with plain SGD.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import numpy as np


class Replay:
    """The slots of every node, brought up to date event by event."""

    def __init__(self, initial: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int, mixing: np.ndarray) -> None:
        nodes = len(b)
        self.slots: list[dict[str, np.ndarray]] = [{"initial": initial.copy()} for _ in range(nodes)]
        self.a, self.b, self.steps, self.mixing = a, b, steps, mixing
        self.started: dict[int, tuple[np.ndarray, float]] = {}
        self.on_the_way: dict[int, tuple[str, np.ndarray]] = {}
        self.members: dict[int, np.ndarray] = {}
        self.aggregate: np.ndarray | None = None
        self.updates: list[np.ndarray] = []

    def play(self, events: Iterable[tuple], watch: Callable[[Replay, tuple], None] | None = None) -> Replay:
        for event in events:
            _, node, kind, slot, _, walk, _, number, _, _, lr, detail = event
            here = self.slots[node]
            if kind == "train":
                self.started[number] = (here[slot].copy(), lr)
            elif kind == "trained":
                start, rate = self.started.pop(number)
                x = start.copy()
                for _ in range(self.steps):
                    x = x - rate * self.a * (x - self.b[node])
                here["update"] = x - start
                self.updates.append(here["update"])
            elif kind == "combine":
                terms = detail if isinstance(detail, dict) else json.loads(detail)
                weights = {name: weight for name, weight in terms.items() if not name.startswith("statistics:")}
                here[slot] = sum(weight * here[name] for name, weight in weights.items())
            elif kind == "send" and slot:
                into = (detail if isinstance(detail, dict) else json.loads(detail))["into"]
                self.on_the_way[number] = (into, here[slot].copy())
            elif kind == "receive" and slot:
                into, model = self.on_the_way.pop(number)
                here[into] = model
            elif kind == "mix_everyone":
                mixed = self.mixing @ np.stack([s[slot] for s in self.slots])
                for v, s in enumerate(self.slots):
                    s[slot] = self.members[v] = mixed[v]
            elif kind == "record":
                if detail == "aggregate":
                    self.aggregate = here[slot]
                else:
                    self.members[walk] = here[slot]
            if watch is not None:
                watch(self, event)
        return self

    def output(self) -> np.ndarray:
        return self.aggregate if self.aggregate is not None else np.mean(list(self.members.values()), axis=0)
