"""Models of linear layers, layer norms, attention and the like with their passes written out; on a CPU."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from walktalk.learning.stacked.laid import NotStackable
from walktalk.learning.stacked.model import Gradients, TracedModel, is_cross_entropy, sum_of_losses
from walktalk.learning.stacked.written.emit import emit
from walktalk.learning.stacked.written.program import Now, Program, Value
from walktalk.learning.task import Loss

PROGRAMS_KEPT = 8  # of the widths and shapes of batches that came last


class Ready(NamedTuple):
    """A program and what is put into it and taken out of it."""

    run: Program
    now: Now
    inputs: Tensor
    weights: Tensor
    gradients: Tensor


class WrittenModel(TracedModel):
    """Training by `Program`; everything else as the stacked layers do it."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        if self.layout.buffers or len(self.layout.parameters) != sum(1 for _ in module.parameters()):
            raise NotStackable("statistics or frozen weights")
        kinds = {nn.Dropout: "p", nn.MultiheadAttention: "dropout"}
        self.dropouts = [(part, kinds[type(part)]) for part in module.modules() if type(part) in kinds]
        self.kept = threading.local()  # two threads may train with one model, but not in the same memory

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        if weights.is_cuda or self.arithmetic.precision == "bf16":
            return super().wave(weights, buffers, keys)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            with torch.no_grad():
                ready = self.ready(len(weights), inputs, targets, keys)
                ready.weights.copy_(weights)
                ready.inputs.copy_(inputs)
                ready.now.targets, ready.now.keys, ready.now.step = targets, keys, step
                ready.run()
            return ready.gradients

        return gradients

    def ready(self, length: int, inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        """The program for a wave like this one; the length is that of the vector of weights."""
        programs: OrderedDict[object, Ready] = vars(self.kept).setdefault("programs", OrderedDict())
        kind = length, inputs.shape, inputs.dtype, tuple(getattr(part, name) for part, name in self.dropouts)
        if kind not in programs:
            programs[kind] = self.written(length, inputs, targets, keys)
            if len(programs) > PROGRAMS_KEPT:
                programs.popitem(last=False)
        programs.move_to_end(kind)
        return programs[kind]

    def written(self, length: int, inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        rows, graph = len(keys), self.traced.training
        weights, found, now = torch.zeros(length), torch.zeros(length), Now(inputs, targets, keys)
        views, places = (self.layout.dense_views(vector, rows) for vector in (weights, found))
        own = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        program = Program(rows, now, views, places)
        outputs = emit(program, graph.nodes, graph.modules, self.traced.prefix, own)
        if not outputs.is_trained:
            raise NotStackable("outputs that no weight has a say in")
        self.write_loss(program, outputs)
        program.finish()
        return Ready(program, now, own, weights, found)

    def write_loss(self, program: Program, outputs: Value) -> None:
        """The gradient of the sum of all rows' losses by the outputs."""
        scores, now = outputs.tensor, program.now
        into = torch.empty(scores.shape)
        outputs.given.append((into, True))
        if is_cross_entropy(self.loss) and scores.dim() == 3 and not now.targets.is_floating_point():
            minus, batch = (
                torch.full((1, 1, 1), -1.0).expand(*scores.shape[:2], 1),
                torch.tensor(float(scores.shape[1])),
            )
            program.do(torch.softmax, scores, -1, out=into)
            program.operations.append(lambda: into.scatter_add_(2, now.targets.unsqueeze(2), minus).div_(batch))
            return

        def by_autograd() -> None:
            with torch.enable_grad():
                leaf = scores.detach().requires_grad_()
                into.copy_(torch.autograd.grad(sum_of_losses(self.loss, leaf, now.targets), leaf)[0])

        program.operations.append(partial(by_autograd))
