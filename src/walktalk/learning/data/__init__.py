"""Data sets that are files: where they lie, whether they are whole, how to get them."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
