"""A page of what runs, on this machine unless told otherwise: of a study (`live_page`), or of a cluster."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
