"""How good many rows are at once: on a fixed choice of training samples, on test samples, on every node's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.errors import ModelError
from walktalk.learning.chain_training import ChainTraining
from walktalk.learning.evaluation import Test, by_length, mean_loss
from walktalk.learning.memory import fewer_rows, is_out_of_memory
from walktalk.learning.samples import Column, Samples, only
from walktalk.learning.sampling import Sampler
from walktalk.learning.stacked import EachByItself, JoinedModel, SequentialModel, StackedModel
from walktalk.learning.task import Task

EVALUATION_SAMPLES = 10_000  # of the training data; the loss of more would cost more than it tells
NUMBERS_AT_ONCE = 2**25  # of inputs in an evaluation: bounds its memory
BYTES_AN_INPUT = 2**10  # of a GPU's memory for each of them: a large one is not to wait for Python between two kernels
NUMBERS_IN_CACHE = 2**23  # the same on a CPU, where what leaves the cache takes half as long again


class Looked(NamedTuple):
    """At which training samples is looked."""

    samples: int | None = None  # how many; None: some thousands
    nodes: Sequence[int] | None = None  # whose; None: everybody's


class Measuring:
    """Measures the rows of a study, as many at once as fit into memory."""

    def __init__(
        self,
        task: Task,
        model: StackedModel,
        data: tuple[Samples, Samples],
        sampler: Sampler,
        looked_at: Looked,
        chain: ChainTraining | None,
    ) -> None:
        """
        - `task`, `model`: what is measured.
        - `data`: the training samples, inputs and targets, on the device.
        - `sampler`: knows which of them nodes have.
        - `looked_at`: those of them that count.
        - `chain`: how rows are trained on a CPU, where it is that way: it knows whether one alone has other bits.
        """
        self.task, self.model, self.chain = task, model, chain
        self.inputs, self.targets = data
        self.device = sampler.samples.device
        self.lengths = task.lengths if isinstance(model, (SequentialModel, JoinedModel)) else None
        self.test = self._test()
        self.sample = self._sample(sampler.samples.sort().values, looked_at)
        self.at_once: int | None = None  # rows; known once more did not fit

    def _test(self) -> Test | None:
        """What is measured on the task's test samples."""
        if self.task.test is None:
            return None
        inputs, targets = (samples.to(self.device) for samples in self.task.test)
        inputs, targets = by_length(inputs, targets, self.lengths)
        loss = self.model.loss
        if isinstance(targets, Column) or (not targets.is_floating_point() and bool((targets < 0).any())):
            loss = EachByItself(loss)  # some labels are to be ignored
        return Test(inputs, targets, loss, self.lengths, self.task.predictions, self.task.metrics)

    def _sample(self, everything: Tensor, looked_at: Looked) -> Tensor:
        """A fixed, even choice of the training samples that nodes have: all, or some of them."""
        wanted, nodes = looked_at
        if nodes is not None:
            unknown = next((node for node in nodes if not 0 <= node < self.task.nodes), None)
            if unknown is not None:
                raise ModelError(f"evaluate.nodes: there is no node {unknown}; allowed: 0 to {self.task.nodes - 1}")
            own = [torch.as_tensor(self.task.parts[node], device=self.device) for node in dict.fromkeys(nodes)]
            everything = torch.cat(own).sort().values
        wanted = min(wanted or EVALUATION_SAMPLES, len(everything))
        places = torch.linspace(0, len(everything) - 1, wanted, device=self.device).round().long()
        chosen = everything[places]
        if self.lengths is None or isinstance(self.inputs, Column):
            return chosen
        order: Tensor = self.lengths(self.inputs[chosen]).argsort(stable=True)
        return chosen[order]

    def all_of(self, rows: Tensor) -> dict[str, Tensor]:
        """Of every row: training loss and test accuracy; with test samples also their loss and the task's metrics."""
        with self.model.arithmetic.products(self.device):
            losses = self.losses(rows, only(self.inputs, self.sample), only(self.targets, self.sample))
            if self.test is None:
                return {"train_loss": losses, "test_accuracy": torch.full_like(losses, math.nan)}
            return {"train_loss": losses, **self.tested(rows, self.test)}

    def losses(self, rows: Tensor, inputs: Samples, targets: Samples) -> Tensor:
        """The mean loss of every row on some samples."""

        def of(part: Tensor) -> dict[str, Tensor]:
            return {"loss": mean_loss(self.model, part, inputs, targets, self.lengths)}

        return self._in_pieces(rows, inputs, of)["loss"]

    def tested(self, rows: Tensor, test: Test) -> dict[str, Tensor]:
        """What is measured on test samples, of every row."""
        return self._in_pieces(rows, test.inputs, lambda part: test.of(self.model, part))

    def by_node(self, row: Tensor) -> list[dict[str, Any]]:
        """One model on every node's own data: its name or number, samples, loss, and what its own test samples say."""
        rows, found = row[None].to(self.device), []
        names = self.task.names or range(self.task.nodes)
        for node, (name, part) in enumerate(zip(names, self.task.parts, strict=True)):
            own = torch.as_tensor(part, device=self.device)
            loss = self.losses(rows, only(self.inputs, own), only(self.targets, own))
            line: dict[str, Any] = {"node": name, "samples": len(part), "train_loss": float(loss)}
            if self.test is not None and self.task.test_parts is not None and self.lengths is None:
                mine = torch.as_tensor(self.task.test_parts[node], device=self.device)
                test = replace(self.test, inputs=only(self.test.inputs, mine), targets=only(self.test.targets, mine))
                line |= {key: float(value) for key, value in self.tested(rows, test).items()}
            found.append(line)
        return found

    def _in_pieces(self, rows: Tensor, inputs: Samples, of: Callable[[Tensor], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Measure as many rows at once as fit."""
        per_sample = max(inputs.shape[1:].numel(), 256)
        samples = max(1, min(len(inputs), self.model.samples_at_once))
        at_once = max(1, self._inputs_at_once() // (per_sample * samples))
        found: list[dict[str, Tensor]] = []
        done = 0
        while done < max(len(rows), 1):
            part = rows[done : done + min(at_once, self.at_once or at_once)]
            try:
                found.append(self._with_twin(part, of))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self.at_once = fewer_rows(len(part), self.task.name, self.device, error)
                continue
            done += max(len(part), 1)
        return {name: torch.cat([one[name] for one in found]) for name in found[0]}

    def _inputs_at_once(self) -> int:
        """How many numbers go into a model at once in an evaluation, of all rows together."""
        if self.device.type != "cuda":
            return min(NUMBERS_AT_ONCE, NUMBERS_IN_CACHE) if self.device.type == "cpu" else NUMBERS_AT_ONCE
        return max(NUMBERS_AT_ONCE, torch.cuda.get_device_properties(self.device).total_memory // BYTES_AN_INPUT)

    def _with_twin(self, rows: Tensor, of: Callable[[Tensor], dict[str, Tensor]]) -> dict[str, Tensor]:
        if self.chain is not None and self.chain.needs_a_twin(len(rows)):
            return {name: values[:1] for name, values in of(rows.expand(2, -1)).items()}
        return of(rows)
