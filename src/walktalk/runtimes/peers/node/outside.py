"""A node's trainer that is somebody else's process: a script with a loop of its own (`wt.site`).

To the node it is a trainer like any other: a training is asked for, and ends some time. Here it is a visit: the script
asks for the next one, gets the model in memory that both have, and gives it back. The script may be slow, hang, die and
come again, or not be there at all. Where it is not there the node knows it at once, and what is asked for waits, or is
handed on.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.core.errors import UnavailableError

try:
    import fcntl
except ImportError as error:
    raise UnavailableError(
        "real nodes run on Linux only; simulations, theory and pages work here: walktalk run --engine sim"
    ) from error

from walktalk.core.errors import DataError, StudyError
from walktalk.learning import Task, TrainingRows, tasks
from walktalk.protocols import Protocol
from walktalk.runtimes.peers.wire.local import Closed, LocalConnection, SharedMemory, listen
from walktalk.runtimes.peers.wire.versions import SCRIPT, span_in, why_not_understood
from walktalk.runtimes.semantics import Work

log = logging.getLogger(__name__)

LOCK = "site.lock"  # in a node's folder: held as long as a node works there
HELLO = 10.0  # seconds that a script has for its first words
METRICS = 100  # that a script may report at once
METRIC = re.compile(r"[\w.@/ -]{1,64}")
LOSSES, ACCURACIES = ("train_loss", "loss"), ("test_accuracy", "accuracy")  # what they may be called
NOT_FINITE = "not finite"
NEVER = "no script trains here; start yours, with wt.site(…, name={name!r})"


class Answer(NamedTuple):
    """What came of a visit."""

    row: Tensor | None = None  # the trained model, in memory that the next visit overwrites; None: nothing came
    state: Tensor | None = None  # of the script's optimizer
    metrics: Mapping[str, float] = {}
    samples: int | None = None  # that it was trained on
    steps: int | None = None  # that were made
    diverged: bool = False  # nothing came, because its numbers were not finite


@dataclass
class _Visit:
    """One model that is to be trained, or measured."""

    number: int
    model: Tensor
    work: Work | None  # None: it is to be measured
    state: Tensor | None = None  # what the node keeps
    answer: Answer | None = None
    released: bool = False  # nobody waits for it any more


@dataclass
class _Script:
    """The script that trains here now."""

    connection: LocalConnection
    evaluates: bool  # whether it can measure a model
    waits: bool = False  # for the next visit
    farewell: str = ""  # why it goes, where it says so
    planned: bool = False  # a person has stopped it

    @property
    def process(self) -> int:
        return self.connection.process


@dataclass
class Connections:
    """What the trainer asks of its node, set when there is one."""

    progress: Callable[[], None] = lambda: None  # the training under way goes on
    limit: Callable[[], float] = lambda: math.inf  # seconds without a sign after which a training hangs
    iterations: Callable[[], int] = lambda: 0  # of the whole run, as far as it is known here
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the study, key by key


class OutsideTrainer:
    """Has one node's models trained by a script on the same machine; stands where a `Trainer` of ours would."""

    def __init__(self, task: Task, local_steps: int, folder: Path, name: str, keeps_memory: bool = True) -> None:
        """
        - `task`: an `outside` one, which has the arrays of the model.
        - `local_steps`: that the study asks of a training.
        - `folder`: the node's, where its socket is.
        - `name`: the node's.
        - `keeps_memory`: whether what is kept at a node has the optimizer's memory, beside private arrays.
        """
        assert isinstance(task.model, tasks.Outside)
        self.layout, self.start = task.model.layout, task.model.start
        self.optimizer: tasks.StateLayout = task.details["optimizer"]
        self.width, self.parameters = self.layout.shared, self.layout.parameters
        # What a node keeps: its private numbers, and before them one that says whether there are any; and the memory of
        # an optimizer.
        self._own = self.layout.width - self.layout.shared
        self._before = 1 + self._own if self._own else 0
        self._memory = self.optimizer.width if keeps_memory or not self._own else 0
        self.state_width = self._before + self._memory
        self.local_steps, self.device, self.private = local_steps, torch.device("cpu"), None
        self.node = Connections()
        self.missing = NEVER.format(name=name)  # why nothing can be trained now; "": a script is there
        self.planned = True  # whether it is missing because somebody wanted it so
        self.visits = 0
        self._folder, self._name = folder, name
        self._changed = threading.Condition()
        self._script: _Script | None = None
        self._open: _Visit | None = None
        self._over = ""
        self._listener: socket.socket | None = None
        self._lock = -1
        self._constants: dict[str, int] = {}  # where in the memory arrays are that do not travel
        size = end = 4 * (self.layout.width + self.optimizer.width)
        for array in self.layout.arrays:
            if array.start < 0:
                self._constants[array.name] = end = -(-end // 8) * 8
                end += self.start[array.name].nbytes
        self._given, self._back = SharedMemory.new(end), SharedMemory.new(size)
        for constant, place in self._constants.items():
            held = self.start[constant].contiguous().reshape(-1).view(torch.uint8)
            self._given.bytes[place : place + len(held)] = held

    # -- what a node asks of its trainer ------------------------------------------------------------------------------

    def initial_row(self, seed: int) -> Tensor:
        """The model that training starts from, as a row: that of the file, whatever the seed."""
        return self.layout.row(self.start)[: self.width]

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """A row's arrays by name; those that are private as all nodes have begun with."""
        return self.layout.state(torch.cat((row.cpu(), self._own_of(None))), self.start)

    def _own_of(self, state: Tensor | None) -> Tensor:
        """The private numbers in what a node keeps; those of the file where it has not trained yet."""
        if state is None or not self._own or not bool(state[0]):
            return self.layout.row(self.start)[self.width :]
        return state[1 : self._before]

    def private_part(self, state: Tensor) -> dict[str, Tensor]:
        """A node's private arrays by name, from what it keeps; {} where there are none."""
        if not self._own:
            return {}
        whole = self.layout.state(torch.cat((torch.zeros(self.width), self._own_of(state))), self.start)
        return {one.name: whole[one.name].clone() for one in self.layout.arrays if one.start >= self.width}

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        """Models of others are not trained in waves."""
        raise UnavailableError("outside: a script trains one model at a time, at its own node")

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy, where a script is there that can measure them."""
        found = [self.measure(row) for row in rows]
        return (
            torch.tensor([one_of(metrics, LOSSES) for metrics in found]),
            torch.tensor([one_of(metrics, ACCURACIES) for metrics in found]),
        )

    def measure(self, row: Tensor, state: Tensor | None = None) -> Mapping[str, float]:
        """What the script measures of a model, with what the node keeps; nothing where no script is there that can."""
        script = self._script
        if script is None or not script.evaluates or self._over:
            return {}
        return self._ask(row, None, state).metrics

    def visit(self, work: Work) -> Answer:
        """Have a model trained; waits for a script, however long that takes, until nobody waits for the model."""
        return self._ask(work.start, work, work.state)

    def _ask(self, model: Tensor, work: Work | None, state: Tensor | None) -> Answer:
        with self._changed:
            self.visits += 1
            visit = self._open = _Visit(self.visits, model, work, state)
            self._offer()
            while visit.answer is None and not self._over:
                gone = self._script is None
                if gone and (visit.released or work is None):
                    break
                self._changed.wait()
            self._open = None
            return visit.answer or Answer()

    def release(self, work: Work) -> bool:
        """Nobody waits for a training any more; False where it is done already, and will count."""
        with self._changed:
            visit = self._open
            if visit is not None and visit.work is work:
                if visit.answer is not None:
                    return False
                visit.released = True
                self._changed.notify_all()
            return True

    # -- coming and going of scripts ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Let a script come; a `StudyError` where another node works in this folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system lets it go when this process ends
        except OSError as error:
            os.close(self._lock)
            raise StudyError(f"folder: another node {self._name} works in {self._folder} on this machine") from error
        self._listener = listen(self._folder)
        threading.Thread(target=self._accept, args=(self._listener,), name="site", daemon=True).start()

    def close(self, why: str) -> None:
        """The node ends: no script can come any more."""
        self.tell_over(why)
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            os.close(self._lock)
            self._listener = None

    def tell_over(self, why: str, failed: bool = False) -> None:
        """There are no more visits, in the end or because the node has `failed`: tell the script, and wait for none."""
        with self._changed:
            script = None if self._over else self._script
            self._over = self._over or why
            self._changed.notify_all()
        if script is not None:
            with suppress(Closed):
                script.connection.send({"over": why, "failed": failed})

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(end,), name="script", daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        """Talk to one script, from its first word to its last; nothing that it says ends the node."""
        try:
            end.settimeout(HELLO)
            connection = LocalConnection(end)
            hello, _ = connection.receive()
            end.settimeout(None)
            script = _Script(connection, bool(hello.get("evaluates")))
            why = self._admit(script, hello)
            if why:
                log.warning("%s: refused a script (process %d): %s", self._name, connection.process, why)
                connection.send({"refused": why})
                connection.close()
                return
        except Exception as error:  # a stranger, or one that has gone
            log.warning("%s: refused what came to its socket: %s", self._name, error)
            end.close()
            return
        try:
            self._welcome(script)
            self._listen_to(script)
        except Closed:
            pass
        except Exception as error:
            script.farewell = f"said what cannot be ({error})"
        finally:
            self._part(script)

    def _admit(self, script: _Script, hello: Mapping[str, Any]) -> str:
        """Why a script cannot train here; "": it does from now on."""
        if why := why_not_understood(SCRIPT, span_in(hello)):
            return why
        theirs = hello.get("facts")
        if not isinstance(theirs, dict):
            return "it does not say what its study is"
        ours = json.loads(json.dumps(self.node.facts))
        differ = list(differences(theirs, ours))
        if differ:
            return f"it is of another study: {tasks.in_words(differ)}; stop the node (walktalk stop), or use its file"
        with self._changed:
            if self._over:
                return self._over
            if self._script is not None:
                return f"another script trains here, process {self._script.process}; a node has one at a time"
            self._script = script
        return ""

    def _welcome(self, script: _Script) -> None:
        self.node.progress()
        self.missing, self.planned = "", False
        memory = (self._given.descriptor, self._back.descriptor)
        sizes = [len(self._given.bytes), len(self._back.bytes)]
        said = {"name": self._name, "layout": self.layout.as_json(), "optimizer": self.optimizer.as_json()}
        script.connection.send({**said, "constants": self._constants, "memory": sizes}, memory)
        log.info("%s: a script trains here, process %d", self._name, script.process)

    def _listen_to(self, script: _Script) -> None:
        """Handle what it says until it goes: its process may be dead while a child of it holds the connection."""
        watched: list[Any] = [script.connection]
        life = -1
        if script.process and hasattr(os, "pidfd_open"):
            with suppress(OSError):
                life = os.pidfd_open(script.process)
                watched.append(life)
        try:
            while True:
                ready, _, _ = select.select(watched, [], [])
                if script.connection not in ready:
                    raise Closed("its process has ended")
                said, _ = script.connection.receive()
                with self._changed:
                    self._hear(script, said)
                    self._changed.notify_all()
        finally:
            if life >= 0:
                os.close(life)

    def _part(self, script: _Script) -> None:
        why = script.farewell or "has ended without a word"
        with self._changed:
            self._script = None
            self.planned = script.planned
            self.missing = (
                f"its script (process {script.process}) {why}; it trains again when the script is started again"
            )
            self._changed.notify_all()
        script.connection.close()

    # -- what a script says -------------------------------------------------------------------------------------------

    def _hear(self, script: _Script, said: Mapping[str, Any]) -> None:
        match said.get("say"):
            case "next":
                script.waits = True
                self._offer()
            case "progress":
                self.node.progress()
            case "finish" | "skip" | "measured":
                self._end(script, said)
            case "mistake":
                log.warning("%s: its script: %s", self._name, _short(said.get("why")))
            case "bye":
                script.farewell, script.planned = _short(said.get("why")), bool(said.get("planned"))
            case other:
                raise DataError(f"a script says {_short(other)}, which is nothing")

    def _offer(self) -> None:
        """Give the script what is to be done, where it waits for it."""
        script, visit = self._script, self._open
        if script is None or visit is None or not script.waits or visit.released or visit.answer is not None:
            return
        work = visit.work
        self._given.numbers(0, self.width).copy_(visit.model)
        if self._own:
            self._given.numbers(4 * self.width, self._own).copy_(self._own_of(visit.state))
        said: dict[str, Any] = {"visit": visit.number, "measure": work is None, "iteration": self.node.iterations()}
        if work is not None:
            if self.optimizer.width:
                beside = self._given.numbers(4 * self.layout.width, self.optimizer.width)
                kept = None if work.state is None or not self._memory else work.state[self._before :]
                beside.zero_() if kept is None else beside.copy_(kept)
            said |= {"walk": work.walk, "steps": work.steps, "lr": work.lr * work.rate, "weight": work.rate}
            said["key"] = work.key
            limit = self.node.limit()
            said["deadline"] = time.monotonic() + limit if math.isfinite(limit) else None
        self.node.progress()
        script.waits = False
        with suppress(Closed):  # it has just gone: that is seen where it is listened to
            script.connection.send(said)

    def _end(self, script: _Script, said: Mapping[str, Any]) -> None:
        """A visit is over, if it is the one that is waited for; the script is told whether it counts."""
        visit, number = self._open, said.get("visit")
        why = ""
        if visit is None or visit.number != number or visit.answer is not None:
            why = f"nobody waits for visit {_short(number)} any more"
        elif visit.released:
            why = "it took too long, and its model has gone on without it"
        elif self._over:
            why = self._over
        if why:
            log.warning("%s: its script gave a model back that counts nothing: %s", self._name, why)
            if visit is not None and visit.number == number:
                visit.answer = visit.answer or Answer()
        else:
            assert visit is not None
            visit.answer = self._answer(said)
        script.connection.send({"counts": not why, "why": why})

    def _answer(self, said: Mapping[str, Any]) -> Answer:
        metrics = said.get("metrics") or {}
        if not isinstance(metrics, dict) or len(metrics) > METRICS:
            raise DataError(f"metrics are a mapping of at most {METRICS} names to numbers")
        sound = {
            str(name): float(value)
            for name, value in metrics.items()
            if METRIC.fullmatch(str(name)) and isinstance(value, (int, float)) and math.isfinite(value)
        }
        if said["say"] != "finish":
            return Answer(metrics=sound, diverged=said.get("why") == NOT_FINITE)
        state = self._kept(bool(said.get("optimizer")))
        counted = {
            name: said[name] for name in ("samples", "steps") if isinstance(said.get(name), int) and said[name] > 0
        }
        return Answer(
            self._result(bool(said.get("lengthen"))), state, sound, counted.get("samples"), counted.get("steps")
        )

    def _kept(self, has_memory: bool) -> Tensor | None:
        """What the node keeps from now on; None: what it had. `has_memory`: whether the script gave an optimizer's."""
        has_memory = has_memory and self._memory > 0
        if not has_memory and not self._own:
            return None
        before = None if self._open is None else self._open.state
        state = torch.zeros(self.state_width) if before is None else before.clone()
        if self._own:
            state[0] = 1.0
            state[1 : self._before] = self._back.numbers(4 * self.width, self._own)
        if has_memory:
            state[self._before :] = self._back.numbers(4 * self.layout.width, self._memory)
        return state

    def _result(self, lengthen: bool) -> Tensor:
        """The model that was given back; `lengthen`: by a script that does not know how much its node counts."""
        row, work = self._back.numbers(0, self.width), None if self._open is None else self._open.work
        if not lengthen or work is None:
            return row
        further, start = row.clone(), work.start[: self.parameters]
        further[: self.parameters].sub_(start).mul_(work.rate).add_(start)
        return further


def one_of(metrics: Mapping[str, float], names: tuple[str, ...]) -> float:
    """The metric of the first of these names that is there; NaN where none is."""
    return next((metrics[name] for name in names if name in metrics), math.nan)


ABSENT = "not given"  # stands where one of two has nothing


def differences(theirs: Any, ours: Any, way: str = "") -> Iterator[str]:
    """Where a script's study differs from its node's, down to the single value: some words for each."""
    if isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = ({str(place): value for place, value in enumerate(one)} for one in (theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            place = f"{way}.{key}" if way else str(key)
            yield from differences(theirs.get(key, ABSENT), ours.get(key, ABSENT), place)
    elif theirs != ours:
        yield f"{way} is {_short(theirs)} there and {_short(ours)} at the node"


def check_outside(protocol: Protocol) -> None:
    """Raise `UnavailableError` where an algorithm asks more of a training than a loop of somebody else gives."""
    if protocol.needs_own_gradients:
        raise UnavailableError(
            f"{protocol.label} cannot have models trained by your own script, because it "
            f"{protocol.needs_own_gradients}; take one that does not: multi_walk, async_gossip, local_dsgd, fedavg …"
        )


def _short(value: object) -> str:
    text = str(value)
    text = " ".join(part for part in "".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 120 else f"{text[:119]}…"
