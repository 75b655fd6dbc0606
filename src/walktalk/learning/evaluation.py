"""Loss, accuracy and metrics of one's own over all samples, for many rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from walktalk.core.errors import ModelError
from walktalk.learning.arithmetic import fewer_rows, is_out_of_memory
from walktalk.learning.samples import Column, Samples, only, pieces
from walktalk.learning.stacked import (
    OpaqueLoss,
    RowByRowLoss,
    SequentialModel,
    SharedBaseModel,
    StackedModel,
    row_losses,
)
from walktalk.learning.stacked.model import is_cross_entropy, is_of_classes, takes_classes
from walktalk.learning.task import Lengths, Loss, Metric, Task
from walktalk.learning.training import ChainTraining, TrainingData


def mean_loss(model: StackedModel, rows: Tensor, inputs: Samples, targets: Samples, lengths: Lengths | None) -> Tensor:
    """The mean loss of every row over all samples, [W]."""
    total = torch.zeros(len(rows), device=rows.device, dtype=torch.float64)
    for x, y in batches(model, inputs, targets, lengths):
        with torch.no_grad():
            outputs = model.outputs(rows, x)
            total += row_losses(model.loss, outputs, y.expand(len(rows), *y.shape)).double() * len(y)
    return (total / len(inputs)).float()


@dataclass(frozen=True)
class Test:
    """What is measured on the test samples."""

    inputs: Samples
    targets: Samples
    loss: Loss
    lengths: Lengths | None = None
    predictions: Callable[[Tensor], Tensor] | None = None  # from the model's outputs, where they hold more than those
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    has_classes: bool = True  # whether whole numbers among the targets are classes, of which there is an accuracy

    def of(self, model: StackedModel, rows: Tensor) -> dict[str, Tensor]:
        """Accuracy, loss and the person's own metrics of every row, [W] each, from one pass over the samples."""
        right, losses = (torch.zeros(len(rows), device=rows.device, dtype=torch.float64) for _ in range(2))
        judged = torch.zeros((), device=rows.device, dtype=torch.float64)
        kept: list[Tensor] = []
        for x, y in batches(model, self.inputs, self.targets, self.lengths):
            outputs = model.outputs(rows, x)
            with torch.no_grad():
                losses += row_losses(self.loss, outputs, y.expand(len(rows), *y.shape)).double() * len(y)
            outputs = outputs if self.predictions is None else self.predictions(outputs)
            right += self.sum_of_hits(outputs, y, is_cross_entropy(model.loss))
            judged += (y >= 0).sum()
            if self.metrics:
                kept.append(outputs.cpu())
        count = len(self.inputs)
        found = {"test_accuracy": (right / judged).float(), "test_loss": (losses / count).float()}
        return found | (self.own(torch.cat(kept, 1), rows.device) if kept else {})

    def sum_of_hits(self, outputs: Tensor, targets: Tensor, by_cross_entropy: bool) -> Tensor:
        """How many targets each row has right; a negative one, such as torch's −100, is to be ignored."""
        dimension = None
        if self.has_classes and not targets.is_floating_point():
            dimension = dimension_of_classes(outputs, targets, by_cross_entropy)
        if dimension is None:
            return torch.full((len(outputs),), math.nan, device=outputs.device, dtype=torch.float64)
        right = hits(outputs, targets, dimension)
        return torch.where(targets >= 0, right, 0.0).flatten(1).sum(1)

    def own(self, outputs: Tensor, device: torch.device) -> dict[str, Tensor]:
        """Computes the person's own metrics, each of all samples at once."""
        targets = torch.cat(list(pieces(self.targets, len(self.targets)))).cpu()
        found = {}
        for name, metric in self.metrics.items():
            try:
                values = [float(metric(row, targets)) for row in outputs]
            except Exception as error:  # whatever a person's function does
                reason = " ".join(str(error).split())
                raise ModelError(f"metrics: {name} fails on the test samples: {reason}") from error
            found[name] = torch.tensor(values, device=device)
        return found


