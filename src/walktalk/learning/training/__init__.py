"""How rows are trained: one record of what they need, and the forms of training, each the fastest for some models."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
