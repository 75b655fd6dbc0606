"""Recomputes a run from its trace, in NumPy and float64, sharing no code with the runtimes.

Only the meanings of the trace's events are used (`walktalk.records.history`), and plain SGD on
f_v(x) = ½ (x − b_v)ᵀ diag(a) (x − b_v). What a codec leaves of a model, the codec is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from walktalk.records import TraceRow
from walktalk.transforms.codecs import codec_named
from walktalk.transforms.rules import normal

Floats: TypeAlias = npt.NDArray[np.float64]


class Replay:
    """The slots of every node, brought up to date event by event."""

    def __init__(self, initial: Floats, a: Floats, b: Floats, steps: int, mixing: Floats) -> None:
        """
        - `initial`: the initial model.
        - `a`, `b`: the curvature, and every node's centre.
        - `steps`: of a local training.
        - `mixing`: the matrix P, for `mix_everyone`.
        """
        nodes = len(b)
        self.slots: list[dict[str, Floats]] = [{"initial": initial.copy()} for _ in range(nodes)]
        self.a, self.b, self.steps, self.mixing = a, b, steps, mixing
        self.started: dict[int, Floats] = {}  # by training: its outcome
        self.on_the_way: dict[int, tuple[str, Floats]] = {}
        self.spoiled: dict[tuple[int, str], Floats] = {}  # by node and slot: what a bad node sends in place of it
        self.members: dict[int, Floats] = {}
        self.aggregate: Floats | None = None
        self.term, self.aggregator = (
            0,
            -1,
        )  # whose it is: of two that aggregate at the same time, the higher term counts
        self.updates: list[Floats] = []

    def play(self, events: Iterable[TraceRow], watch: Callable[[Replay, TraceRow], None] | None = None) -> Replay:
        """Go through a trace; `watch` is shown every row after it was played."""
        for row in events:
            take = getattr(self, f"_{row.event}", None)
            if take is not None:
                take(row, self.slots[row.node])
            if watch is not None:
                watch(self, row)
        return self

    def output(self) -> Floats:
        """The aggregate, or the mean of the members."""
        return self.aggregate if self.aggregate is not None else np.mean(list(self.members.values()), axis=0)

    def _train(self, row: TraceRow, here: dict[str, Floats]) -> None:
        asked: dict[str, Any] = _parsed(row.detail) if row.detail else {}
        start = here[row.slot]
        x, rate, counts = start.copy(), row.lr * asked.get("rate", 1.0), asked.get("factor", 1.0)
        correction = here[asked["correction"]] if "correction" in asked else 0.0
        anchor, pull = (here[asked["anchor"]], asked["pull"]) if "anchor" in asked else (x, 0.0)
        for _ in range(asked.get("steps", self.steps)):
            x = x - rate * (counts * self.a * (x - self.b[row.node]) + correction + pull * (x - anchor))
        self.started[row.number] = x - start

    def _differentiate(self, row: TraceRow, here: dict[str, Floats]) -> None:
        counts = _parsed(row.detail).get("factor", 1.0) if row.detail else 1.0
        self.started[row.number] = counts * self.a * (here[row.slot] - self.b[row.node])

    def _trained(self, row: TraceRow, here: dict[str, Floats]) -> None:
        here["update"] = here["gradient"] = self.started.pop(row.number)
        self.updates.append(here["update"])

    def _handed_on(self, row: TraceRow, here: dict[str, Floats]) -> None:
        here["update"] = np.zeros_like(here["initial"])

    def _combine(self, row: TraceRow, here: dict[str, Floats]) -> None:
        terms = {name: weight for name, weight in _parsed(row.detail).items() if not name.startswith("statistics:")}
        here[row.slot] = np.sum([weight * here[name] for name, weight in terms.items()], axis=0)

    def _screen(self, row: TraceRow, here: dict[str, Floats]) -> None:
        detail = _parsed(row.detail)
        terms = {name[5:]: weight for name, weight in detail.items() if name.startswith("with:")}
        others = [here[slot] for slot in terms]
        here[row.slot] = _screened(here[detail["own"]], others, list(terms.values()), detail["rule"], int(row.key))

    def _withheld(self, row: TraceRow, here: dict[str, Floats]) -> None:
        here[row.slot] = np.zeros_like(here["initial"])

    def _corrupted(self, row: TraceRow, here: dict[str, Floats]) -> None:
        factor = {"flip": -1.0}.get(row.detail) or float(row.detail.removeprefix("scale(").removesuffix(")"))
        self.spoiled[row.node, row.slot] = factor * here[row.slot]

    def _encode(self, row: TraceRow, here: dict[str, Floats]) -> None:
        detail = _parsed(row.detail)
        codec, model = codec_named(detail["codec"]), torch.from_numpy(here[detail["slot"]]).float()
        here[row.slot] = codec.decode(codec.encode(model, row.key), len(model)).double().numpy()

    def _decode(self, row: TraceRow, here: dict[str, Floats]) -> None:
        here[row.slot] = here[row.detail]

    def _send(self, row: TraceRow, here: dict[str, Floats]) -> None:
        if row.slot:
            model = self.spoiled.pop((row.node, row.slot), here[row.slot])
            self.on_the_way[row.number] = (_parsed(row.detail)["into"], model.copy())

    def _receive(self, row: TraceRow, here: dict[str, Floats]) -> None:
        if row.slot:
            into, model = self.on_the_way.pop(row.number)
            here[into] = model

    def _mix_everyone(self, row: TraceRow, here: dict[str, Floats]) -> None:
        mixed = self.mixing @ np.stack([slots[row.slot] for slots in self.slots])
        for v, slots in enumerate(self.slots):
            slots[row.slot] = self.members[v] = mixed[v]

    def _kill(self, row: TraceRow, here: dict[str, Floats]) -> None:
        if row.node == self.aggregator:
            self.term = 0

    def _record(self, row: TraceRow, here: dict[str, Floats]) -> None:
        if row.detail != "aggregate":
            self.members[row.walk] = here[row.slot]
        elif row.walk >= self.term:  # one that hung, and has not heard that it is deposed, counts no more
            self.term, self.aggregator, self.aggregate = row.walk, row.node, here[row.slot]


def _screened(own: Floats, others: list[Floats], weights: list[float], rule: str, key: int) -> Floats:
    """Applies a rule for neighbours' models, written anew from its definition, but for the random numbers."""
    name, _, rest = rule.partition("(")
    if name == "private":
        longest, noise = (float(number) for number in rest.removesuffix(")").split(","))
        drawn = normal(torch.tensor([key]), len(own))[0].double().numpy()
        return own * min(1.0, longest / max(float(np.linalg.norm(own)), 1e-30)) + noise * longest * drawn
    if name in ("adagrad_moment", "adam_moment", "yogi_moment", "scaled_step"):
        return _adaptive(name, [float(number) for number in rest.removesuffix(")").split(",")], own, others, weights)
    number = float(rest.removesuffix(")") or {"clip": 0.5, "refuse": 0.7, "facing": -0.5}.get(name, 1.0))
    if name in ("clip", "refuse", "facing"):
        moved = own.copy()
        witnesses = [other for other, weight in zip(others, weights, strict=True) if not weight]
        for other, weight in zip(others, weights, strict=True):
            moved += weight * _share(name, number, own, other, witnesses) * (other - own)
        return moved
    ordered = np.sort(np.stack([own, *others]), axis=0)
    if name == "median":
        return np.asarray(np.median(ordered, axis=0))
    left_out = min(int(number), (len(ordered) - 1) // 2)
    return np.asarray(ordered[left_out : len(ordered) - left_out].mean(axis=0))


def _adaptive(name: str, numbers: list[float], own: Floats, others: list[Floats], weights: list[float]) -> Floats:
    tau = numbers[-1]
    if name == "scaled_step":
        moment, second = others
        return np.asarray(own + weights[0] * moment / (np.sqrt(second) + tau))
    before, square = others[0] if others else np.full_like(own, tau**2), own**2
    if name == "adagrad_moment":
        return np.asarray(before + square)
    to = square if name == "adam_moment" else before + square * np.sign(square - before)
    return np.asarray(before + (1.0 - numbers[0]) * (to - before))


def _share(name: str, number: float, own: Floats, other: Floats, witnesses: list[Floats]) -> float:
    if name == "facing":
        return float(own @ other >= number * np.linalg.norm(own) * np.linalg.norm(other))
    away, allowed = float(np.linalg.norm(other - own)), number * float(np.linalg.norm(own))
    if away <= allowed or not own.any():
        return 1.0
    if name == "clip":
        return allowed / away
    return float(bool(witnesses) and all(np.linalg.norm(other - w) <= number * np.linalg.norm(w) for w in witnesses))


def _parsed(detail: Any) -> dict[str, Any]:
    found: dict[str, Any] = detail if isinstance(detail, dict) else json.loads(detail)
    return found
