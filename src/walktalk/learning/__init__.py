"""Learning: tasks, their data and how it is split, and the training of many models at once."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
