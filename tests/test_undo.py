"""What a message of a stranger did is taken back, in place, whatever a machine keeps its state in."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.core.undo import remembered
from walktalk.protocols import PROTOCOLS, AsyncGossip, MultiWalk
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import RunSetup, Simulation


class Slotted:
    """Keeps its state in slots, one of which is not set."""

    __slots__ = ("count", "items", "unset")

    def __init__(self) -> None:
        self.count, self.items = 1, [1, 2]


@dataclass
class Whole:
    """Has every kind of thing that a machine may keep."""

    slotted: Slotted = field(default_factory=Slotted)
    numbers: dict[str, list[int]] = field(default_factory=lambda: {"a": [1], "b": []})
    seen: set[int] = field(default_factory=lambda: {1, 2})
    last: deque[int] = field(default_factory=lambda: deque([1, 2], maxlen=2))
    counts: Counter[str] = field(default_factory=lambda: Counter(a=1))
    pair: tuple[list[int], int] = field(default_factory=lambda: ([1], 2))
    dice: random.Random = field(default_factory=lambda: random.Random(1))


def spoil(whole: Whole) -> None:
    """Changes everything."""
    whole.slotted.count = 7
    whole.slotted.items.append(3)
    whole.slotted.unset = 4
    whole.numbers["a"].append(2)
    whole.numbers["c"] = [5]
    del whole.numbers["b"]
    whole.seen.add(3)
    whole.last.append(3)
    whole.counts["b"] += 1
    whole.pair[0].append(9)
    whole.dice.random()
    whole.slotted = Slotted()


def test_everything_is_put_back_in_place() -> None:
    whole, fresh = Whole(), Whole()
    slotted, items, inner = whole.slotted, whole.slotted.items, whole.numbers["a"]
    put_back = remembered(whole)
    spoil(whole)
    put_back()
    assert whole.slotted is slotted
    assert slotted.items is items == [1, 2]
    assert whole.numbers["a"] is inner
    assert (slotted.count, whole.numbers, whole.seen) == (1, fresh.numbers, fresh.seen)
    assert (whole.last, whole.last.maxlen, whole.counts, whole.pair) == (fresh.last, 2, fresh.counts, fresh.pair)
    assert whole.dice.random() == fresh.dice.random()


def test_circles_end() -> None:
    first: list[object] = []
    first.append({"back": first})
    put_back = remembered(first)
    first.clear()
    put_back()
    assert first[0]["back"] is first  # type: ignore[index]


def digest(thing: object, depth: int = 0) -> object:
    """What a machine holds, as plain values that can be compared."""
    if isinstance(thing, dict):
        return {key: digest(value, depth + 1) for key, value in thing.items()}
    if isinstance(thing, (list, tuple, deque)):
        return [digest(value, depth + 1) for value in thing]
    if isinstance(thing, (set, frozenset)):
        return sorted(map(str, thing))
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    if type(thing).__module__.startswith("walktalk.protocols") and depth < 12:
        named = {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | getattr(thing, "__dict__", {})
        return {name: digest(value, depth + 1) for name, value in named.items()}
    return repr(thing) if isinstance(thing, (int, float, str, bytes, bool)) else type(thing).__name__


@pytest.mark.parametrize("protocol", [MultiWalk(3, resilient=True), AsyncGossip(resilient=True), PROTOCOLS["sgp"]()])
def test_a_machine_in_the_middle_of_a_run_is_put_back(protocol) -> None:
    simulation = Simulation(RunSetup(protocol, graphs.cycle(6), Seed(0), Stop(iterations=200), keep_trace=False))
    simulation.advance(0.5)
    for machine in simulation.machines:
        before, put_back = digest(machine), remembered(machine)
        named = {
            name: getattr(machine, name)
            for k in type(machine).__mro__
            for name in getattr(k, "__slots__", ())
            if hasattr(machine, name)
        }
        for value in (*named.values(), *getattr(machine, "__dict__", {}).values()):
            if isinstance(value, (dict, set, list, deque)):
                value.clear()
        put_back()
        assert digest(machine) == before
