"""Figures of data that is given: curves, time line, network, partition, theory. Each gives a matplotlib figure."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
