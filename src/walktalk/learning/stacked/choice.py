"""Chooses the fastest stacked form of a module that gives the right gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from walktalk.errors import ModelError
from walktalk.learning.stacked.chain import ChainModel
from walktalk.learning.stacked.layers import NotStackable
from walktalk.learning.stacked.model import StackedModel, TracedModel, VmapModel
from walktalk.learning.task import Loss


def stack(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> StackedModel:
    """The fastest stacked form of a module that gives the right gradients, tried on a few of the task's samples."""
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError("the model has no parameter that requires a gradient, so there is nothing to train")
    for kind in (ChainModel, TracedModel):
        try:
            model = kind(module, loss)
            if agrees(model, inputs, targets):
                return model
        except (NotStackable, RuntimeError, KeyError, TypeError, ValueError, IndexError):
            continue  # whatever it was, the next form can do without it
    return VmapModel(module, loss)


def agrees(model: StackedModel, inputs: Tensor, targets: Tensor) -> bool:
    """Whether the stacked gradients of two rows are those of plain backward passes."""
    layout = model.layout
    rows = torch.stack([layout.row(model.module)] * 2).to(inputs.device)
    rows[1, : layout.parameter_width] *= 1.01  # so that a mix-up of rows shows
    batch = min(4, len(inputs))
    x, y = (t[:batch].expand(2, *t[:batch].shape) for t in (inputs, targets))
    width = layout.parameter_width
    keys = torch.zeros(2, dtype=torch.int64, device=rows.device)
    found = model.wave(layout.spread_out(rows[:, :width]), rows[:, width:].clone(), keys)(x, y, 0)
    out = layout.gather(found, 2)
    if any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.module.modules()):
        return True  # other draws than torch's own: nothing to compare
    expected = torch.stack([plain_gradient(model, rows[k], x[k], y[k]) for k in range(2)])
    return bool((out - expected).norm() <= 1e-4 * expected.norm() + 1e-7)


def plain_gradient(model: StackedModel, row: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    module = model.layout.module(model.module, row).to(inputs.device).train()
    model.loss(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
    named = dict(module.named_parameters())
    zeros = {e.name: torch.zeros(e.shape, device=row.device) for e in model.layout.parameters}
    gradients = [
        named[e.name].grad if named[e.name].grad is not None else zeros[e.name] for e in model.layout.parameters
    ]
    return torch.cat([g.reshape(-1) for g in gradients if g is not None])
