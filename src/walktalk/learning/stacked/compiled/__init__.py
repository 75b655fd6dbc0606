"""Passes of whole models as lists of operations on memory that is laid out once; on a CPU."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
