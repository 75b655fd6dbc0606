"""A task: one model, one loss, and data that is split over nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.core.errors import DataError
from walktalk.learning.frozen import sharing_copy
from walktalk.learning.models import LoraLinear
from walktalk.learning.samples import Samples, only

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> mean loss, as F.cross_entropy
Lengths: TypeAlias = Callable[
    [Tensor], Tensor
]  # inputs [B, T, …] -> [B]: what is behind is padding, and changes nothing
Metric: TypeAlias = Callable[[Tensor, Tensor], Any]  # (outputs, targets) of all test samples -> a number
Augment: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]  # (inputs [W, B, …], keys [W], step) -> inputs


@dataclass(repr=False)
class Task:
    """What is learned, and who has which samples."""

    name: str  # how it is called in tables and folders
    model: nn.Module  # the architecture; its weights are replaced by `initial`, unless it is pretrained
    loss: Loss  # (outputs, targets) -> mean loss, as torch.nn.functional.cross_entropy
    inputs: Samples  # all training samples
    targets: Samples  # what is to be learned, one for each sample
    parts: list[np.ndarray]  # node -> indices of its samples; disjoint, none empty
    test: tuple[Samples, Samples] | None = None  # inputs and targets that nobody trains on
    facts: dict[str, float] = field(default_factory=dict)  # what is known exactly, e.g. the smoothness of a quadratic
    labels: np.ndarray | None = None  # the class of each sample, for pictures of the partition
    pretrained: bool = False  # whether every run starts from the weights that the model has
    augment: Augment | None = None  # changes batches in training; random by the rows' keys alone (`sampling.hashed`)
    lengths: Lengths | None = None  # of samples that are padded: a large model then need not be given all of it
    details: dict[str, Any] = field(default_factory=dict)  # anything else that a person may want to know
    names: tuple[str, ...] | None = None  # of the nodes, where they have any
    test_parts: list[np.ndarray] | None = None  # node -> indices of its test samples, where each has its own
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # measured on the test samples beside loss and accuracy
    predictions: Callable[[Tensor], Tensor] | None = None  # from the model's outputs, where they hold more than those
    make: Callable[[], nn.Module] | None = None  # makes the model anew, where its parts cannot be reset

    def __post_init__(self) -> None:
        if not self.parts:
            raise DataError(f"task {self.name}: there is no node; at least one part is needed")
        empty = [node for node, part in enumerate(self.parts) if len(part) == 0]
        if empty:
            raise DataError(f"task {self.name}: node {empty[0]} has no samples; every node needs at least one")
        if len(self.inputs) != len(self.targets):
            raise DataError(f"task {self.name}: {len(self.inputs)} inputs but {len(self.targets)} targets")
        if self.names is not None and len(self.names) != len(self.parts):
            raise DataError(f"task {self.name}: {len(self.names)} names for {len(self.parts)} nodes")

    def __repr__(self) -> str:
        """Describes the task in one line; samples and weights are for others to print."""
        sizes = [len(part) for part in self.parts]
        of_each = f"{sizes[0]:,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        tests = "" if self.test is None else f", {len(self.test[0]):,} test samples"
        numbers = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"Task({self.name}: {type(self.model).__name__} with {numbers:,} parameters, {self.nodes} nodes with "
            f"{of_each} samples each{tests})"
        )

    @property
    def nodes(self) -> int:
        return len(self.parts)

    def initial(self, seed: int) -> nn.Module:
        """The model that a run starts from, the same for the same seed; torch's own random state is left alone."""
        if self.pretrained:
            return sharing_copy(self.model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            if self.make is not None:
                return self.make()
            model = copy.deepcopy(self.model)
            for module in (*model.modules(), *(m for m in model.modules() if isinstance(m, LoraLinear))):
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()  # an adapter once more, after its parts: one of its factors is zero
        return model

    def only(self, node: int) -> Task:
        """The task with this node's samples and nobody else's."""
        mine = np.asarray(self.parts[node])
        tests = self.test
        if tests is not None and self.test_parts is not None:
            tests = only(tests[0], self.test_parts[node]), only(tests[1], self.test_parts[node])
        return replace(
            self,
            inputs=only(self.inputs, mine),
            targets=only(self.targets, mine),
            parts=[np.arange(len(mine))],
            labels=None if self.labels is None else self.labels[mine],
            test=tests,
            test_parts=None,
            names=None if self.names is None else (self.names[node],),
        )

    def ordered(self, names: Sequence[str]) -> Task:
        """The task with its nodes in the order of these names, which a graph has."""
        if self.names is None:
            return replace(self, names=tuple(names))
        if self.names == tuple(names):
            return self
        without, unknown = [n for n in names if n not in self.names], [n for n in self.names if n not in names]
        if without or unknown:
            words = [f"no data for {', '.join(without)}"] if without else []
            words += [f"data for {', '.join(unknown)}, which the graph does not have"] if unknown else []
            raise DataError(
                f"task {self.name}: there is {' and '.join(words)}; the graph's nodes are {', '.join(names)}"
            )
        order = [self.names.index(name) for name in names]
        tests = self.test_parts
        return replace(
            self,
            names=tuple(names),
            parts=[self.parts[k] for k in order],
            test_parts=None if tests is None else [tests[k] for k in order],
        )
