"""From a specification to the things that it names, and the runs that are made of them."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
