"""A model that has come to a script to be trained: what `wt.site` gives, one after the other."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from walktalk.api.talk import Talk
from walktalk.core.errors import DataError
from walktalk.core.settings import misfit
from walktalk.learning import tasks
from walktalk.records import HistoryRow
from walktalk.runtimes.peers import METRICS

log = logging.getLogger(__name__)

NOT_FINITE = "not finite"
OWN_COLUMNS = {*HistoryRow._fields} - {"train_loss", "test_accuracy"}  # of a history, which no script fills


class Visit:
    """A model that has come to be trained here, or this node's own, whose turn it is.

    Args:
        talk: With the node to which it has come.
        said: What the node says of it.
    """

    def __init__(self, talk: Talk, said: Mapping[str, Any]) -> None:
        self.node = talk.name  # whose turn it is
        self.number: int = said["visit"]  # counts this node's visits since it was started
        self.iteration: int = said.get("iteration", 0)  # trainings of the whole run, as far as it is known here
        walk = said.get("walk", -1)
        self.walk: int | None = walk if walk > 0 else None  # which walk it is; None: this node's own model
        self.steps: int = said.get("steps", 1)  # optimizer steps that the study asks for
        self.key: int = said.get("key", 0)  # of this training alone; `seed` and `rng` are made of it
        self._lr, self._weight = float(said.get("lr", math.nan)), float(said.get("weight", 1.0))
        self._weighed = False  # whether the script knows the weight
        self.deadline: float | None = said.get("deadline")  # by time.monotonic(): finish or report progress until then
        self.is_over = False
        self._talk = talk

    @property
    def lr(self) -> float:
        """The learning rate that the study asks for, by its schedule and the node's weight."""
        self._weighed = True
        return self._lr

    @property
    def weight(self) -> float:
        """Times which a learning rate of your own is to count, by the study's objective.

        Who asks neither for it nor for `lr` has the way from the old to the new model made longer by as much.
        """
        self._weighed = True
        return self._weight

    @property
    def seed(self) -> int:
        """A whole number below 2**31 of this training alone, as a `random_state`; a loop in the simulator has it."""
        return self.key % 2**31

    @cached_property
    def rng(self) -> np.random.Generator:
        """A generator of numpy, of this training alone: with it a visit can be done again, as in the simulator."""
        return np.random.default_rng(self.key % 2**64)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The model's arrays by name, in memory that the node has, too; they are yours until the visit ends."""
        return self._talk.model()

    @cached_property
    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The model's arrays by name, as NumPy arrays in the same memory as `tensors`."""
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}

    @cached_property
    def optimizer(self) -> dict[str, Tensor]:
        """The optimizer's arrays by name, where its state stays at the node or came with the walk; else {}."""
        return self._talk.optimizer()

    @property
    def seconds_left(self) -> float:
        """Seconds until the node takes this training for one that hangs."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def load(self, module: nn.Module, optimizer: Any = None) -> None:
        """Load the model into a module.

        Args:
            module: Its arrays of the study's names are overwritten; all others, such as a frozen base, stay.
            optimizer: One of torch's: what is kept of it is loaded, too, where the study keeps anything.
        """
        if not isinstance(module, nn.Module):
            self._mistake(f"load takes a module, not {type(module).__name__}; the arrays themselves are visit.tensors")
        inside = tasks.unwrapped(module).state_dict()
        for name, array in inside.items():
            tasks.check_whole(name, array)
        missing = [f"{name} is missing" for name in self.tensors if name not in inside]
        own = {name: inside[name] for name in self.tensors if name in inside}
        self._check([*missing, *(self._talk.layout.differences(own) if not missing else [])], "the module")
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                inside[name].copy_(tensor)
        if optimizer is not None and self.optimizer:
            load_optimizer(optimizer, self.optimizer)

    def progress(self, share: float = 0.0) -> None:
        """Say that the training goes on: whoever says so now and then is waited for, however long it takes.

        Args:
            share: How much of it is done, from 0 to 1.
        """
        if isinstance(share, (str, bytes)) or not hasattr(share, "__float__"):
            raise misfit("share", share, "a number from 0 to 1", DataError)
        if not self.is_over and self._talk.is_first:
            self._talk.say({"say": "progress", "visit": self.number, "share": float(share)})

    def finish(
        self,
        state: Any = None,
        *,
        samples: int | None = None,
        steps: int | None = None,
        metrics: Mapping[str, float] | None = None,
        optimizer: Any = None,
    ) -> bool:
        """Give the trained model back; whether it counts. Where it does not, a warning says why.

        Args:
            state: A module or a mapping of arrays, with the study's names, shapes and kinds; what `visit.state` has
                become in place, if left out.
            samples: How many samples it was trained on.
            steps: How many optimizer steps were made.
            metrics: What you have measured, by name: `train_loss` and `test_accuracy` are columns of the history.
            optimizer: One of torch's, or a mapping of arrays: kept as the study says, where it keeps anything.
        """
        self._check_open()
        talk = self._talk
        if not talk.is_first:
            return self._told()
        found = checked_metrics(metrics or {})
        counts = {name: whole_number(name, n) for name, n in (("samples", samples), ("steps", steps)) if n is not None}
        arrays = self.tensors if state is None else self._arrays(state)
        beside = self._optimizer_arrays(optimizer)
        talk.put(arrays, talk.layout, 0)
        talk.put(beside, talk.optimizer_layout, 4 * talk.layout.width)
        self.is_over = True
        if beside and (bad := talk.not_finite(talk.optimizer_layout, 4 * talk.layout.width)):
            talk.say({"say": "mistake", "why": bad})
            talk.ask({"say": "skip", "visit": self.number, "why": NOT_FINITE, "metrics": found})
            return self._left_out(bad)
        weighed = self._weighed or self._weight == 1.0
        said = {"say": "finish", "visit": self.number, "metrics": found, "optimizer": bool(beside), **counts}
        talk.say(said | ({} if weighed else {"lengthen": True}))
        bad = talk.not_finite(talk.layout, 0)  # the node goes on meanwhile, and sees for itself that it is so
        taken = self._verdict(talk.answer())
        if bad:
            talk.say({"say": "mistake", "why": bad})
            return self._left_out(bad)
        return self._shared(taken)

    def _left_out(self, why: str) -> bool:
        """False: the visit counts nothing, as all processes of the script are told."""
        log.warning("%s: visit %d counts nothing: %s", self._talk.name, self.number, why)
        return self._shared(False)

    def skip(self) -> None:
        """Give the model back as it came: its walk goes on, and nothing is counted."""
        self._check_open()
        if self._talk.is_first:
            self.is_over = True
            self._counts(self._talk.ask({"say": "skip", "visit": self.number}))
        else:
            self._told()

    def _told(self) -> bool:
        """What the first process of this script says of whether the visit counts."""
        assert self._talk.ranks is not None
        self.is_over = True
        return bool(self._talk.ranks.hear().get("counts"))

    def _counts(self, answer: dict[str, Any] | None) -> bool:
        """Whether a visit counts, by the node's answer."""
        return self._shared(self._verdict(answer))

    def _shared(self, counts: bool) -> bool:
        """Whether a visit counts, once all processes of the script know it."""
        if self._talk.ranks is not None:
            self._talk.ranks.say({"counts": counts})
        return counts

    def _verdict(self, answer: dict[str, Any] | None) -> bool:
        talk = self._talk
        if answer is not None and "over" in answer:
            talk.end(answer)
            answer = {"counts": False, "why": talk.over}
        if answer is None:
            log.warning(
                "%s: its node has gone before visit %d was given back; it counts nothing", talk.name, self.number
            )
            return False
        if not answer["counts"]:
            log.warning("%s: visit %d counts nothing: %s", talk.name, self.number, answer["why"])
        return bool(answer["counts"])

    def _check_open(self) -> None:
        if self.is_over:
            self._mistake(f"visit {self.number} was given back before; each is finished or skipped once")
        if self._talk.visit is not self:
            self._mistake(f"visit {self.number} is not the one that is under way")

    def _check(self, mistakes: list[str], whose: str) -> None:
        if mistakes:
            self._mistake(f"{whose} does not have the arrays of the study: {tasks.in_words(mistakes)}")

    def _mistake(self, why: str) -> None:
        """Raise a `DataError`, and let the node say so, too."""
        self._talk.say({"say": "mistake", "why": why})
        raise DataError(f"{self.node}: {why}")

    def _arrays(self, state: Any) -> Mapping[str, Tensor]:
        arrays = tasks.named_arrays(state)
        layout = self._talk.layout
        if isinstance(state, nn.Module):  # it may have more than travels, such as a frozen base
            names = [array.name for array in layout.arrays]
            arrays = {name: arrays[name] for name in names if name in arrays}
        self._check(layout.differences(arrays), "what was given back")
        return arrays

    def _optimizer_arrays(self, optimizer: Any) -> Mapping[str, Tensor]:
        layout = self._talk.optimizer_layout
        if optimizer is None or not layout.width:
            return {}
        arrays = tasks.named_arrays(optimizer)
        self._check(layout.differences(arrays), "the optimizer")
        return arrays


