"""A run to watch: the trace as data for the page's replay, and as a film."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
