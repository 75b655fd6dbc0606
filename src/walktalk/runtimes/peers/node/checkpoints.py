"""What a node keeps for a later life: its slots, its counts and the machine's memory, in a checkpoint.

Checkpoints are written in a thread, so that the node's loop never waits for the disk.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from walktalk.core.errors import SpecError, StudyError
from walktalk.core.wall_clock import wall_seconds
from walktalk.protocols import INITIAL, Rejoined
from walktalk.records import OtherVersionError, load_checkpoint, make_folder, save_checkpoint
from walktalk.runtimes.peers.identity.handshake import differences_of_the_past
from walktalk.runtimes.peers.node.effect_runner import EffectRunner
from walktalk.runtimes.peers.node.models import Models
from walktalk.runtimes.peers.node.progress import Progress
from walktalk.runtimes.peers.node.reports import Reports
from walktalk.runtimes.peers.node.state import NodeSetup, NodeState
from walktalk.runtimes.peers.node.statement import earlier_lives
from walktalk.runtimes.peers.wire.versions import CHECKPOINTS, span_in
from walktalk.runtimes.semantics import Stop

log = logging.getLogger(__name__)

EVERY = 10.0  # seconds
FIRST = 1.0  # second until the first: who dies soon after its start must know that it was there
CHECKPOINT = "checkpoint.safetensors"
STATE = "optimizer of "  # before the slot's name, in a checkpoint
SHARE = 0.05  # of the time may go into writing


@dataclass(frozen=True)
class Kept:
    """What a node needs to come back: the content of a checkpoint."""

    slots: dict[str, Tensor]
    states: dict[str, Tensor]  # of optimizers, by slot
    iterations: int
    sent: int  # bytes
    number: int  # counts a node's checkpoints over all its lives
    memory: bytes = b""  # the machine's keepsake
    seconds: float = 0.0  # that the run had lasted
    over: str = ""  # what the run was to end by, where this node has seen its end
    study: Mapping[str, Any] = field(default_factory=dict)  # what it was about (`handshake`)
    others: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # by node: iterations and bytes, as was heard
    exchanged: Mapping[str, Any] | None = None  # what was sent to whom; None: the event logs say it

    def tensors(self) -> dict[str, Tensor]:
        """The slots and the optimizer states, as one mapping."""
        return {**self.slots, **{f"{STATE}{name}": state for name, state in self.states.items()}}

    def facts(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON can say it."""
        counts = {"iterations": self.iterations, "bytes": self.sent, "number": self.number}
        others = {str(node): list(counts) for node, counts in self.others.items()}
        kept = {"memory": self.memory.hex(), "study": dict(self.study), "others": others, "exchanged": self.exchanged}
        return {**CHECKPOINTS.told(), **counts, "milliseconds": int(1e3 * self.seconds), "over": self.over, **kept}


# -- versions of checkpoints: what each says, `wire.versions` does -----------------------------------------------------


MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda facts: {**facts, "exchanged": None}  # nobody has counted what was sent to whom: the event log says it
}
"""By version: what makes the facts of a checkpoint of that version those of the next one."""


