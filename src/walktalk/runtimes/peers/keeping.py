"""A node's own checkpoint: its slots and its counts, written in a thread, so that the loop never waits for the disk."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from walktalk.errors import SpecError, StudyError
from walktalk.records import load_checkpoint, save_checkpoint
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.peers.acquaintance import differences_of_the_past

log = logging.getLogger(__name__)

EVERY = 10.0  # seconds
FIRST = 1.0  # second until the first: who dies soon after its start must know that it was there
STATE = "optimizer of "  # before the slot's name, in a checkpoint
SHARE = 0.05  # of the time may go into writing


@dataclass(frozen=True)
class Kept:
    """What a node needs to come back."""

    slots: dict[str, Tensor]
    states: dict[str, Tensor]  # of optimizers, by slot
    iterations: int
    sent: int  # bytes
    number: int  # counts a node's checkpoints over all its lives
    memory: bytes = b""  # the machine's keepsake
    seconds: float = 0.0  # that the run had lasted
    over: str = ""  # what the run was to end by, where this node has seen its end
    study: Mapping[str, Any] = field(default_factory=dict)  # what it was about (`acquaintance`)
    others: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # by node: iterations and bytes, as was heard

    def tensors(self) -> dict[str, Tensor]:
        """All in one."""
        return {**self.slots, **{f"{STATE}{name}": state for name, state in self.states.items()}}

    def facts(self) -> dict[str, Any]:
        """The rest."""
        counts = {"iterations": self.iterations, "bytes": self.sent, "number": self.number}
        others = {str(node): list(counts) for node, counts in self.others.items()}
        said = {"over": self.over, "memory": self.memory.hex(), "study": dict(self.study), "others": others}
        return {**counts, "milliseconds": int(1e3 * self.seconds), **said}


def finished_before(folder: Path, stop: Stop) -> bool:
    """Whether a node has seen the end of its run in an earlier life; one that is to go on further is not over."""
    kept = Keeper(folder).load()
    return kept is not None and kept.over == repr(stop)


def own_past(keeper: Keeper, facts: Mapping[str, Any], width: int) -> Kept | None:
    """What an earlier life left; a `StudyError` where it was of another study than these facts, or models' width."""
    kept = keeper.load()
    if kept is None:
        return None
    differ = differences_of_the_past(facts, kept.study)
    widths = {tensor.numel() for tensor in kept.slots.values()} - {width}
    if widths and not differ:
        differ = [f"width was {min(widths)} and is {width}"]
    if differ:
        why = "; ".join(differ)
        raise StudyError(f"{keeper.path} is of another study: {why}; name another folder, or begin anew with --fresh")
    return kept


class Keeper:
    """Writes checkpoints now and then."""

    def __init__(self, folder: Path, also: Callable[[], None] = lambda: None) -> None:
        """`also`: what else is written now and then, at the same times."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"folder: {folder} cannot be made: {error.strerror}; name another") from error
        if not os.access(folder, os.W_OK):
            raise StudyError(f"folder: {folder} cannot be written; name another")
        self.path = folder / "checkpoint.safetensors"
        self._also = also
        self._thread: threading.Thread | None = None
        self._next = time.monotonic() + FIRST
        self.failure = ""  # why the last one could not be written; "": it could
        self.saved_at: float | None = None  # when the last one was written in this life, by the wall clock

    def save_sometimes(self, make: Callable[[], Kept]) -> None:
        """Begin to save, if the last time is long enough ago and over."""
        if time.monotonic() >= self._next and (self._thread is None or not self._thread.is_alive()):
            self._next = math.inf
            self._thread = threading.Thread(target=self._save_and_plan, args=(make(),), name="keeper", daemon=True)
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
            save_checkpoint(self.path, kept.tensors(), kept.facts())
        except (OSError, SafetensorError, StudyError) as error:
            self.failure = getattr(error, "strerror", None) or str(error)
            log.warning("%s could not be written: %s; the one before is kept, and it is tried again", self.path, error)
            return False
        self.saved_at, self.failure = time.time(), ""
        return True

    def load(self) -> Kept | None:
        """What was saved; None where nothing was, or it is damaged: then it is put aside, and that is logged.

        `SpecError` where it is another user's: nothing is wrong with it, and nobody shall begin anew without it.
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
            slots = {name: tensor for name, tensor in tensors.items() if not name.startswith(STATE)}
            states = {name.removeprefix(STATE): t for name, t in tensors.items() if name.startswith(STATE)}
            memory, seconds = bytes.fromhex(facts.get("memory", "")), facts.get("milliseconds", 0) / 1e3
            counts = (int(facts["iterations"]), int(facts["bytes"]), int(facts["number"]))
            over, study = str(facts.get("over", "")), dict(facts.get("study", {}))
            others = {int(node): (int(done), int(sent)) for node, (done, sent) in facts.get("others", {}).items()}
            return Kept(slots, states, *counts, memory, seconds, over, study, others)
        except (StudyError, KeyError, TypeError, ValueError) as error:
            aside = self.path.with_suffix(".damaged")
            with suppress(OSError):
                self.path.replace(aside)
            log.warning("%s; it is %s now, and the node begins without", error, aside)
            return None

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
