"""A study on real peers: what `--engine peers` and `walktalk node` do. A door of its own, because it needs Zenoh."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
