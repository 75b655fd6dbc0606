"""A plain loop in torch as the trainer of a node: `Visits` loads the model that comes, and gives it back after a while.

    visits = walktalk.torch.Visits("cluster.yaml", "lyon", model)
    for batch in endless(batches):
        loss = train_on(batch)
        if not visits.step(loss=loss):
            break

`walktalk.lightning` and `walktalk.transformers` are callbacks over the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, distributed, nn

from walktalk.api import Site, Visit, site
from walktalk.core.errors import DataError, UnavailableError
from walktalk.core.settings import misfit
from walktalk.learning import tasks
from walktalk.runtimes.peers import load_cluster
from walktalk.studies import load_spec, make_spec

log = logging.getLogger(__name__)

SAY_EVERY = 1.0  # seconds between two reports of progress


class Visits:
    """The visits of one node's own training loop: a model comes, is trained for some steps, and is given back.

    Several processes that train one model together (`torch.distributed`) each make their own: the first talks to the
    node, and the others hear of it. The parameters of each have to be whole: sharded ones are refused.

    Args:
        config: The cluster's YAML file; or a site that is open, or other visits.
        name: Which of its nodes this is.
        module: What is trained; the arrays of the study are loaded into it when a model comes.
        optimizer: Yours, if the study is to say what becomes of its memory: begun anew for every model, kept at
            the node, or sent with the walk. If left out, it stays with you and is none of ours.
        steps: Optimizer steps with every model; the study's `local_steps` if left out.
        evaluate: Measures the module as it came, on data of yours: numbers by name, `train_loss` among them.
    """

    def __init__(
        self,
        config: str | PathLike[str] | Iterable[Any],
        name: str = "",
        module: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        steps: int | None = None,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        if steps is not None and steps < 1:
            raise misfit("steps", steps, "a whole number, 1 or more", DataError)
        self.over = False  # whether there are no more visits
        self.visit: Visit | None = None  # the visit that is under way, where this process talks to the node
        self._module, self._optimizer, self._evaluate = module, optimizer, evaluate
        self._wanted, self._steps = steps, 0
        self._done, self._samples, self._said_at = 0, 0, 0.0
        self._losses: list[Tensor] = []  # looked at when the visit ends: nothing waits for a GPU
        self._measures: dict[str, float] = {}
        self._given = config, name
        self._site: Site | None = None
        self._visits: Iterator[Any] | None = None

    def __enter__(self) -> Visits:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close(*error)

    def __iter__(self) -> Iterator[Visits]:
        """A visit after the other; each ends with the body of the loop, as one step if it counted none itself."""
        while self.begin():
            yield self
            self.finish()

    @property
    def module(self) -> nn.Module:
        """The module that is trained."""
        if self._module is None:
            raise DataError("module: nothing is known to train; give Visits your module")
        return self._module

    @module.setter
    def module(self, module: nn.Module) -> None:
        self._module = module

    def begin(self, module: nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None) -> bool:
        """Wait for the next model and load it; False where the run is over.

        Args:
            module: What is trained from now on, where it was not known before.
            optimizer: Likewise.
        """
        self._module, self._optimizer = module or self._module, optimizer or self._optimizer
        self._done, self._samples, self._losses, self._measures = 0, 0, [], {}
        if self._visits is None:
            whole(self.module)
            self._visits = iter(self._open())
        self.visit = next(self._visits, None)
        self.over = self.visit is None
        if self.visit is not None:
            self._steps = self._wanted or max(1, self.visit.steps)
            if self._optimizer is not None:
                self._optimizer.state.clear()  # what the study keeps of it comes with the visit
            self.visit.load(self.module, self._optimizer)
        return not self.over

    def _open(self) -> Iterable[Any]:
        """The visits of the node; where the study's file is not there, it is written from the module as it is."""
        config, name = self._given
        if not isinstance(config, (str, PathLike)):
            self._site = config if isinstance(config, Site) else None
            return config
        path = start_file(Path(config))
        if path is not None and not path.exists() and is_first():
            own = path.with_name(f"{path.name}.{os.getpid()}")
            write_start(self.module, own)
            with suppress(FileExistsError):  # another site of this machine was first
                os.link(own, path)
            own.unlink()
            log.info("%s was not there, and is written; all sites need the same one", path)
        measure = None if self._evaluate is None else self._measured
        self._site = site(config, name, evaluate=measure, several=False)  # others hear from the module
        return self._site

    def step(self, loss: Any = None, samples: int = 0, **measured: Any) -> bool:
        """To be called after every optimizer step: gives the model back when it is time, and loads the next one.

        The first call of all only waits for the first model, if `begin` was not called before: what was trained until
        then is replaced. Returns False where the run is over.

        Args:
            loss: Of this step; the mean over a visit is told as `train_loss`.
            samples: How many samples the step was of.
            measured: What else was measured.
        """
        if self.over or not self._steps:
            return not self.over and self.begin()
        self.report(**measured)
        return self.next() if self.count(loss, samples) else True

    def count(self, loss: Any = None, samples: int = 0) -> bool:
        """Count a step; whether it was the last of this visit."""
        self._done += 1
        self._samples += samples
        if loss is not None:
            self._losses.append(loss.detach() if isinstance(loss, Tensor) else torch.tensor(float(loss)))
        self._say_progress()
        return self._done >= self._steps > 0

    def next(self) -> bool:
        """Give the model back and load the next one; False where the run is over."""
        self.finish()
        return self.begin()

    def report(self, **measured: Any) -> None:
        """Take in what was measured in this visit: numbers by name, of which the last are told."""
        for name, value in measured.items():
            with suppress(TypeError, ValueError):  # what is no number is not told
                self._measures[name] = float(value.detach() if isinstance(value, Tensor) else value)

    def finish(self) -> bool:
        """Give the model back as it is now; whether it counts."""
        visit, steps = self.visit, max(1, self._done)
        self.visit, self._steps = None, 0
        if visit is None:
            return False
        loss = {"train_loss": float(torch.stack(self._losses).double().mean())} if self._losses else {}
        metrics = {**loss, **self._measures}
        counts = {"steps": steps} | ({"samples": self._samples} if self._samples else {})
        return bool(visit.finish(self.module, metrics=metrics, optimizer=self._optimizer, **counts))

    def close(self, *error: Any) -> None:
        """End the last visit, whatever of it was done, and let the node go on without this script."""
        if self.visit is not None and not self.visit.is_over and not any(error):
            self.finish() if self._done else self.visit.skip()
        self.over = True
        if self._site is not None:
            self._site.__exit__(*(error or (None, None, None)))

    def _say_progress(self) -> None:
        now = time.monotonic()
        if self.visit is not None and now - self._said_at >= SAY_EVERY:
            self._said_at = now
            self.visit.progress(self._done / self._steps)

    def _measured(self, visit: Visit) -> Mapping[str, float]:
        assert self._evaluate is not None
        visit.load(self.module)
        return self._evaluate()


