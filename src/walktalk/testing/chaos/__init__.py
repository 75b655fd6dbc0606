"""Chaos on this machine: what `walktalk chaos` does. A door of its own beside `studies`, because it needs Zenoh."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
