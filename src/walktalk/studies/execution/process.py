"""What is set up around a study while it runs: who may stop it, how many threads, when garbage is collected."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType

import torch

from walktalk.learning import Trainer
from walktalk.runtimes.simulator import no_garbage_collection
from walktalk.studies.planning import RunRecord

STOPPING = "stopping as soon as everything is saved; Ctrl-C again stops at once and loses what came since the last save"
SMALL_MODEL = 200_000  # numbers in a model up to which one thread trains it best


class Interrupted(KeyboardInterrupt):
    """The person asked to stop, and everything is saved; what runs in this process left by then goes along."""

    def __init__(self, records: Sequence[RunRecord] = (), trainer: Trainer | None = None) -> None:
        super().__init__()
        self.records, self.trainer = list(records), trainer


@dataclass
class Ask:
    """A flag that Ctrl-C sets: somebody has asked to stop at the next safe point."""

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


# What is written to the disk while the device computes: by one thread, in the order in which it was given.
#
# Between two stretches a GPU has nothing to do, so nothing else should be done there that can be done beside one:
# traces of a stretch, and checkpoints, which are hundreds of models with a checksum. Nothing of it may touch the
# device.

WAITING = 2**32  # bytes that may wait to be written; then whoever brings more waits, too
TURN = 1e-3  # seconds that a thread computes while another waits for the interpreter; torch's calls let go of it


class BackgroundWriter:
    """Writes to the disk in a thread, in the order given; at once where no thread is wanted."""

    def __init__(self, beside: bool, most: int = WAITING) -> None:
        """`beside`: whether a thread does it; `most`: bytes that may wait."""
        self.pool = ThreadPoolExecutor(1) if beside else None
        self.most = most
        self.given: deque[tuple[Future[object], int]] = deque()

    def do(self, work: Callable[[], object], size: int = 0) -> None:
        """Do this after all that was given before; raises what went wrong with earlier work.

        Args:
            work: What is to be done.
            size: How many bytes it keeps in memory until then.
        """
        if self.pool is None:
            work()
            return
        self._let_go()
        while self.given and sum(held for _, held in self.given) + size > self.most:
            self._take_first()
        self.given.append((self.pool.submit(work), size))

    def wait(self) -> None:
        """Block until all that was given is written; raises what went wrong."""
        while self.given:
            self._take_first()

    def _let_go(self) -> None:
        while self.given and self.given[0][0].done():
            self._take_first()

    def _take_first(self) -> None:
        self.given.popleft()[0].result()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True)
        if kind is None:
            self.wait()


@contextmanager
def short_turns(wanted: bool = True) -> Iterator[None]:
    """Threads of Python take turns often: who hands work to a device waits less for one that plans or writes."""
    before = sys.getswitchinterval()
    if wanted:
        sys.setswitchinterval(min(before, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
