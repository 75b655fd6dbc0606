"""Losses and gradients of many models at once, each on its own batch."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from walktalk.errors import ModelError
from walktalk.learning.stacked.layers import NotStackable, Pass
from walktalk.learning.stacked.layout import RowLayout
from walktalk.learning.stacked.traced import Traced
from walktalk.learning.task import Loss

MEANS_OVER_SAMPLES = {
    functional.cross_entropy, functional.nll_loss, functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss,
    functional.huber_loss, functional.binary_cross_entropy_with_logits, functional.binary_cross_entropy,
}  # fmt: skip
MEAN_MODULES = (
    nn.CrossEntropyLoss, nn.NLLLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss,
    nn.BCELoss,
)  # fmt: skip


def is_mean_over_samples(loss: Loss) -> bool:
    """Whether a loss of a joined batch is the mean of the losses of its equal parts."""
    if isinstance(loss, MEAN_MODULES):
        weighted = getattr(loss, "weight", None) is not None
        return loss.reduction == "mean" and not weighted and getattr(loss, "ignore_index", -100) == -100
    return loss in MEANS_OVER_SAMPLES


def sum_of_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum over rows of each row's loss; its gradient is every row's own."""
    if is_mean_over_samples(loss):
        return loss(outputs.flatten(0, 1), targets.flatten(0, 1)) * len(outputs)
    return row_losses(loss, outputs, targets).sum()


def row_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Each row's loss, [W]."""
    return vmap(loss)(outputs, targets)


class StackedModel(ABC):
    """One architecture, many rows."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module = module
        self.loss = loss
        self.layout = RowLayout(module)

    @abstractmethod
    def gradients(
        self, rows: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor, keys: Tensor, step: int, out: Tensor
    ) -> None:
        """Write the gradient of each row's loss into `out` [W, P]; bring `buffers` [W, width − P] up to date."""

    @abstractmethod
    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        """Predictions [W, B, …] of whole rows [W, width], in evaluation mode, for inputs [B, …] that all rows share."""


class TracedModel(StackedModel):
    """The fast path: stacked layers, gradients gathered in one flat matrix."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__(module, loss)
        self.traced = Traced(module)

    def gradients(
        self, rows: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor, keys: Tensor, step: int, out: Tensor
    ) -> None:
        layout = self.layout
        leaves = layout.views(rows.detach(), layout.parameters)
        out.zero_()
        for name, place in layout.views(out, layout.parameters).items():
            # The gradients of all parameters accumulate in one matrix, so the optimizer is a few flat operations.
            leaves[name].requires_grad_().grad = place
        tensors = leaves | layout.views(buffers, layout.buffers, layout.parameter_width)
        outputs = self.traced(inputs, Pass(tensors, True, keys, step))
        sum_of_losses(self.loss, outputs, targets).backward()  # type: ignore[no-untyped-call]

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        layout = self.layout
        with torch.no_grad():
            tensors = layout.views(rows, [*layout.parameters, *layout.buffers])
            return self.traced(inputs.expand(len(rows), *inputs.shape), Pass(tensors, False))


class VmapModel(StackedModel):
    """Any module at all, through torch.func.vmap: right for everything, slower than stacked layers."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__(module, loss)
        if any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats for m in module.modules()):
            raise ModelError(
                "this model cannot be stacked layer by layer, and its BatchNorm keeps running statistics, which vmap "
                "cannot bring up to date; use GroupNorm, or a forward that torch.fx can trace"
            )

    def gradients(
        self, rows: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor, keys: Tensor, step: int, out: Tensor
    ) -> None:
        self.module.train()

        def loss_of(row: Tensor, buffer: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.loss(functional_call(self.module, self._named(row, buffer), (x,)), y)

        gradient, _ = vmap(grad_and_value(loss_of), randomness="different")(rows, buffers, inputs, targets)
        out.copy_(gradient)

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self.module.eval()
        width = self.layout.parameter_width

        def outputs_of(row: Tensor) -> Tensor:
            result: Tensor = functional_call(self.module, self._named(row[:width], row[width:]), (inputs,))
            return result

        with torch.no_grad():
            return vmap(outputs_of)(rows)

    def _named(self, row: Tensor, buffer: Tensor) -> dict[str, Tensor]:
        layout, width = self.layout, self.layout.parameter_width
        named = {e.name: row[e.start : e.end].view(e.shape) for e in layout.parameters}
        return named | {e.name: buffer[e.start - width : e.end - width].view(e.shape) for e in layout.buffers}


def stack(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> StackedModel:
    """The fastest stacked form of a module that gives the right gradients, tried on a few of the task's samples."""
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError("the model has no parameter that requires a gradient, so there is nothing to train")
    try:
        model = TracedModel(module, loss)
        if agrees(model, inputs, targets):
            return model
    except (NotStackable, RuntimeError, KeyError, TypeError, ValueError, IndexError):
        pass  # whatever it was, vmap can do without it
    return VmapModel(module, loss)


def agrees(model: StackedModel, inputs: Tensor, targets: Tensor) -> bool:
    """Whether the stacked gradients of two rows are those of plain backward passes."""
    layout = model.layout
    rows = torch.stack([layout.row(model.module)] * 2).to(inputs.device)
    rows[1, : layout.parameter_width] *= 1.01  # so that a mix-up of rows shows
    batch = min(4, len(inputs))
    x, y = (t[:batch].expand(2, *t[:batch].shape) for t in (inputs, targets))
    out = torch.zeros(2, layout.parameter_width, device=rows.device)
    width = layout.parameter_width
    keys = torch.zeros(2, dtype=torch.int64, device=rows.device)
    model.gradients(rows[:, :width].clone(), rows[:, width:].clone(), x, y, keys, 0, out)
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
