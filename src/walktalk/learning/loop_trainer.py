"""Trains and measures states of somebody else's loop, row after row: what the executor calls for a `LoopTask`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from walktalk.core.errors import ModelError
from walktalk.core.plugins import of_the_person
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.evaluation import EvaluationSamples
from walktalk.learning.optimizers import RowOptimizer, RowSGD
from walktalk.learning.private import PrivatePart
from walktalk.learning.samples import all_seeded
from walktalk.learning.state_tree import article, words_of
from walktalk.learning.tasks.loop import LoopTask, StateModel, numbers_of
from walktalk.learning.trainer import Trainer, TrainerKeywords, TrainerSettings
from walktalk.learning.training import Extras, TrainedRows, TrainingRows

UNSAID = (0.9, True)  # momentum of a study that says nothing of its optimizer, and whether it is Nesterov's
TESTED = {"loss": "test_loss", "accuracy": "test_accuracy"}  # how they are called on data that nobody trains on
HISTORY_OWN = ("iteration", "time", "bits", "model_bits", "consensus")  # columns that no measurement fills
SAME_RATE = 1e-6  # a learning rate that differs by less is the study's: rows have 32 bits


class LoopTrainer(Trainer):
    """Trains the states of a study by the person's own function, one after the other.

    Rows are on the CPU; where the person's function computes is the function's own affair.
    """

    private: PrivatePart | None = None  # all of a state is shared
    rows_at_once: int | None = 1

    def __init__(
        self, task: LoopTask, settings: TrainerSettings | None = None, **keywords: Unpack[TrainerKeywords]
    ) -> None:
        """
        - `task`: the functions, the state and the data.
        - `settings`, `keywords`: as of any trainer. Batch size and steps are handed to a step that names them; of the
            optimizer only the learning rate counts; rows are on the CPU, and what is for models of torch is refused.
        """
        given = replace(settings or TrainerSettings(), **keywords)
        study = given.for_study
        check_what_a_loop_does_itself(study.on_rows, given.arithmetic or Arithmetic(), given.validation)
        self.task, self.best_by, self.loop = task, given.best_by, task.loop
        self.device = torch.device("cpu")
        self.batches, self.steps = self.count_work(given)
        self.lr = study.lr
        self.evaluation = given.evaluation or EvaluationSamples()
        self.template: nn.Module = task.model
        self.forms: Any = SimpleNamespace(by_row=self, in_place=None, graphed=None)  # one row after the other, no other
        self.averaging: Any = task.loop.mixing
        self._seen: set[int] = set()  # nodes whose data was looked at, before and after a training

    @property
    def width(self) -> int:
        return self.loop.layout.width

    @property
    def parameters(self) -> int:
        return self.loop.layout.width

    @property
    def state_width(self) -> int:
        """How many numbers what the optimizer remembers has, and one that says whether there is anything."""
        return 0 if self.loop.memory is None else 1 + self.loop.memory.width

    @property
    def data_bytes(self) -> int:
        """Unknown: the data is the person's, and in memory already."""
        return 0

    @property
    def activations(self) -> int:
        """Unknown, as what the person's function takes beside the state."""
        return 0

    @property
    def wave_sizes(self) -> tuple[int, ...]:
        return ()

    @property
    def best_width(self) -> int | None:
        return 1

    @property
    def samples(self) -> list[int]:
        return [len(part) for part in self.task.parts]

    def initial_row(self, seed: int) -> Tensor:
        """The state that a run starts from, as a row."""
        model = self.task.initial(seed)
        assert isinstance(model, StateModel)
        return model.row.detach().clone()

    def module(self, row: Tensor, private: Tensor | None = None) -> nn.Module:
        """A row's state as a module; its `state` is the person's own tree."""
        return StateModel(self.loop.layout, row.detach().cpu().clone())

    def train(self, given: TrainingRows) -> TrainedRows:
        """Calls the person's function for every row, one after the other."""
        found = [self._train_one(given, place) for place in range(len(given.rows))]
        rows = torch.stack([row for row, _ in found])
        if given.state is None:
            return TrainedRows(rows)
        return TrainedRows(rows, torch.stack([state for _, state in found if state is not None]))

    def _train_one(self, given: TrainingRows, place: int) -> tuple[Tensor, Tensor | None]:
        loop, row, part = self.loop, given.rows[place], int(given.parts[place])
        if part >= len(loop.data):
            raise ModelError(f"task {self.task.name}: a loop is given one node's data, never everybody's at once")
        extras, key = given.extras, int(given.keys[place])
        lr, gradient = float(given.lr[place]), extras is not None and extras.gradient
        known = {
            "lr": lr,
            "steps": self.steps[part] if extras is None else extras.steps,
            "batch_size": self.batches[part],
            "rng": np.random.default_rng(key % 2**64),
            "seed": key % 2**31,
            "node": part if self.task.names is None else self.task.names[part],
            **self._asked_by_the_algorithm(extras, place),
        }
        if loop.memory is not None:
            known["memory"] = self._memory(given.state, place)
        asked = {name: value for name, value in known.items() if name in loop.wants}
        state = loop.layout.state(row)
        form = type(state)  # before somebody changes it in place
        with self._unchanged(part), self._calling("step", loop.step, key % 2**32):
            trained = loop.step(state, loop.data[part], **asked)
        if trained is None:
            raise ModelError(f"task {self.task.name}: step gave back nothing; it has to return the new state")
        memory = None
        if loop.memory is not None:
            if not isinstance(trained, tuple) or len(trained) != 2:
                raise ModelError(f"task {self.task.name}: step has to return (state, memory), since memory= was given")
            trained, memory = trained
        elif isinstance(trained, tuple) and form not in (tuple, list, type(trained)):
            raise ModelError(
                f"task {self.task.name}: step gave back a tuple of {len(trained)}, and a state is a {form.__name__}; "
                "it has to return the new state alone: losses are what evaluate returns"
            )
        new = loop.layout.row(trained, f"task {self.task.name}: what step gave back")
        if not gradient:
            new = self._as_far_as(row, new, lr)
        if given.state is None:
            return new, None
        assert loop.memory is not None
        numbers = loop.memory.row(memory, f"task {self.task.name}: the memory that step gave back")
        return new, torch.cat((torch.ones(1), numbers))

    @contextmanager
    def _calling(self, name: str, function: Callable[..., Any], seed: int) -> Iterator[None]:
        """Around a call of the person's own function: seeded, with gradients as torch begins with, and put back."""
        task = self.task.name
        with of_the_person(f"task {task}: {name}", function, ModelError), all_seeded(seed), torch.enable_grad():
            yield

    @contextmanager
    def _unchanged(self, part: int) -> Iterator[None]:
        """Around the first training of a node: a `ModelError` where it has changed the node's data in place."""
        if part in self._seen:
            yield
            return
        self._seen.add(part)
        before = numbers_of(self.loop.data[part])
        yield
        after = numbers_of(self.loop.data[part])
        changed = next((way for way, numbers in before.items() if after.get(way) != numbers), None)
        if changed is not None:
            raise ModelError(
                f"task {self.task.name}: step has changed {changed} in place, so that it would train on other data "
                "every time; let it work on a copy"
            )

    def _asked_by_the_algorithm(self, extras: Extras | None, place: int) -> dict[str, Any]:
        """What an algorithm adds to gradients, as states; a `ModelError` where the step knows nothing of it."""
        found: dict[str, Any] = {"correction": None, "anchor": None, "pull": 0.0, "gradient": False}
        if extras is None:
            return found
        if extras.correction is not None:
            found["correction"] = self.loop.layout.state(extras.correction[place])
        if extras.anchor is not None and extras.pulls is not None:
            found |= {"anchor": self.loop.layout.state(extras.anchor[place]), "pull": float(extras.pulls[place])}
        found["gradient"] = extras.gradient
        for name in ("correction", "anchor", "gradient"):
            if found[name] not in (None, False) and name not in self.loop.wants:
                raise ModelError(lacks(self.task.name, name))
        return found

    def _memory(self, states: Tensor | None, place: int) -> Any:
        """What the optimizer remembers; at the first time, or where the study keeps nothing, what it begins with."""
        layout = self.loop.memory
        assert layout is not None
        if states is None or not bool(states[place, 0]):
            return layout.state(layout.row(self.loop.memory_start, "memory"))
        return layout.state(states[place, 1:])

    def _as_far_as(self, row: Tensor, new: Tensor, lr: float) -> Tensor:
        """The trained row, or as far on the way to it as the learning rate says, where a step knows nothing of that."""
        share = lr / float(np.float32(self.lr))
        if "lr" in self.loop.wants or abs(share - 1.0) < SAME_RATE:
            return new
        if self.loop.is_carried:
            raise ModelError(
                f"task {self.task.name}: its learning rate changes, by a schedule or the weights of nodes, and step "
                'takes no lr; add the argument lr, or set objective="sites" and no schedule'
            )
        return row + share * (new - row)

    def train_in_place(self, *given: Any, **more: Any) -> bool:
        """False: rows are always copied."""
        return False

    def private_parts(self, states: Tensor) -> dict[str | int, dict[str, Tensor]]:
        return {}

    # -- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, rows: Tensor, states: Tensor | None = None) -> dict[str, Tensor]:
        """Training loss of every state, and what is measured on test data."""
        found: dict[str, list[float]] = {}
        for row in rows:
            for name, value in self._measured(row).items():
                found.setdefault(name, []).append(value)
        return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}

    def _measured(self, row: Tensor) -> dict[str, float]:
        shares = self._shares()
        losses = [share * self._numbers(row, self.loop.data[node])["loss"] for node, share in shares.items()]
        measured = {"train_loss": math.fsum(losses), "test_accuracy": math.nan}
        return measured | (self._tested(row, self.loop.tests) if self.task.test is not None else {})

    def _shares(self) -> dict[int, float]:
        """How much the loss of every node counts in that of all."""
        nodes = self.evaluation.nodes
        chosen = list(dict.fromkeys(range(self.task.nodes) if nodes is None else nodes))
        unknown = next((node for node in chosen if not 0 <= node < self.task.nodes), None)
        if unknown is not None:
            raise ModelError(f"evaluate.nodes: there is no node {unknown}; allowed: 0 to {self.task.nodes - 1}")
        weights = self.evaluation.weights or self.samples
        total = sum(weights[node] for node in chosen)
        return {node: weights[node] / total for node in chosen}

    def _tested(self, row: Tensor, tests: Sequence[Any]) -> dict[str, float]:
        """What is measured on test data: of several nodes' own the mean, every node counting by its test samples."""
        sizes = [1] if self.task.test_parts is None or len(tests) == 1 else [len(part) for part in self.task.test_parts]
        found: dict[str, float] = {}
        for data, size in zip(tests, sizes, strict=True):
            for name, value in self._numbers(row, data).items():
                called = TESTED.get(name, name)
                found[called] = found.get(called, 0.0) + value * size / sum(sizes)
        return {"test_accuracy": math.nan, **found}

    def _numbers(self, row: Tensor, data: Any) -> dict[str, float]:
        """What the person's own function says of a state on some data."""
        loop = self.loop
        with self._calling("evaluate", loop.evaluate, 0):
            found = loop.evaluate(loop.layout.state(row), data)
        if found is None:
            raise self._no_loss("nothing")
        if not isinstance(found, Mapping):
            return {"loss": self._number("", found)}
        numbers = {str(name): self._number(str(name), value) for name, value in found.items()}
        if "loss" not in numbers:
            raise self._no_loss(f"only {', '.join(numbers) or 'an empty dictionary'}")
        self._check_names(numbers)
        return numbers

    def _number(self, name: str, value: Any) -> float:
        """What `evaluate` gave, as a number; a text is none."""
        if not isinstance(value, (str, bytes)):
            with suppress(TypeError, ValueError, RuntimeError):
                return float(value.detach() if isinstance(value, Tensor) else value)
        called = type(value).__name__
        kind = article(called) if called in ("str", "bytes") else words_of(value, getattr(value, "shape", ()))
        raise self._no_loss(f"{name}: {kind}" if name else kind)

    def _no_loss(self, given: str) -> ModelError:
        return ModelError(
            f"task {self.task.name}: evaluate has to return a loss, or {{'loss': …, …}} with numbers; it gave {given}"
        )

    def _check_names(self, numbers: Mapping[str, float]) -> None:
        """Raise a `ModelError` where something that was measured would be taken for something else."""
        taken = {"train_loss", *HISTORY_OWN, *(TESTED[name] for name in TESTED if name in numbers)}
        twice = next((name for name in numbers if name in taken), None)
        if twice is not None:
            raise ModelError(
                f"task {self.task.name}: evaluate gave {twice}, which is a column of every history; call it something "
                "else (loss and accuracy on test data become test_loss and test_accuracy by themselves)"
            )

    def evaluate(self, rows: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Training loss and test accuracy of every state."""
        measured = self.measure(rows)
        return measured["train_loss"], measured["test_accuracy"]

    def by_node(self, row: Tensor, states: Tensor | None = None) -> list[dict[str, Any]]:
        """One state on every node's own data: its name or number, samples, loss, and what its own test data says."""
        found = []
        for node, name in enumerate(self.task.names or range(self.task.nodes)):
            loss = self._numbers(row, self.loop.data[node])["loss"]
            line: dict[str, Any] = {"node": name, "samples": self.samples[node], "train_loss": loss}
            if self.task.test is not None and self.task.test_parts is not None:
                line |= self._tested(row, self.loop.tests[node : node + 1])
            found.append(line)
        return found


def lacks(task: str, name: str) -> str:
    """What is said where an algorithm asks for something that a step does not take."""
    what = {
        "correction": "adds something to every gradient",
        "anchor": "pulls every step back to another model",
        "gradient": "asks for gradients, not only for trained models",
    }[name]
    arguments = "anchor and pull" if name == "anchor" else name
    return (
        f"task {task}: the algorithm {what}, and step takes no {arguments}; add {arguments} to its arguments, or take "
        "another algorithm, such as multi_walk, async_gossip or fedavg"
    )


def check_what_a_loop_does_itself(optimizer: RowOptimizer, arithmetic: Arithmetic, validation: Any) -> None:
    """Refuses settings of a study that only models of torch follow: a loop has its own."""
    said = (optimizer.momentum, optimizer.nesterov) if isinstance(optimizer, RowSGD) else None
    if said not in ((0.0, False), UNSAID) or (isinstance(optimizer, RowSGD) and optimizer.weight_decay):
        raise ModelError(
            "optimizer: a loop has its own, and is only told a learning rate; give wt.SGD(lr=…), without decay and "
            "clip_norm"
        )
    if arithmetic.precision != "fp32":
        raise ModelError(f"training.precision: {arithmetic.precision} is the loop's own affair; leave it out")
    if validation is not None:
        raise ModelError(
            "evaluate.validation: a loop's data cannot be divided from outside; hold some back yourself, give it as "
            "test=, and keep the best by evaluate.best: test_loss"
        )
