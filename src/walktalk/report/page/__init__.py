"""The page of a study: one HTML file; `html` puts it together from `data` and `sections`."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
