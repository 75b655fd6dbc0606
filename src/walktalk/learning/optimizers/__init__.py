"""Optimizers on the rows of a matrix: every row its own learning rate, its own state, its own step count.

SGD, Adam and AdamW are written out for whole matrices, with torch.optim's arithmetic. Every other element-wise
optimizer of torch.optim runs through torch.optim itself, row by row: exact, but slower.
"""

from walktalk.core.lazy import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)
