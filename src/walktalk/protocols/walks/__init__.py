"""Algorithms of walks, one file each; the messages and failures are `mechanisms.tokens`."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
