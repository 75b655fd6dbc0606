"""The stacked executor: the arithmetic of many runs, as waves over the rows of one matrix."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
