"""What effects mean, whoever carries them out: slots, combinations, statistics, records, optimizer states, traces."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