def as_valid(measured: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was measured on samples to validate on, by the names of that."""
    return {name.replace("test_", "valid_"): values for name, values in measured.items()}


def batches(
    model: StackedModel, inputs: Samples, targets: Samples, lengths: Lengths | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Goes through all samples. With lengths, a batch is cut where only padding is left.

    Its tokens take as long as any.
    """
    samples = model.samples_at_once
    for x, y in zip(pieces(inputs, samples), pieces(targets, samples), strict=True):
        yield x if lengths is None else x[:, : int(lengths(x).max())], y


def hits(outputs: Tensor, targets: Tensor, dimension: int) -> Tensor:
    """1 where the class with the highest score is the target, 0 elsewhere; nan where no score is the highest.

    argmax takes the first class among scores that are not numbers, so that a model that has diverged would be as good
    as the first class is frequent. A score of −∞ is fine: some models rule out a class that way. All on the device,
    since nothing here may wait for it.
    """
    right = (outputs.argmax(dimension) == targets).double()
    return torch.where(outputs.amax(dimension).isfinite(), right, math.nan)


def by_length(inputs: Samples, others: Samples, lengths: Lengths | None) -> tuple[Samples, Samples]:
    """Samples of like length together, so that none is padded for the sake of a much longer one."""
    if lengths is None or isinstance(inputs, Column) or isinstance(others, Column):
        return inputs, others
    order = lengths(inputs).argsort(stable=True)
    return inputs[order], others[order]


def has_classes(test: Test, model: StackedModel) -> bool:
    """Whether whole numbers among the targets are classes: the loss says so, or else the model that computes it.

    Of several outputs that lie in one tensor nobody knows which are the scores of classes.
    """
    loss = test.loss
    while isinstance(loss, (OpaqueLoss, RowByRowLoss)):
        loss = loss.loss
    if getattr(loss, "several_outputs", False):
        return False
    if test.targets.is_floating_point() or test.predictions is not None:
        return bool(getattr(model.module, "has_classes", True))  # of the person's loss, which the model has computed
    if is_of_classes(loss):
        return True
    row = model.layout.row(model.module).to(test.inputs.device)
    x, y = test.inputs[:2], test.targets[:2]
    outputs = model.outputs(row[None], x)
    dimension = dimension_of_classes(outputs, y, is_cross_entropy(model.loss))
    return dimension is not None and takes_classes(loss, outputs[0], y, outputs.shape[dimension])


def dimension_of_classes(outputs: Tensor, targets: Tensor, by_cross_entropy: bool) -> int | None:
    """Which dimension of the outputs [W, B, …] counts the classes for targets [B, …]; None where there are none.

    torch's cross-entropy has them right after the samples, language models and the like in the end. A single target a
    sample leaves no doubt; where both would fit, the loss decides.
    """
    shape, wanted = outputs.shape[2:], targets.shape[1:]
    after_samples = len(shape) > 0 and shape[1:] == wanted
    in_the_end = len(shape) > 0 and shape[:-1] == wanted
    if after_samples and (by_cross_entropy or not in_the_end):
        return 2
    return outputs.dim() - 1 if in_the_end else None


# How good many rows are at once: on a fixed choice of training samples, on test samples, on every node's own.

EVALUATION_SAMPLES = 10_000  # of the training data; the loss of more would cost more than it tells
NUMBERS_AT_ONCE = 2**25  # of inputs in an evaluation: bounds its memory
BYTES_AN_INPUT = 2**10  # of a GPU's memory for each of them: a large one is not to wait for Python between two kernels
NUMBERS_IN_CACHE = 2**23  # the same on a CPU, where what leaves the cache takes half as long again


class EvaluationSamples(NamedTuple):
    """Which training samples the training loss is measured on."""

    most: int | None = None  # how many; None: some thousands
    nodes: Sequence[int] | None = None  # whose; None: everybody's
    weights: Sequence[float] | None = None  # how much each node's mean counts; None: every sample counts alike


class Evaluator:
    """Measures the rows of a study, as many at once as fit into memory."""

    def __init__(
        self,
        task: Task,
        model: StackedModel,
        data: TrainingData,
        looked_at: EvaluationSamples,
        chain: ChainTraining | None,
    ) -> None:
        """
        - `task`, `model`: what is measured.
        - `data`: the training samples on the device, and which of them nodes have.
        - `looked_at`: those of them that count.
        - `chain`: how rows are trained on a CPU, where it is that way: it knows whether one alone has other bits.
        """
        self.task, self.model, self.chain = task, model, chain
        self.inputs, self.targets = data.inputs, data.targets
        self.device = data.sampler.samples.device
        self.lengths = task.lengths if isinstance(model, (SequentialModel, SharedBaseModel)) else None
        self.test = self._test()
        self.sample = self._sample(data.sampler.samples.sort().values, looked_at)
        self.shares = {} if looked_at.weights is None else self._by_node(looked_at.weights, looked_at)
        self.at_once: int | None = None  # rows; known once more did not fit
        self.valid: Test | None = None  # on samples that nobody trains on
        self.valid_of: list[Test] = []  # the same by node, where each has a part of its own in its model

    def _test(self) -> Test | None:
        """What is measured on the task's test samples."""
        if self.task.test is None:
            return None
        inputs, targets = (samples.to(self.device) for samples in self.task.test)
        inputs, targets = by_length(inputs, targets, self.lengths)
        loss = self.model.loss
        if isinstance(targets, Column) or (not targets.is_floating_point() and bool((targets < 0).any())):
            loss = OpaqueLoss(loss)  # some labels are to be ignored
        found = Test(inputs, targets, loss, self.lengths, self.task.predictions, self.task.metrics)
        return replace(found, has_classes=has_classes(found, self.model))

    def validate_on(self, samples: Sequence[np.ndarray] | None) -> None:
        """Measure on these training samples of each node, too, which it does not train on."""
        if samples is None:
            return
        self.valid = self._validation(np.concatenate(samples))
        if self.task.private:
            self.valid_of = [self._validation(own) for own in samples]

    def _validation(self, samples: np.ndarray) -> Test:
        chosen = torch.as_tensor(samples, device=self.device)
        inputs, targets = by_length(only(self.inputs, chosen), only(self.targets, chosen), self.lengths)
        found = Test(inputs, targets, self.model.loss, self.lengths, self.task.predictions)
        return replace(found, has_classes=has_classes(found, self.model))

    def _validated(self, rows: Tensor) -> dict[str, Tensor]:
        """Loss and accuracy of every row on the samples to validate on, where there are any."""
        if self.valid is None:
            return {}
        return as_valid(self.tested(rows, self.valid))

    def _sample(self, everything: Tensor, looked_at: EvaluationSamples) -> Tensor:
        """Those training samples that the loss is measured on, where every sample counts alike."""
        wanted, nodes, _ = looked_at
        if nodes is not None:
            unknown = next((node for node in nodes if not 0 <= node < self.task.nodes), None)
            if unknown is not None:
                raise ModelError(f"evaluate.nodes: there is no node {unknown}; allowed: 0 to {self.task.nodes - 1}")
            own = [torch.as_tensor(self.task.parts[node], device=self.device) for node in dict.fromkeys(nodes)]
            everything = torch.cat(own).sort().values
        return self._some_of(everything, wanted or EVALUATION_SAMPLES)

    def _by_node(self, weights: Sequence[float], looked_at: EvaluationSamples) -> dict[int, tuple[float, Tensor]]:
        """Says for each node the share of its mean loss in that of all, and on which of its samples it is measured."""
        nodes = list(dict.fromkeys(range(self.task.nodes) if looked_at.nodes is None else looked_at.nodes))
        each = -(-(looked_at.most or EVALUATION_SAMPLES) // len(nodes))
        total = sum(weights[node] for node in nodes)
        parts = {node: torch.as_tensor(self.task.parts[node], device=self.device).sort().values for node in nodes}
        return {node: (weights[node] / total, self._some_of(part, each)) for node, part in parts.items()}

    def _some_of(self, everything: Tensor, wanted: int) -> Tensor:
        """A fixed, even choice of samples: all, or some of them."""
        wanted = min(wanted, len(everything))
        places = torch.linspace(0, len(everything) - 1, wanted, device=self.device).round().long()
        chosen = everything[places]
        if self.lengths is None or isinstance(self.inputs, Column):
            return chosen
        order: Tensor = self.lengths(self.inputs[chosen]).argsort(stable=True)
        return chosen[order]

    def all_of(self, rows: Tensor) -> dict[str, Tensor]:
        """Training loss and test accuracy of every row; with test samples also their loss and the task's metrics."""
        with self.model.arithmetic.products(self.device):
            losses = self.training_loss(rows)
            if self.test is None:
                nothing = torch.full_like(losses, math.nan)
                return {"train_loss": losses, "test_accuracy": nothing, **self._validated(rows)}
            return {"train_loss": losses, **self.tested(rows, self.test), **self._validated(rows)}

    def training_loss(self, rows: Tensor) -> Tensor:
        """What the study minimizes, of every row: Σ w_i f_i, or the mean over all samples."""
        if not self.shares:
            return self.losses(rows, only(self.inputs, self.sample), only(self.targets, self.sample))
        found = [
            share * self.losses(rows, only(self.inputs, part), only(self.targets, part))
            for share, part in self.shares.values()
        ]
        return torch.stack(found).sum(0)

    def with_own(self, rows: Sequence[Tensor]) -> dict[str, Tensor]:
        """Measures models with private parts; rows: those of each node, with its own part.

        Training samples and those to validate on are measured with the part of the node that has them, test samples
        with that of every node whose they are; means are over samples, or by the weights of the objective, and over
        nodes by their samples.
        """
        count, total = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        found: dict[str, Tensor] = {}
        valid: dict[str, Tensor] = {}
        losses: Tensor | float = 0.0
        with self.model.arithmetic.products(self.device):
            for node, own in enumerate(rows):
                part = torch.as_tensor(self.task.parts[node], device=self.device)
                mine = self.sample[torch.isin(self.sample, part)]
                share, mine = self.shares.get(node, (float(len(mine)), mine))
                if len(mine) and (node in self.shares or not self.shares):
                    found_loss = self.losses(own, only(self.inputs, mine), only(self.targets, mine))
                    losses = losses + found_loss.double() * share
                    count += share
                if self.test is not None:
                    for name, values in self.tested(own, self._test_of(node, self.test)).items():
                        found[name] = found.get(name, 0.0) + values.double() * len(part)
                    total += len(part)
                if self.valid_of:
                    mine_only = self.valid_of[node]
                    for name, values in as_valid(self.tested(own, mine_only)).items():
                        valid[name] = valid.get(name, 0.0) + values.double() * len(mine_only.inputs)
        assert isinstance(losses, Tensor)
        train_loss = (losses / float(count)).float()
        tested = {name: (values / float(total)).float() for name, values in found.items()}
        held_out = sum(len(one.inputs) for one in self.valid_of)
        tested |= {name: (values / held_out).float() for name, values in valid.items()}
        return {"train_loss": train_loss, "test_accuracy": torch.full_like(train_loss, math.nan)} | tested

    def _test_of(self, node: int, test: Test) -> Test:
        """A node's own test samples, or everybody's."""
        if self.task.test_parts is None or self.lengths is not None:
            return test
        mine = torch.as_tensor(self.task.test_parts[node], device=self.device)
        return replace(test, inputs=only(test.inputs, mine), targets=only(test.targets, mine))

    def losses(self, rows: Tensor, inputs: Samples, targets: Samples) -> Tensor:
        """The mean loss of every row on some samples."""

        def of(part: Tensor) -> dict[str, Tensor]:
            return {"loss": mean_loss(self.model, part, inputs, targets, self.lengths)}

        return self._in_pieces(rows, inputs, of)["loss"]

    def tested(self, rows: Tensor, test: Test) -> dict[str, Tensor]:
        """What is measured on test samples, of every row."""
        return self._in_pieces(rows, test.inputs, lambda part: test.of(self.model, part))

    def by_node(self, rows: Tensor) -> list[dict[str, Any]]:
        """Measures a model on every node's own data: its name or number, samples, loss, and what its test samples say.

        rows: the model alone, or that of each node.
        """
        found = []
        names = self.task.names or range(self.task.nodes)
        for node, (name, part) in enumerate(zip(names, self.task.parts, strict=True)):
            own, row = torch.as_tensor(part, device=self.device), rows[node % len(rows)][None]
            loss = self.losses(row, only(self.inputs, own), only(self.targets, own))
            line: dict[str, Any] = {"node": name, "samples": len(part), "train_loss": float(loss)}
            if self.test is not None and self.task.test_parts is not None and self.lengths is None:
                line |= {key: float(value) for key, value in self.tested(row, self._test_of(node, self.test)).items()}
            found.append(line)
        return found

    def every_model_by_node(self, rows: Tensor) -> list[dict[str, Any]]:
        """Measures several models on every node's own data; a list with one number for each."""
        found = []
        most = -(-EVALUATION_SAMPLES // self.task.nodes)
        names = self.task.names or range(self.task.nodes)
        for node, (name, part) in enumerate(zip(names, self.task.parts, strict=True)):
            own = self._some_of(torch.as_tensor(part, device=self.device), most)
            losses = self.losses(rows, only(self.inputs, own), only(self.targets, own))
            line: dict[str, Any] = {"node": name, "samples": len(part), "train_loss": losses.tolist()}
            if self.test is not None and self.task.test_parts is not None and self.lengths is None:
                line |= {
                    key: values.tolist() for key, values in self.tested(rows, self._test_of(node, self.test)).items()
                }
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
