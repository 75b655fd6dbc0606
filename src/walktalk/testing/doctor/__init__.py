"""What this machine can do for walktalk, and what is missing: each finding with what to do about it."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
