"""Tables that others published, as studies: the published number, ours and the difference."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
