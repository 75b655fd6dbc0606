"""Studies: many runs on one graph and one split of the data, from a specification to their records."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
