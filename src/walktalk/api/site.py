"""`wt.site`: your own training loop as the trainer of a node of a cluster.

    with wt.site("cluster.yaml", name="lyon") as site:
        for visit in site:
            visit.load(model)
            train(model)
            visit.finish(model, samples=len(data), metrics={"auc": auc})

The node is a process of its own: it is found on this machine or started, and outlives the script.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from walktalk.api.ranks import ranks_here
from walktalk.core.errors import DataError, SpecError, UnavailableError, UserError, suggestion
from walktalk.core.settings import misfit
from walktalk.learning import tasks
from walktalk.records import HistoryRow
from walktalk.runtimes.peers import (
    METRICS,
    VERSION,
    Closed,
    LocalConnection,
    SharedMemory,
    connect,
    copied,
    load_cluster,
)
from walktalk.studies import load_spec, make_spec
from walktalk.studies.peers import check_outside_samples, study_keys

log = logging.getLogger(__name__)

LOG = "node.log"  # in a node's folder: what it says, where a script has started it
PATIENCE = 300.0  # seconds that a node may take to start: it reads libraries on a busy machine
LOOK_EVERY = 0.05  # seconds, for a node that starts
NOT_FINITE = "not finite"
OWN_COLUMNS = {*HistoryRow._fields} - {"train_loss", "test_accuracy"}  # of a history, which no script fills

Evaluate = Callable[["Visit"], Mapping[str, float]]


class Site:
    """One node of a cluster, whose models this script trains; made by `wt.site`.

    Args:
        config: The cluster's YAML file.
        name: Which of its nodes this is.
        evaluate: Measures a model as it comes; None: nobody does.
        start: Whether the node is started where it does not run.
        several: Whether all processes of the script iterate together.
    """

    def __init__(self, config: Path, name: str, evaluate: Evaluate | None, start: bool, several: bool) -> None:
        cluster = load_cluster(config)
        if name not in cluster.nodes:
            near = suggestion(name, cluster.nodes)
            raise SpecError(f"name: {name!r} is not in {config}; its nodes are {', '.join(cluster.nodes)}{near}")
        spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
        if spec.task.name != "outside":
            raise SpecError(
                f"task.name: {spec.task.name} is trained by walktalk itself; for a loop of your own say "
                "task: {name: outside, state: FILE.safetensors}"
            )
        check_outside_samples(spec, cluster)
        self.name = name
        self.folder = cluster.folder / name
        self.over = ""  # why there are no more visits; "": there may be
        self._failed = False  # whether that is because the node has ended with an error
        self._config, self._evaluate, self._start = config, evaluate, start
        self._facts = study_keys(spec, cluster)
        self._node: subprocess.Popen[bytes] | None = None
        self._connection: LocalConnection | None = None
        self._given: SharedMemory | None = None
        self._back: SharedMemory | None = None
        self._described: dict[str, Any] = {}  # what the node says of models
        self._visit: Visit | None = None
        self._ranks = ranks_here() if several else None

    # -- the loop -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Site:
        if self._given is not None:
            return self
        if self._ranks is None:
            self._connect()
        elif self._ranks.is_first:
            self._connect_for_all()
        else:
            self._prepare(self._ranks.hear(), None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        planned = kind is None or issubclass(kind, (KeyboardInterrupt, SystemExit, GeneratorExit))
        why = "was stopped" if planned else f"has ended with {kind.__name__ if kind else ''}: {error}"
        if self._connection is not None and not self.over:
            with suppress(Closed):
                self._connection.send({"say": "bye", "why": why, "planned": planned})
        self._hang_up()
        if self._ranks is not None and self.over:
            self._ranks.close()

    def __iter__(self) -> Iterator[Visit]:
        self.__enter__()
        while (visit := self._next()) is not None:
            yield visit
            if not visit.is_over and self._is_first:
                log.warning("%s: visit %d was neither finished nor skipped; it is skipped", self.name, visit.number)
                visit.skip()

    @property
    def _is_first(self) -> bool:
        """Whether this process talks to the node; others of the same script hear of it."""
        return self._ranks is None or self._ranks.is_first

    def _next(self) -> Visit | None:
        """The next model to train; None where the run is over."""
        if not self._is_first:
            return self._heard()
        said = self._next_said()
        if self._ranks is not None:
            self._ranks.say({"over": self.over, "failed": self._failed} if said is None else said)
            if said is not None and self._given is not None:
                self._ranks.share(self._given.bytes)
        self._check_node()
        self._visit = None if said is None else Visit(self, said)
        return self._visit

    def _heard(self) -> Visit | None:
        """What the first process of this script says of the next visit; verdicts that nobody waited for are passed."""
        assert self._ranks is not None
        assert self._given is not None
        while not self.over:
            said = self._ranks.hear()
            if "over" in said:
                self._end(said)
            elif "visit" in said:
                self._ranks.share(self._given.bytes)
                self._visit = Visit(self, said)
                return self._visit
        self._check_node()
        return None

    def _end(self, said: Mapping[str, Any]) -> None:
        """There are no more visits, and the node has said why."""
        self.over, self._failed = str(said["over"]), bool(said.get("failed"))

    def _check_node(self) -> None:
        """Raise an error where there are no more visits because the node has failed: the run is not over."""
        if self._failed:
            raise UnavailableError(
                f"node {self.name}: {self.over}; its log says more: {self.folder / LOG}; start this script again, and "
                "the node goes on from its checkpoint"
            )

    def _next_said(self) -> dict[str, Any] | None:
        """What the node says of the next model to train. One that is to be measured is measured on the way."""
        while not self.over:
            said = self._asked({"say": "next"})
            if said is None:
                self._find_again()
            elif "over" in said:
                self._end(said)
            elif said.get("measure"):
                self._measure(int(said["visit"]))
            else:
                return said
        return None

    def _measure(self, number: int) -> None:
        found: Mapping[str, float] = {}
        if self._evaluate is not None:
            found = checked_metrics(self._evaluate(Visit(self, {"visit": number, "measure": True})))
        self._asked({"say": "measured", "visit": number, "metrics": dict(found)})

    # -- the node -----------------------------------------------------------------------------------------------------

    def _asked(self, said: dict[str, Any]) -> dict[str, Any] | None:
        """What the node answers; None where it has gone."""
        connection = self._connection
        if connection is None:
            return None
        with suppress(Closed):  # it may have said why it goes
            connection.send(said)
        try:
            return connection.receive()[0]
        except Closed:
            self._hang_up()
            return None

    def _said(self, said: dict[str, Any]) -> None:
        with suppress(Closed):
            if self._connection is not None:
                self._connection.send(said)

    def _connect_for_all(self) -> None:
        """Talk to the node, and let the other processes of this script know what comes of it."""
        assert self._ranks is not None
        try:
            self._connect()
        except UserError as error:
            self._ranks.say({"refused": str(error)})
            raise
        self._ranks.say({**self._described, "over": self.over})

    def _connect(self) -> None:
        """Talk to the node, which is started where it does not run."""
        connection = connect(self.folder)
        if connection is None:
            connection = self._started()
        if connection is None:
            return
        hello = {"version": VERSION, "facts": self._facts, "evaluates": self._evaluate is not None}
        try:
            connection.send(hello)
            said, memory = connection.receive(descriptors=2)
        except Closed as error:
            if isinstance(error.__cause__, TimeoutError):
                raise UnavailableError(
                    f"node {self.name}, process {connection.process}, does not answer; is it stopped? End it, and the "
                    "script starts it again"
                ) from error
            raise UnavailableError(f"node {self.name} hung up; its log says why: {self.folder / LOG}") from error
        connection.wait_at_most(None)
        if "refused" in said:
            connection.close()
            raise UserError(f"node {self.name} refuses this script: {said['refused']}")
        self._prepare(said, memory)
        self._connection = connection

    def _prepare(self, said: dict[str, Any], memory: list[int] | None) -> None:
        """Learn what a model is here, and where it comes; `memory`: that of the node, None where that is another's."""
        if "refused" in said:
            raise UserError(str(said["refused"]))
        self.over = self.over or str(said.get("over", ""))
        if self.over:
            return
        self._described = {key: said[key] for key in ("layout", "optimizer", "constants", "memory")}
        self.layout = tasks.StateLayout.from_json(said["layout"])
        self.optimizer_layout = tasks.StateLayout.from_json(said["optimizer"])
        self._constants: dict[str, int] = said["constants"]
        sizes: list[int] = said["memory"]
        if memory is None:
            self._given, self._back = (SharedMemory.new(size) for size in sizes)
        else:
            self._given, self._back = (SharedMemory(*one) for one in zip(memory, sizes, strict=True))

    def _started(self) -> LocalConnection | None:
        """A connection to a node that is started now; None where its run is over."""
        if not self._start:
            raise UnavailableError(
                f"node {self.name} does not run here; start it: walktalk node --config {self._config} --name "
                f"{self.name}"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            out = (self.folder / LOG).open("ab")
        except OSError as error:
            raise UserError(
                f"folder: {self.folder} cannot be written ({error.strerror}); give the cluster file another folder"
            ) from error
        command = [sys.executable, "-m", "walktalk", "node", "--config", str(self._config), "--name", self.name]
        with out:
            before = out.tell()
            # A session of its own: Ctrl-C here stops this script, and the node goes on.
            self._node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        log.info("%s: its node is started, process %d", self.name, self._node.pid)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            connection = connect(self.folder)
            if connection is not None:
                return connection
            if self._node.poll() is not None:
                said = (self.folder / LOG).read_bytes()[before:].decode(errors="replace").strip().splitlines()
                why = said[-1] if said else "it said nothing"
                if self._node.returncode == 0:
                    self.over = why
                    return None
                raise UserError(f"node {self.name} did not start: {why}")
            time.sleep(LOOK_EVERY)
        raise UnavailableError(f"node {self.name} did not start within {PATIENCE:g} s; see {self.folder / LOG}")

    def _find_again(self) -> None:
        """The node has gone, without saying that the run is over: it is started again, if nobody else has."""
        if self._node is not None:
            with suppress(subprocess.TimeoutExpired):
                self._node.wait(5.0)
        log.warning("%s: its node has gone; it is looked for, and started again", self.name)
        self._connect()

    def _hang_up(self) -> None:
        for one in (self._connection, self._given, self._back):
            if one is not None:
                one.close()
        self._connection = self._given = self._back = None


class Visit:
    """A model that has come to be trained here, or this node's own, whose turn it is.

    Args:
        site: Where it has come.
        said: What the node says of it.
    """

    def __init__(self, site: Site, said: Mapping[str, Any]) -> None:
        self.node = site.name  # whose turn it is
        self.number: int = said["visit"]  # counts this node's visits since it was started
        self.iteration: int = said.get("iteration", 0)  # trainings of the whole run, as far as it is known here
        walk = said.get("walk", -1)
        self.walk: int | None = walk if walk > 0 else None  # which walk it is; None: this node's own model
        self.steps: int = said.get("steps", 1)  # optimizer steps that the study asks for
        self._lr, self._weight = float(said.get("lr", math.nan)), float(said.get("weight", 1.0))
        self._weighed = False  # whether the script knows the weight
        self.deadline: float | None = said.get("deadline")  # by time.monotonic(): finish or report progress until then
        self.is_over = False
        self._site = site

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

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The model's arrays by name, in memory that the node has, too; they are yours until the visit ends."""
        site = self._site
        assert site._given is not None
        constants = {}
        for array in site.layout.arrays:
            if array.start < 0:
                kind = tasks.KINDS[array.kind]
                place, size = site._constants[array.name], array.size * kind.itemsize
                constants[array.name] = site._given.bytes[place : place + size].view(kind).view(array.shape)
        return site.layout.state(site._given.numbers(0, site.layout.width), constants)

    @cached_property
    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The model's arrays by name, as NumPy arrays in the same memory as `tensors`."""
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}

    @cached_property
    def optimizer(self) -> dict[str, Tensor]:
        """The optimizer's arrays by name, where its state stays at the node or came with the walk; else {}."""
        site = self._site
        assert site._given is not None
        numbers = site._given.numbers(4 * site.layout.width, site.optimizer_layout.width)
        return site.optimizer_layout.state(numbers, {})

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
        self._check([*missing, *(self._site.layout.differences(own) if not missing else [])], "the module")
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
        if not self.is_over and self._site._is_first:
            self._site._said({"say": "progress", "visit": self.number, "share": float(share)})

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
        site = self._site
        if not site._is_first:
            return self._told()
        found = checked_metrics(metrics or {})
        counts = {name: whole_number(name, n) for name, n in (("samples", samples), ("steps", steps)) if n is not None}
        arrays = self.tensors if state is None else self._arrays(state)
        beside = self._optimizer_arrays(optimizer)
        bad = self._put(arrays, site.layout, 0) or self._put(beside, site.optimizer_layout, 4 * site.layout.width)
        self.is_over = True
        if bad:
            log.warning("%s: %s has numbers that are not finite; this visit counts nothing", site.name, bad)
            said = {"say": "skip", "visit": self.number, "why": NOT_FINITE, "metrics": found}
            site._asked(said)
            return self._shared(False)
        weighed = self._weighed or self._weight == 1.0
        said = {"say": "finish", "visit": self.number, "metrics": found, "optimizer": bool(beside), **counts}
        said |= {} if weighed else {"lengthen": True}
        return self._counts(site._asked(said))

    def skip(self) -> None:
        """Give the model back as it came: its walk goes on, and nothing is counted."""
        self._check_open()
        if self._site._is_first:
            self.is_over = True
            self._counts(self._site._asked({"say": "skip", "visit": self.number}))
        else:
            self._told()

    def _told(self) -> bool:
        """What the first process of this script says of whether the visit counts."""
        assert self._site._ranks is not None
        self.is_over = True
        return bool(self._site._ranks.hear().get("counts"))

    def _counts(self, answer: dict[str, Any] | None) -> bool:
        """Whether a visit counts, by the node's answer."""
        return self._shared(self._verdict(answer))

    def _shared(self, counts: bool) -> bool:
        """Whether a visit counts, once all processes of the script know it."""
        if self._site._ranks is not None:
            self._site._ranks.say({"counts": counts})
        return counts

    def _verdict(self, answer: dict[str, Any] | None) -> bool:
        site = self._site
        if answer is not None and "over" in answer:
            site._end(answer)
            answer = {"counts": False, "why": site.over}
        if answer is None:
            log.warning(
                "%s: its node has gone before visit %d was given back; it counts nothing", site.name, self.number
            )
            return False
        if not answer["counts"]:
            log.warning("%s: visit %d counts nothing: %s", site.name, self.number, answer["why"])
        return bool(answer["counts"])

    def _check_open(self) -> None:
        if self.is_over:
            self._mistake(f"visit {self.number} was given back before; each is finished or skipped once")
        if self._site._visit is not self:
            self._mistake(f"visit {self.number} is not the one that is under way")

    def _check(self, mistakes: list[str], whose: str) -> None:
        if mistakes:
            self._mistake(f"{whose} does not have the arrays of the study: {tasks.in_words(mistakes)}")

    def _mistake(self, why: str) -> None:
        """Raise a `DataError`, and let the node say so, too."""
        self._site._said({"say": "mistake", "why": why})
        raise DataError(f"{self.node}: {why}")

    def _arrays(self, state: Any) -> Mapping[str, Tensor]:
        arrays = tasks.named_arrays(state)
        layout = self._site.layout
        if isinstance(state, nn.Module):  # it may have more than travels, such as a frozen base
            names = [array.name for array in layout.arrays]
            arrays = {name: arrays[name] for name in names if name in arrays}
        self._check(layout.differences(arrays), "what was given back")
        return arrays

    def _optimizer_arrays(self, optimizer: Any) -> Mapping[str, Tensor]:
        layout = self._site.optimizer_layout
        if optimizer is None or not layout.width:
            return {}
        arrays = tasks.named_arrays(optimizer)
        self._check(layout.differences(arrays), "the optimizer")
        return arrays

    def _put(self, arrays: Mapping[str, Tensor], layout: tasks.StateLayout, place: int) -> str:
        """Copy arrays to where the node reads them; the name of the first that is not finite, or ""."""
        assert self._site._back is not None
        numbers = self._site._back.numbers(place, layout.width)
        for array in layout.arrays if arrays else ():
            if array.start >= 0 and not copied(numbers[array.start : array.start + array.size], arrays[array.name]):
                return array.name
        return ""


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


def site(
    config: str | PathLike[str],
    name: str,
    *,
    evaluate: Evaluate | None = None,
    start: bool = True,
    several: bool = True,
) -> Site:
    """One node of a cluster, whose models your own loop trains: iterate over its visits.

    Args:
        config: The cluster's YAML file, whose study says `task: {name: outside, state: FILE.safetensors}`.
        name: Which of its nodes this is.
        evaluate: Measures a model as it comes: gets a visit, and gives metrics by name, `train_loss` among them.
        start: Whether the node is started where it does not run. It outlives this script: `walktalk stop` ends it.
        several: Whether all processes that `torchrun` has started iterate together; if not, the first does alone.
    """
    return Site(Path(os.fspath(config)).resolve(), name, evaluate, start, several)