class TakesVisits:
    """What the callbacks of `walktalk.lightning` and `walktalk.transformers` have in common.

    Args:
        config: The cluster's YAML file; or a site that is open.
        name: Which of its nodes this is.
        steps: Optimizer steps with every model; the study's `local_steps` if left out.
        with_optimizer: Whether the optimizer's memory is handed over: then the study says what becomes of it.
        evaluate: Measures the module as it came: numbers by name, `train_loss` among them.
    """

    lacks: ClassVar[str] = ""  # what has to be installed before there can be one

    def __init__(
        self,
        config: str | PathLike[str] | Iterable[Any],
        name: str = "",
        *,
        steps: int | None = None,
        with_optimizer: bool = False,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        if self.lacks:
            raise UnavailableError(self.lacks)
        super().__init__()
        self._given = config, name
        self._steps, self._with_optimizer, self._evaluate = steps, with_optimizer, evaluate
        self.visits: Visits | None = None

    def begin(self, module: nn.Module, optimizer: Any) -> bool:
        """Wait for the first model; False where the run is over."""
        inside = getattr(optimizer, "optimizer", optimizer)  # trainers put their own around it
        kept = inside if self._with_optimizer else None
        self.visits = Visits(*self._given, module, kept, steps=self._steps, evaluate=self._evaluate)
        return self.visits.begin()


def start_file(config: Path) -> Path | None:
    """The file of a cluster's study that training starts from; None where its task has none."""
    cluster = load_cluster(config)
    spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    state = spec.task.settings.get("state")
    return Path(state) if spec.task.name == "outside" and isinstance(state, str) else None


def write_start(module: nn.Module, path: str | PathLike[str]) -> None:
    """Write what all nodes of a study begin with, and what alone travels: the arrays of a module that train.

    Where nothing is frozen these are all; of a frozen model with adapters they are the adapters.

    Args:
        module: The model, as your script makes it.
        path: Of the safetensors file that the study names, `task: {name: outside, state: PATH}`.
    """
    inside = tasks.unwrapped(module)
    everything = inside.state_dict()
    frozen = {name for name, parameter in inside.named_parameters() if not parameter.requires_grad}
    if not frozen:
        tasks.write_state(inside, path)
        return
    trained = {name for name, parameter in inside.named_parameters() if parameter.requires_grad}
    parts = {name.rpartition(".")[0] for name in trained}
    beside = {name for name, _ in inside.named_buffers() if name in everything and name.rpartition(".")[0] in parts}
    if not trained:
        raise DataError("module: nothing of it trains; set requires_grad of what is to travel")
    tasks.write_state({name: array for name, array in everything.items() if name in trained | beside}, path)


def is_first() -> bool:
    """Whether this is the first of the processes that train one model together, or alone."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def whole(module: nn.Module) -> None:
    """Refuse a module whose parameters are spread over several processes."""
    for name, parameter in tasks.unwrapped(module).named_parameters():
        tasks.check_whole(name, parameter)
