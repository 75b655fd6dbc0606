"""Records: what every run leaves behind, simulated or real. History, trace, checkpoint, and the folder they lie in."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