def load_optimizer(optimizer: Any, arrays: Mapping[str, Tensor]) -> None:
    """Put arrays into the state of one of torch's optimizers, by its parameters' numbers."""
    found: dict[int, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        number, _, what = name.partition(".")
        found.setdefault(int(number), {})[what] = array.clone()
    optimizer.load_state_dict({"state": found, "param_groups": optimizer.state_dict()["param_groups"]})


def checked_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as plain numbers; those that are not finite are left out."""
    if not isinstance(metrics, Mapping):
        raise misfit("metrics", metrics, "a mapping of names to numbers, such as {'train_loss': 0.3}", DataError)
    if len(metrics) > METRICS:
        raise DataError(f"metrics: {len(metrics)} at once; allowed: {METRICS} at most")
    found = {}
    for name, value in metrics.items():
        if name in OWN_COLUMNS:
            raise DataError(f"metrics: {name} is a column that every history has; call it something else")
        try:
            number = float(value.detach() if isinstance(value, Tensor) else value)
        except (TypeError, ValueError) as error:
            raise DataError(f"metrics: {name} is no number ({type(value).__name__})") from error
        if math.isfinite(number):
            found[str(name)] = number
    return found


def whole_number(name: str, value: Any) -> int:
    """A count that a script has given."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise misfit(name, value, "a whole number", DataError) from None
