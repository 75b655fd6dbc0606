"""Protocols: pure state machines that say what each node does. One file each, headed by its paper and equations."""

from typing import Any

from walktalk.core.lazy import front_door

_listed, __dir__, __all__ = front_door(__name__, __file__)

from walktalk.protocols.registry import class_called  # noqa: E402  # who asks for a protocol by name finds all of them


def __getattr__(name: str) -> Any:
    """What the stub lists, or an algorithm that only the registry has: a new one is a file and a line there."""
    if name not in __all__ and (found := class_called(name)) is not None:
        return found
    return _listed(name)
