"""Suites of settings in which algorithms meet, each at its best: who wins where."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
