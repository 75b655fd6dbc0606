"""The simulator: events in virtual time, and the schedule of arithmetic that they call for."""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
