"""The advisor: what a task is like, and so which algorithm, with how many walks, where and how fast.

`estimate_constants` measures F, L, σ² and ζ² of a task. `advise_study` combines theory with short pilots in the
simulator and says which algorithm, with which settings, will cost how much, and why; `walktalk.advise` does so for
things in Python. `bound_check` holds the theorems against measurement.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__, public=True)
