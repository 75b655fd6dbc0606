"""What a study shows: its page, its replay, live pages, its table of results, and its figures."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