def migrated(facts: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The facts of a checkpoint of any version that is read, as the present version has them.

    A later one that says that this version can read it is read, too, without what is not known here.
    `OtherVersionError` where it does not.
    """
    written = span_in(facts, otherwise=1)
    if written is None or written.oldest > CHECKPOINTS.newest:
        said = "of no version that it says" if written is None else f"of version {written}"
        raise OtherVersionError(
            f"{path} is a checkpoint {said}, and this walktalk reads {CHECKPOINTS}; start the node with the walktalk "
            "that has written it, or begin anew with --fresh"
        )
    found = dict(facts)
    for version in range(written.newest, CHECKPOINTS.newest):
        found = MIGRATIONS[version](found)
    return found


def finished_before(folder: Path, stop: Stop) -> bool:
    """Whether a node has seen the end of its run in an earlier life; one that is to go on further is not over."""
    kept = Checkpoints(folder).load()
    return kept is not None and kept.over == repr(stop)


class Checkpoints:
    """Writes a node's checkpoints now and then, and reads the one that an earlier life has left."""

    def __init__(
        self, folder: Path, also: Callable[[], None] = lambda: None, before: Callable[[], None] = lambda: None
    ) -> None:
        """
        - `also`: what else is written now and then, at the same times.
        - `before`: what has to be safe on the disk before a checkpoint is.
        """
        try:
            make_folder(folder)
        except OSError as error:
            raise StudyError(f"folder: {folder} cannot be made: {error.strerror}; name another") from error
        if not os.access(folder, os.W_OK):
            raise StudyError(f"folder: {folder} cannot be written; name another")
        self.path = folder / CHECKPOINT
        self.past: Kept | None = None  # what an earlier life left, until it is put back
        self._also, self._before = also, before
        self._thread: threading.Thread | None = None
        self._next = time.monotonic() + FIRST
        self.failure = ""  # why the last one could not be written; "": it could
        self.saved_at: float | None = None  # when the last one was written in this life, by the wall clock

    def save_sometimes(self, make: Callable[[], Kept]) -> None:
        """Begin to save, if the last time is long enough ago and over."""
        if time.monotonic() >= self._next and (self._thread is None or not self._thread.is_alive()):
            self._next = math.inf
            self._thread = threading.Thread(target=self._save_and_plan, args=(make(),), name="checkpoints", daemon=True)
            self._thread.start()

    def soon(self) -> None:
        """Something has happened that a later life must know: save as soon as what is being written is."""
        self._next = min(self._next, time.monotonic())

    def save(self, kept: Kept) -> bool:
        """Save now; False where it cannot be written, which is logged: the checkpoint before is still there."""
        self.close()
        return self._write(kept)

    def _write(self, kept: Kept) -> bool:
        try:
            self._before()
            save_checkpoint(self.path, kept.tensors(), kept.facts())
        except (OSError, SafetensorError, StudyError) as error:
            self.failure = getattr(error, "strerror", None) or str(error)
            log.warning("%s could not be written: %s; the one before is kept, and it is tried again", self.path, error)
            return False
        self.saved_at, self.failure = wall_seconds(), ""
        return True

    def load(self) -> Kept | None:
        """Read what was saved; None where nothing was, or it is damaged: then it is moved away, and that is logged.

        `SpecError` where it is another user's, `OtherVersionError` where a later version has written it: nothing is
        wrong with it, and nobody shall begin anew without it.
        """
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb"):
                pass
        except OSError as error:
            raise SpecError(
                f"folder: {self.path} cannot be read: {error.strerror}; start the node as the user who wrote it, or "
                "give it to this one with chown"
            ) from error
        try:
            tensors, facts = load_checkpoint(self.path)
            facts = migrated(facts, self.path)
            slots = {name: tensor for name, tensor in tensors.items() if not name.startswith(STATE)}
            states = {name.removeprefix(STATE): t for name, t in tensors.items() if name.startswith(STATE)}
            memory, seconds = bytes.fromhex(facts.get("memory", "")), facts.get("milliseconds", 0) / 1e3
            counts = (int(facts["iterations"]), int(facts["bytes"]), int(facts["number"]))
            over, study = str(facts.get("over", "")), dict(facts.get("study", {}))
            others = {int(node): (int(done), int(sent)) for node, (done, sent) in facts.get("others", {}).items()}
            return Kept(slots, states, *counts, memory, seconds, over, study, others, facts["exchanged"])
        except OtherVersionError:
            raise
        except (StudyError, KeyError, TypeError, ValueError) as error:
            aside = self.path.with_suffix(".damaged")
            with suppress(OSError):
                self.path.replace(aside)
            log.warning("%s; it is %s now, and the node begins without", error, aside)
            return None

    def recall(self, facts: Mapping[str, Any], width: int) -> None:
        """Find what an earlier life left; a `StudyError` where it was of another study or width of models."""
        kept = self.load()
        if kept is None:
            return
        differ = differences_of_the_past(facts, kept.study)
        widths = {tensor.numel() for tensor in kept.slots.values()} - {width}
        if widths and not differ:
            differ = [f"width was {min(widths)} and is {width}"]
        if differ:
            why = "; ".join(differ)
            raise StudyError(f"{self.path} is of another study: {why}; name another folder, or begin anew with --fresh")
        self.past = kept

    def close(self) -> None:
        """Wait for the writing under way."""
        if self._thread is not None:
            self._thread.join()

    def _save_and_plan(self, kept: Kept) -> None:
        began = time.monotonic()
        try:
            if self._write(kept):
                self._also()
        finally:  # whatever happened: the next one may succeed
            took = time.monotonic() - began
            self._next = min(self._next, time.monotonic() + max(EVERY, took / SHARE))


class Memory:
    """Makes what one life of a node hands to the next from the node's parts, and puts it back into them."""

    def __init__(
        self,
        setup: NodeSetup,
        facts: Mapping[str, Any],
        checkpoints: Checkpoints,
        models: Models,
        runner: EffectRunner,
        state: NodeState,
        progress: Progress,
        reports: Reports,
    ) -> None:
        """
        - `setup`: the node's.
        - `facts`: what its study is.
        - `checkpoints`: where it is written.
        - `models`, `runner`, `state`, `progress`, `reports`: the node's.
        """
        self.facts, self.checkpoints = facts, checkpoints
        self.saved = 0  # checkpoints so far, over all lives
        self._setup, self._models, self._runner = setup, models, runner
        self._state, self._progress, self._reports = state, progress, reports

    def snapshot(self) -> Kept:
        """What a later life needs, as it is now."""
        tally, over, machine = self._progress.tally, self._progress.end.seen, self._runner.machine
        interpreter = self._models.interpreter
        self.saved += 1
        self._reports.trace("saved", number=self.saved)
        return Kept(
            dict(self._models.slots),
            {slot: tensor for (_, slot), tensor in interpreter.states.items()},
            tally.own.iterations,
            tally.own.sent,
            self.saved,
            machine.farewell() if self._state.leaving or over else machine.keepsake(),
            self._state.clock.run_time,
            repr(self._setup.stop) if over else "",
            self.facts,
            tally.others,
            self._reports.exchanged.kept(),
        )

    def save_sometimes(self) -> None:
        """Begin to write a checkpoint, where it is time."""
        self.checkpoints.save_sometimes(self.snapshot)

    def save(self) -> None:
        """Write a checkpoint now."""
        self.checkpoints.save(self.snapshot())

    def put_back(self, past: Kept) -> None:
        """Go on where an earlier life stopped."""
        self.checkpoints.past = None
        models, tally, machine = self._models, self._progress.tally, self._runner.machine
        models.interpreter.slots[models.me] = {**past.slots, INITIAL: self._setup.initial}
        models.interpreter.states = {(models.me, slot): state for slot, state in past.states.items()}
        self.saved = past.number
        tally.remember(past.iterations, past.sent)
        tally.remember_others(past.others, past.seconds)
        self._state.clock.behind = past.seconds
        lives = earlier_lives(self._setup.folder, self._reports.event_log.life)
        self._reports.exchanged.go_on(past.exchanged, lives, past.number)
        self._reports.trace("rejoined", number=past.number)
        effects = self._runner.handle(Rejoined(past.memory))
        if (memory := machine.keepsake()) != past.memory:
            self.checkpoints.save(replace(past, memory=memory))  # what was left in order is gone on with once
        self._runner.carry_out_all(effects)
