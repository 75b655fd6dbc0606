"""What is set up around a study while it runs: who may stop it, how many threads, when garbage is collected."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch

from walktalk.learning import Trainer
from walktalk.runtimes.simulator import no_garbage_collection
from walktalk.studies.building import RunRecord

STOPPING = "stopping as soon as everything is saved; Ctrl-C again stops at once and loses what came since the last save"
SMALL_MODEL = 200_000  # numbers in a model up to which one thread trains it best


class Interrupted(KeyboardInterrupt):
    """The person asked to stop, and everything is saved; what runs in this process left by then goes along."""

    def __init__(self, records: Sequence[RunRecord] = (), trainer: Trainer | None = None) -> None:
        super().__init__()
        self.records, self.trainer = list(records), trainer


@dataclass
class Ask:
    """Whether somebody has asked to stop."""

    stop: bool = False


@contextmanager
def asking_to_stop(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[Ask]:
    """The first Ctrl-C or SIGTERM asks to stop at the next safe point; the second stops at once."""
    ask = Ask()
    if threading.current_thread() is not threading.main_thread():
        yield ask  # only the main thread may set signal handlers
        return

    def request(number: int, frame: FrameType | None) -> None:
        if ask.stop:
            raise KeyboardInterrupt
        ask.stop = True
        if number == signal.SIGINT:  # a long evaluation may have to end first, and nobody likes a key that does nothing
            sys.stderr.write(f"\n{STOPPING}\n")

    before = {number: signal.signal(number, request) for number in signals}
    try:
        yield ask
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def fitting_threads(trainer: Trainer) -> Iterator[None]:
    """One thread for small models: a second one gains little, and costs much where it must share its core."""
    before = torch.get_num_threads()
    if trainer.device.type == "cpu" and trainer.width < SMALL_MODEL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def garbage_between_stretches() -> Iterator[None]:
    """The garbage collector is called after each stretch, and leaves alone what was there before.

    Torch and its like are a million objects that never go, the plan of a stretch is as many that go by themselves when
    it ends: looking through them all again and again takes as long as planning.
    """
    mine = gc.get_freeze_count() == 0
    with no_garbage_collection():
        if mine:
            gc.freeze()
        try:
            yield
        finally:
            if mine:
                gc.unfreeze()
