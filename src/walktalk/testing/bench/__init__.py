"""Benchmarks, each with its baseline measured in the same run. `walktalk bench NAME` runs them."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
