"""From a cluster to one folder with its model, as any study leaves it: what `walktalk collect` does. Needs Zenoh."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
