"""Models of linear layers, layer norms, attention and the like, their passes as lists of operations; on a CPU."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walktalk.learning.stacked.compiled.emit import emit
from walktalk.learning.stacked.compiled.program import Now, Program, Value
from walktalk.learning.stacked.cpu import numpy_multiplies
from walktalk.learning.stacked.model import Gradients, TracedModel, is_cross_entropy, sum_of_losses
from walktalk.learning.stacked.tensors import NotStackable
from walktalk.learning.task import Loss

BYTES_KEPT = 2**27  # of programs that nobody runs


@dataclass(eq=False)
class Ready:
    """A program and what is put into it and taken out of it; `kind` says for which waves it is."""

    kind: tuple[Any, ...]
    run: Program
    inputs: Tensor
    weights: Tensor
    gradients: Tensor


class CompiledModel(TracedModel):
    """Models of linear layers, layer norms, attention and the like, which train by a `Program`."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        if self.layout.buffers or len(self.layout.parameters) != sum(1 for _ in module.parameters()):
            raise NotStackable("statistics or frozen weights")
        kinds = {nn.Dropout: "p", nn.MultiheadAttention: "dropout"}
        self.dropouts = [(part, kinds[type(part)]) for part in module.modules() if type(part) in kinds]
        self.idle: OrderedDict[Ready, None] = OrderedDict()  # the one that was used last comes last
        self.busy = threading.Lock()

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        if weights.is_cuda or self.arithmetic.precision == "bf16":
            return super().wave(weights, buffers, keys)
        return Wave(self, weights, keys)

    def ready_for(self, length: int, inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        """A program for waves like this one that nobody else runs; the length is that of the vector of weights."""
        shares = tuple(getattr(part, name) for part, name in self.dropouts)
        kind = length, inputs.shape, inputs.dtype, targets.dtype, shares, numpy_multiplies()
        with self.busy:
            found = next((ready for ready in reversed(self.idle) if ready.kind == kind), None)
            if found is not None:
                del self.idle[found]
                return found
        return self.compiled(kind, inputs, targets, keys)

    def give_back(self, ready: Ready) -> None:
        with self.busy:
            self.idle[ready] = None
            while len(self.idle) > 1 and sum(one.run.bytes for one in self.idle) > BYTES_KEPT:
                self.idle.popitem(last=False)

    def compiled(self, kind: tuple[Any, ...], inputs: Tensor, targets: Tensor, keys: Tensor) -> Ready:
        rows, graph = len(keys), self.traced.training
        weights, found = torch.zeros(kind[0]), torch.zeros(kind[0])
        views, places = (self.layout.dense_views(vector, rows) for vector in (weights, found))
        own = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        program = Program(rows, Now(targets, keys), views, places, kind[-1])
        outputs = emit(program, graph.nodes, graph.modules, self.traced.prefix, own)
        if not outputs.is_trained:
            raise NotStackable("outputs that no weight has a say in")
        self.write_loss(program, outputs)
        program.finish()
        return Ready(kind, program, own, weights, found)

    def write_loss(self, program: Program, outputs: Value) -> None:
        """Writes the gradient of the sum of all rows' losses by the outputs."""
        scores, now = outputs.tensor, program.now
        into = torch.empty(scores.shape)
        outputs.given.append((into, True))
        if is_cross_entropy(self.loss) and scores.dim() == 3 and not now.targets.is_floating_point():
            minus = torch.full((1, 1, 1), -1.0).expand(*scores.shape[:2], 1)
            batch = torch.tensor(float(scores.shape[1]))
            program.do(torch.softmax, scores, -1, out=into)
            program.operations.append(lambda: into.scatter_add_(2, now.targets.unsqueeze(2), minus).div_(batch))
            return

        def by_autograd() -> None:
            with torch.enable_grad():
                leaf = scores.detach().requires_grad_()
                into.copy_(torch.autograd.grad(sum_of_losses(self.loss, leaf, now.targets), leaf)[0])

        program.operations.append(by_autograd)


class Wave:
    """The gradients of a wave, by a program that is its own as long as it lasts: two threads may train at once."""

    def __init__(self, model: CompiledModel, weights: Tensor, keys: Tensor) -> None:
        self.model, self.weights, self.keys = model, weights, keys
        self.ready: Ready | None = None

    def __call__(self, inputs: Tensor, targets: Tensor, step: int) -> Tensor:
        with torch.no_grad():
            ready = self.ready
            if ready is None or ready.inputs.shape != inputs.shape:
                self.end()
                ready = self.ready = self.model.ready_for(len(self.weights), inputs, targets, self.keys)
            ready.weights.copy_(self.weights)
            ready.inputs.copy_(inputs)
            now = ready.run.now
            now.targets, now.keys, now.step = targets, self.keys, step
            ready.run()
        return ready.gradients

    def end(self) -> None:
        if self.ready is not None:
            self.model.give_back(self.ready)
            self.ready = None

    def __del__(self) -> None:
        self.end()
