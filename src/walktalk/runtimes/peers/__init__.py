"""The real engine: one process a node, on any number of machines, over Zenoh, with no head."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
