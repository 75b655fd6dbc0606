"""Adapters: small parts of a large frozen model that are trained, sent and mixed in its place."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
