"""Data as people have it: arrays, frames, datasets, loaders, dictionaries; each becomes a `Part`."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
