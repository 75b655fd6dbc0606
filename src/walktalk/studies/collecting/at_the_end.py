"""A node that was asked to collects when the run is over: it watches as an operator would, while it trains."""

from __future__ import annotations

import logging
import threading
from os import PathLike

from walktalk.studies.collecting.collect import Collected, check_out, collect
from walktalk.studies.peers import NodeJob, run_node

log = logging.getLogger(__name__)


def run_and_collect(job: NodeJob, out: str | PathLike[str]) -> Collected | None:
    """Run a node and, at the run's end, collect into a folder; None where the node left before.

    Args:
        job: The node.
        out: The folder; one with finished results in it is refused before anything is trained.
    """
    check_out(job.cluster, out)
    watch = Watch(job, out)
    watch.start()
    run_node(job, watch.ends)
    return watch.result()


class Watch(threading.Thread):
    """Collects beside the node, which stays until this has got what it has."""

    def __init__(self, job: NodeJob, out: str | PathLike[str]) -> None:
        super().__init__(name="collector", daemon=True)
        self._job, self._out = job, out
        self._ended: bool | None = None  # whether the run is over, once the node has ended
        self._found: Collected | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """In the thread."""
        try:
            self._found = collect(self._job.cluster, self._out, wait=True, say=self._say, over=self._over)
        except Exception as error:  # it is the main thread's to tell
            self._error = error

    def ends(self, over: bool) -> None:
        """The node ends: because the run is over, or before."""
        self._ended = over

    def result(self) -> Collected | None:
        """What was collected; waits for it."""
        if not self._ended:
            self._say("nothing, because this node left before the end of the run")
            return None
        self.join()
        if self._error is not None:
            raise self._error
        return self._found

    def _over(self) -> bool:
        return bool(self._ended)

    def _say(self, line: str) -> None:
        log.info("%s: collects: %s", self._job.name, line)
