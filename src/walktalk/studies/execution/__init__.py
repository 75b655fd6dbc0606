"""Drives runs to their end: in groups that fit into memory, in this process, in several, or on a Ray cluster."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
