"""A node's process in a storm: where it lives, what its clock says, whether it lies, and where its log goes."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from walktalk.runtimes.peers import Node
from walktalk.studies.peers import NodeJob, run_node
from walktalk.testing import SwitchedFaults
from walktalk.testing.chaos.byzantine import LIES, Liar
from walktalk.testing.chaos.cables import enter

LOG = "node.log"
CLOCK = "clock"
"""A file in a node's folder: how many seconds its clock is ahead."""

LOOK_EVERY = 0.2  # seconds: how soon a jump is noticed


@dataclass(frozen=True)
class StruckJob:
    """A node, and the network namespace that it lives in; "": that of everybody."""

    job: NodeJob
    namespace: str = ""


def run_struck(struck: StruckJob) -> None:
    """`run_node`, with everything that a storm does to it."""
    if struck.namespace:
        enter(struck.namespace)
    folder = struck.job.cluster.folder / struck.job.name
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / LOG)
    shift_clock(folder / CLOCK)

    def meet(node: Node) -> None:
        SwitchedFaults(node)
        Liar(node, folder / LIES).start()

    run_node(struck.job, meets=meet)


def _log_to(path: Path) -> None:
    """Twenty nodes on one terminal are of no use: what is printed or logged goes to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    logging.getLogger("walktalk").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where the disk is full, a line is lost, and that is all


def shift_clock(path: Path) -> None:
    """Shifts the clock: from now on the time of day in this process is ahead by what the file says, 0 where there
    is none.

    That is the clock of Python's `time`, the only one of its machine that a node ever asks; Zenoh's own threads, and
    checks of certificates, see the true one.
    """
    true, true_ns, monotonic = time.time, time.time_ns, time.monotonic
    known = [0.0, -1.0]  # seconds ahead, and when the file was read

    def ahead() -> float:
        if monotonic() > known[1] + LOOK_EVERY:
            try:
                known[0] = float(path.read_text())
            except (OSError, ValueError):
                known[0] = 0.0
            known[1] = monotonic()
        return known[0]

    time.time = lambda: true() + ahead()
    time.time_ns = lambda: true_ns() + int(1e9 * ahead())
