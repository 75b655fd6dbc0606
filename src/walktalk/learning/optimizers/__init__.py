"""Optimizers on the rows of a matrix: every row its own learning rate, its own state, its own step count.

SGD, Adam and AdamW are written out for whole matrices, with torch.optim's arithmetic. Every other element-wise
optimizer of torch.optim runs through torch.optim itself, row by row: exact, but slower.
"""

from __future__ import annotations

import inspect

from walktalk.learning.optimizers.adam import RowAdam
from walktalk.learning.optimizers.by_torch import RowTorch
from walktalk.learning.optimizers.clipped import Clipped
from walktalk.learning.optimizers.rows import OptimizerWave, RowOptimizer
from walktalk.learning.optimizers.sgd import RowSGD
from walktalk.learning.optimizers.spec import NOT_ELEMENT_WISE, OptimizerSpec, element_wise
from walktalk.learning.optimizers.spread import LINE, Chosen, Spread, to_rows, to_vector

__all__ = [
    "LINE",
    "NOT_ELEMENT_WISE",
    "Chosen",
    "Clipped",
    "OptimizerSpec",
    "OptimizerWave",
    "RowAdam",
    "RowOptimizer",
    "RowSGD",
    "RowTorch",
    "Spread",
    "element_wise",
    "row_optimizer",
    "to_rows",
    "to_vector",
]


def row_optimizer(spec: OptimizerSpec) -> RowOptimizer:
    """The optimizer for whole matrices of rows."""
    if spec.name == "sgd" and not spec.extra:
        return RowSGD(spec.momentum, spec.nesterov, spec.weight_decay)
    if spec.name in ("adam", "adamw") and not spec.extra:
        return RowAdam(spec.betas or (0.9, 0.999), spec.eps or 1e-8, spec.weight_decay, spec.name == "adamw")
    kind = element_wise()[spec.name]
    takes = inspect.signature(kind).parameters
    given = {name: getattr(spec, name) for name in ("weight_decay", "momentum", "nesterov", "betas", "eps")}
    arguments = {name: value for name, value in given.items() if name in takes and value}
    return RowTorch(kind, {**arguments, **spec.extra})
