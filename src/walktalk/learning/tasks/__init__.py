"""Tasks, one a file; `torch` takes one's own."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
