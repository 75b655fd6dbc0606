"""Takes back what was done to an object: a message of a stranger is handled whole, or not at all.

What can change of an object and of all that it reaches is remembered by shallow copies, and put back *in place*: who
held a list before holds the same list afterwards. That takes microseconds for a node's machine, where a deep copy takes
milliseconds, and nothing is pickled.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from types import ModuleType
from typing import Any

UNCHANGING = (int, float, complex, str, bytes, bool, type(None), enum.Enum, type, range, frozenset, ModuleType)
PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})


def remembered(*roots: object) -> Callable[[], None]:
    """A function that puts everything that the roots reach back to what it is now.

    Tuples are looked through; frozen dataclasses, functions, modules, classes, arrays and tensors are left alone.

    Args:
        roots: Objects such as a node's machine; containers, and objects of classes written in Python.
    """
    seen: set[int] = set()
    undo: list[Callable[[], None]] = []
    waiting: list[Any] = list(roots)
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, UNCHANGING) or id(thing) in seen:
            continue
        seen.add(id(thing))
        waiting.extend(_changing(_remember(thing, undo)))

    def put_back() -> None:
        for one in undo:
            one()

    return put_back


def _changing(held: Collection[Any]) -> Iterable[Any]:
    """Those of some things that may change; thousands of numbers, or of tuples of numbers, take microseconds."""
    kinds = set(map(type, held)) - PLAIN
    if not kinds:
        return ()
    tuples = all(issubclass(kind, tuple) for kind in kinds)
    if tuples and PLAIN.issuperset(map(type, chain.from_iterable(one for one in held if isinstance(one, tuple)))):
        return ()
    return [one for one in held if type(one) not in PLAIN]


def _remember(thing: Any, undo: list[Callable[[], None]]) -> Collection[Any]:
    """Note how one object is put back; returns what it holds."""
    if isinstance(thing, dict):
        copy = dict(thing)
        undo.append(lambda: _refill(thing.clear, lambda: thing.update(copy)))
        return list(copy.values())
    if isinstance(thing, list):
        items = list(thing)
        undo.append(lambda: thing.__setitem__(slice(None), items))
        return items
    if isinstance(thing, (set, deque)):
        members = list(thing)
        undo.append(lambda: _refill(thing.clear, lambda: _fill(thing, members)))
        return members
    if isinstance(thing, tuple):
        return thing
    if isinstance(thing, random.Random):
        state = thing.getstate()
        undo.append(lambda: thing.setstate(state))
        return ()
    return _remember_attributes(thing, undo)


def _remember_attributes(thing: Any, undo: list[Callable[[], None]]) -> Collection[Any]:
    if _frozen(thing):
        return ()
    if callable(thing) and not hasattr(type(thing), "__dataclass_fields__") and _has_no_state(thing):
        return (thing.__self__,) if hasattr(thing, "__self__") and not isinstance(thing.__self__, type) else ()
    attributes = _slots_of(thing)
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict):
        copy = dict(own)
        undo.append(lambda: _refill(own.clear, lambda: own.update(copy)))
        attributes_of_dict: Iterable[Any] = copy.values()
    else:
        attributes_of_dict = ()
    if attributes:
        undo.append(lambda: _set_all(thing, attributes))
    return [*attributes.values(), *attributes_of_dict]


def _has_no_state(thing: Any) -> bool:
    return type(thing).__module__ == "builtins"  # functions and bound methods


def _slots_of(thing: Any) -> dict[str, Any]:
    """What stands in an object's slots; nothing for objects of classes that are not written in Python."""
    found: dict[str, Any] = {}
    for kind in type(thing).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def _frozen(thing: Any) -> bool:
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return bool(parameters is not None and parameters.frozen)


def _set_all(thing: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(thing, name, value)


def _refill(clear: Callable[[], None], fill: Callable[[], None]) -> None:
    clear()
    fill()


def _fill(thing: Any, members: list[Any]) -> None:
    thing.update(members) if isinstance(thing, set) else thing.extend(members)
