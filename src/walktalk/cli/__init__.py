"""The command line: parses, calls, prints. `main` is what `walktalk` runs."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
