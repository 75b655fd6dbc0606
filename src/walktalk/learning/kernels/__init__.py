"""The only door to our kernels for GPUs: convolutions with their norm and ReLU, layer norm, attention, SGD, rows.

Triton is needed by nobody who calls none of them: the files `*_kernels.py`, which are written in its language, are
imported when the first kernel of theirs is launched. Ask `is_possible` before.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
