"""What is written to the disk while the device computes: by one thread, in the order in which it was given.

Between two stretches a GPU has nothing to do, so nothing else should be done there that can be done beside one: traces
of a stretch, and checkpoints, which are hundreds of models with a checksum. Nothing of it may touch the device.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType

WAITING = 2**32  # bytes that may wait to be written; then whoever brings more waits, too
TURN = 1e-3  # seconds that a thread computes while another waits for the interpreter; torch's calls let go of it


class Aside:
    """A queue of work for the disk; done at once where nothing is done beside it."""

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
        """Until all is done; raises what went wrong."""
        while self.given:
            self._take_first()

    def _let_go(self) -> None:
        while self.given and self.given[0][0].done():
            self._take_first()

    def _take_first(self) -> None:
        self.given.popleft()[0].result()

    def __enter__(self) -> Aside:
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
