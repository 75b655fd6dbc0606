"""Personal parts of a model: they train at a node, stay there, and are put to whatever shared part comes by.

A row that travels has the shared part alone. What a node keeps of its own lies in its state, as an optimizer's memory
does that lives at the node: so it goes the same ways, into checkpoints and back, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from walktalk.core.errors import ModelError
from walktalk.learning.stacked import RowLayout
from walktalk.learning.task import matches
from walktalk.learning.training import TrainedRows, TrainingRows
from walktalk.learning.user_data import own_name


class PrivatePart:
    """Where the private numbers of a model lie in its row, and what they begin with.

    A node's state is a flag that says whether there is one, the private numbers, and, where it is to be kept, the
    optimizer's memory. A state of zeros is that of a node that has not trained yet: it has the initial numbers.
    """

    def __init__(self, names: Sequence[str], module: nn.Module, layout: RowLayout, keeps_memory: bool = True) -> None:
        """
        - `names`: of parameters or parts, `*` for anything; running statistics in them are private, too.
        - `module`: with the numbers that every node begins with.
        - `layout`: of the module's whole row.
        - `keeps_memory`: whether the optimizer's memory is among the state; else it begins anew with every training.
        """
        self.keeps_memory = keeps_memory
        entries = [*layout.parameters, *layout.buffers]
        called = {entry.name: own_name(module, entry.name) for entry in entries}
        for name in names:
            if not any(matches(called[entry.name], name) for entry in layout.parameters):
                there = ", ".join([called[entry.name] for entry in layout.parameters][:5])
                raise ModelError(f"private: no parameter that trains is called {name!r}; there are {there}, …")
        self.entries = [entry for entry in entries if any(matches(called[entry.name], name) for name in names)]
        self.names = [called[entry.name] for entry in self.entries]
        numbers = torch.zeros(layout.width, dtype=torch.bool)
        for entry in self.entries:
            numbers[entry.start : entry.end] = True
        self.shared_parameters = int((~numbers[: layout.parameter_width]).sum())
        if not self.shared_parameters:
            raise ModelError("private: all parameters are; some have to be shared, or nodes need not meet")
        row = layout.row(module).detach()
        self.width, self.parameter_width = layout.width, layout.parameter_width
        self.own, self.shared = (mask.nonzero()[:, 0].to(row.device) for mask in (numbers, ~numbers))
        self.initial = row[self.own]

    @property
    def size(self) -> int:
        """How many numbers stay at a node."""
        return len(self.own)

    @property
    def shared_width(self) -> int:
        """How many numbers of a model travel."""
        return len(self.shared)

    def numbers(self, states: Tensor) -> Tensor:
        """The private numbers in states [W, …]; the initial ones where there is no state."""
        kept = states[:, 1 : 1 + self.size]
        return torch.where(states[:, :1] > 0, kept, self.initial.to(states.device))

    def whole(self, rows: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Whole models [W, width] of shared parts and private numbers, [W, size] or [size]; None: the initial ones."""
        found = rows.new_empty(len(rows), self.width)
        found[:, self.shared] = rows
        found[:, self.own] = (self.initial if numbers is None else numbers).to(rows.device)
        return found

    def train(self, given: TrainingRows, train: Callable[[TrainingRows], TrainedRows]) -> TrainedRows:
        """Trains whole models, and takes them apart again.

        Where an algorithm asks for a gradient, to step by itself, the private part takes a step of plain gradient
        descent.

        Args:
            given: shared parts, with nodes' states.
            train: trains whole models.
        """
        state = given.state
        rows = self.whole(given.rows, None if state is None else self.numbers(state))
        memory = None if state is None or not self.keeps_memory else state[:, 1 + self.size :]
        extras = given.extras
        if extras is not None:
            correction, anchor = extras.correction, extras.anchor
            if correction is not None:
                correction = torch.zeros_like(rows).index_copy_(1, self.shared, correction)
            if anchor is not None:  # the private part is pulled back to where it begins
                anchor = self.whole(anchor, rows[:, self.own])
            extras = extras._replace(correction=correction, anchor=anchor)
        new, memory = train(given._replace(rows=rows, state=memory, extras=extras, on_loan=False))
        own = new[:, self.own]
        if extras is not None and extras.gradient:
            steps = given.lr[:, None] * own
            own = torch.where(self.own < self.parameter_width, rows[:, self.own] - steps, own)
        if state is None:
            return TrainedRows(new[:, self.shared], None)
        after = [state.new_ones(len(state), 1), own, *([] if memory is None else [memory])]
        return TrainedRows(new[:, self.shared], torch.cat(after, 1))

    def by_name(self, numbers: Tensor) -> dict[str, Tensor]:
        """A node's private numbers [size] as tensors, by the names of the person's own module."""
        found, at = {}, 0
        for name, entry in zip(self.names, self.entries, strict=True):
            size = entry.end - entry.start
            found[name] = numbers[at : at + size].reshape(entry.shape).clone()
            at += size
        return found
