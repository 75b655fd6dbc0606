"""A study on several local processes: its runs are independent, so each process takes a share of them.

On a machine with several GPUs each has a process; on a CPU there is one a core.
Small models leave a second thread nothing to do, a second process half of the work. Every run writes the same bytes
wherever it is done. A process that dies is started again from its runs' checkpoints. Each has a line of its own to this
one: a queue for all would be locked for ever by one that dies while it writes.

Where that is safe a process is a fork of this one, with everything that was prepared: starting afresh and importing
torch takes longer than a tenth of the quickstart.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from walktalk.core.errors import StudyError, UserError, WalktalkError
from walktalk.learning import is_out_of_memory
from walktalk.records import StudyFolder, remove_unfinished
from walktalk.studies.execution.groups import folders_of, free_memory, run_in_groups, together
from walktalk.studies.execution.process import Interrupted, asking_to_stop
from walktalk.studies.execution.runner import estimated_trainings
from walktalk.studies.planning import PlannedRun, Progress, RunRecord

STARTS_AT_MOST = 3  # of one share: a process that dies more often has a reason
STEPS_THAT_PAY = 50_000  # model-steps of a study below which starting a second process costs more than it saves
SECONDS_BETWEEN_LOOKS = 0.2
PR_SET_PDEATHSIG = 1  # of prctl(2)
TRAININGS_A_WAVE = 3.0  # what a wave costs besides its trainings, measured on the quickstart

Prepare = Callable[[str], tuple[Any, list[PlannedRun]]]  # device -> (trainer, runs) of the whole study, in any process


@dataclass(frozen=True)
class Share:
    """The runs that one process does, and on which device."""

    number: int
    runs: tuple[int, ...]  # which runs of the study
    device: str = "cpu"  # where its models are trained


def shares(runs: list[PlannedRun], workers: int, one_by_one: bool = False) -> list[Share]:
    """Runs dealt out so that the most loaded process has as little to do as possible, runs of like kind together.

    A process has a wave for every training of its longest chain, however narrow, and a wave costs as much as some
    trainings. So the runs with long chains (few walks) belong together, and the wide ones (gossip) elsewhere. Of
    models that are trained `one_by_one` a wave costs nothing but its trainings, and all runs are alike.
    """
    each_wave = 0.0 if one_by_one else TRAININGS_A_WAVE
    active = [run.setup.protocol.active_models(run.setup.graph.nodes) for run in runs]
    trainings = [max(1, estimated_trainings([run])) for run in runs]
    chain = [count / models for count, models in zip(trainings, active, strict=True)]
    order = sorted(range(len(runs)), key=lambda k: (-chain[k], k))

    before = [0, *accumulate(trainings[k] for k in order)]

    def load(first: int, end: int) -> float:
        return before[end] - before[first] + each_wave * chain[order[first]] if first < end else 0.0

    cuts = [0, *_cuts(load, len(order), min(workers, len(order))), len(order)]
    dealt = [tuple(sorted(order[a:b])) for a, b in pairwise(cuts)]
    return [Share(number, mine) for number, mine in enumerate(part for part in dealt if part)]


def _cuts(load: Callable[[int, int], float], count: int, parts: int) -> list[int]:
    """Where to cut a row of so many things into parts, so that the largest load is the least possible.

    Cut by cut: the least load that the rest can be dealt out with, found by halving, and the first part as small as
    that allows. A part's load grows with its end and falls with its beginning, so filling parts from the right is best.
    """

    def filled(first: int, left: int, most: float) -> int:
        """Where the last `left` parts begin at the earliest, if none has more than that."""
        end = count
        for _ in range(left):
            fits = partial(lambda end, begin: load(begin, end) <= most, end)
            end = first + bisect_left(range(first, end), True, key=fits)
            if end == first:
                break
        return end

    cuts: list[int] = []
    first = 0
    for left in range(parts, 1, -1):
        low, high = 0.0, load(first, count)
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if filled(first, left, middle) == first else (middle, high)
        first = max(filled(first, left - 1, high), first + 1)
        cuts.append(min(first, count))
        if first >= count:
            break
    return cuts


def workers_that_pay(runs: list[PlannedRun], model_steps: int, devices: Sequence[str]) -> int:
    """How many processes to use when nobody said: one a core, or one a GPU."""
    if model_steps < STEPS_THAT_PAY:
        return 1
    most = (os.cpu_count() or 1) if list(devices) == ["cpu"] else len(devices)
    return max(1, min(most, len(runs)))


def devices_of(device: str) -> list[str]:
    """All GPUs of this machine where "cuda" was asked for, without a number; else the one device that was."""
    count = torch.cuda.device_count() if device == "cuda" else 0
    return [f"cuda:{number}" for number in range(count)] if count > 1 else [device]


def dealt(work: Sequence[Share], devices: Sequence[str]) -> list[Share]:
    """The shares, each with a device: by turns, so that no GPU has two before each has one."""
    return [replace(share, device=devices[share.number % len(devices)]) for share in work]


class Crew:
    """The processes of a study, watched until all shares are done."""

    def __init__(
        self,
        prepare: Prepare,
        work: list[Share],
        folder: StudyFolder,
        report: Callable[[Progress], None] | None,
        memory: float | None = None,
        prepared: tuple[Any, list[PlannedRun]] | None = None,
    ) -> None:
        self.prepare, self.work, self.folder, self.report = prepare, work, folder, report
        self.prepared = prepared  # what `prepare` would give: a fork need not do it again
        self.memory = {share.number: self.memory_of(share, memory) for share in work}
        self.lines: dict[int, Connection] = {}  # by share: on which its process is heard, until it ends
        self.processes: dict[int, BaseProcess] = {}
        self.starts: dict[int, int] = {}
        runs = prepared[1] if prepared is not None else []
        self.progress = {  # all shares from the start: the first report is of the whole study, too
            share.number: Progress(0, estimated_trainings([runs[k] for k in share.runs]), 0, 0.0, 0.0, {}, "waiting")
            for share in (work if runs else [])
        }
        self.records: dict[int, RunRecord] = {}
        self.waiting = {share.number for share in work}

    def memory_of(self, share: Share, memory: float | None) -> float:
        """What a process may use: its part of what was given for all, or of what its device has left."""
        if memory is not None:
            return memory / len(self.work)
        beside = sum(other.device == share.device for other in self.work)
        return free_memory(torch.device(share.device)) / beside

    def run(self, resume: bool) -> list[RunRecord]:
        """Do all shares; raises `Interrupted`, with everything saved, if asked to stop."""
        with asking_to_stop() as ask:
            try:
                for share in self.work:
                    self.start(share, resume)
                told = False
                while self.waiting:
                    self.listen()
                    if ask.stop and not told:
                        told = True
                        self.tell_to_stop()
                    self.look_after(ask.stop)
            finally:
                self.end()
        if ask.stop and len(self.records) < sum(len(share.runs) for share in self.work):
            raise Interrupted
        return [self.records[index] for index in sorted(self.records)]

    def start(self, share: Share, resume: bool) -> None:
        self.starts[share.number] = self.starts.get(share.number, 0) + 1
        forked = self.prepared is not None and fork_is_safe()
        prepare = (lambda device: self.prepared) if forked else self.prepare
        memory = self.memory[share.number]
        context: Any = multiprocessing.get_context("fork" if forked else "spawn")
        hears, says = context.Pipe(duplex=False)
        arguments = (prepare, share, self.folder.path, resume, memory, says, os.getpid())
        process = context.Process(target=do_share, args=arguments, daemon=True)
        with held_back(signal.SIGTERM) if forked else nullcontext():
            process.start()
        says.close()  # so that the line ends with the process
        self.hang_up(share.number)
        self.processes[share.number], self.lines[share.number] = process, hears

    def listen(self) -> None:
        """Read the reports and results that worker processes have sent."""
        if not self.lines:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        ready = wait(self.lines.values(), SECONDS_BETWEEN_LOOKS) if self.lines else []
        for number in [number for number, line in self.lines.items() if line in ready]:
            try:
                kind, content = self.lines[number].recv()
            except (EOFError, OSError):  # it has ended, maybe in the middle of a word
                self.hang_up(number)
            else:
                self.receive(number, kind, content)

    def hang_up(self, number: int) -> None:
        """Close the line of a process that has nothing more to say."""
        if (line := self.lines.pop(number, None)) is not None:
            line.close()

    def receive(self, number: int, kind: str, content: Any) -> None:
        """Take in one message of a process: progress, a record, or how it ended."""
        if kind == "progress":
            self.progress[number] = content
            if self.report is not None:
                self.report(
                    replace(
                        together(list(self.progress.values())),
                        phase=content.phase,
                        rows=content.rows,
                        words=content.words,
                    )
                )
        elif kind == "record":
            index, record, output = content
            self.records[index] = replace(record, output=torch.from_numpy(output))
        elif kind == "done":
            self.waiting.discard(number)
        elif kind == "bug":
            raise WalktalkError(f"a worker process failed; what it says:\n{content}")
        else:
            raise content

    def look_after(self, stopping: bool) -> None:
        """Start again what was killed; let go what stopped because it was asked to.

        Who ends with an error would do so again: a mistake in a program is not tried a second time.
        """
        for share in self.work:
            process = self.processes[share.number]
            line = self.lines.get(share.number)
            if share.number not in self.waiting or process.is_alive() or (line is not None and line.poll()):
                continue
            if stopping:
                self.waiting.discard(share.number)
            elif (process.exitcode or 0) > 0:
                raise WalktalkError(
                    f"a worker process ended with exit code {process.exitcode}; what it said is printed above"
                )
            elif self.starts[share.number] >= STARTS_AT_MOST:
                raise StudyError(
                    f"a worker process was ended {STARTS_AT_MOST} times (signal {-(process.exitcode or 0)}); "
                    "the machine may be out of memory: try fewer --workers, and --resume to keep what is done"
                )
            else:
                self.tidy_up(share)
                self.start(share, resume=True)

    def tidy_up(self, share: Share) -> None:
        """Remove what a dead process left half-written."""
        for run in (self.prepared[1][index] for index in share.runs) if self.prepared is not None else ():
            remove_unfinished(self.folder.run(run.label, run.repetition).path)

    def tell_to_stop(self) -> None:
        for process in self.processes.values():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)

    def end(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.join(timeout=0.5)
            if process.is_alive():
                process.kill()
        for number in tuple(self.lines):
            self.hang_up(number)


def fork_is_safe() -> bool:
    """Whether a fork of this process can train.

    It has the locks of all threads but none of the threads, so there must be no other thread that may hold one; torch's
    own idle ones do no harm to a process that uses a single thread. A GPU's driver cannot be forked at all, and with it
    around torch refuses to compute gradients in a fork.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not torch.cuda.is_available()


@contextmanager
def held_back(number: signal.Signals) -> Iterator[None]:
    """The signal waits. A fork has this process's handlers: one that came before it set its own would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_the_parent(parent: int) -> None:
    """Linux ends this process when the one that waits for it is gone: a fork also holds the lock of the folder."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def do_share(
    prepare: Prepare, share: Share, folder: Path, resume: bool, memory: float, line: Connection, parent: int
) -> None:
    """What a worker process does, from start to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes; the parent passes it on as SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    die_with_the_parent(parent)
    torch.set_num_threads(1)

    def report(progress: Progress) -> None:
        if os.getppid() != parent:
            os._exit(1)  # nobody is waiting for this any more, and somebody may have started the study again
        line.send(("progress", progress))

    try:
        trainer, runs = prepare(share.device)
        chosen = [runs[k] for k in share.runs]
        records = run_in_groups(
            trainer,
            chosen,
            folders_of(StudyFolder(folder), chosen),
            resume=resume,
            memory=memory,
            report=report,
            handle_ctrl_c=False,
        )
        for index, record in zip(share.runs, records, strict=True):
            assert record.output is not None
            # As an array: a tensor would be shared memory, which goes away with this process.
            content = (index, replace(record, trace=[], output=None), record.output.numpy())
            line.send(("record", content))
        line.send(("done", None))
    except Interrupted:
        pass
    except UserError as error:
        line.send(("error", error))
    except Exception as error:
        if is_out_of_memory(error):
            words = "a worker process has no memory left; take fewer --workers, and --resume to keep what is done"
            line.send(("error", StudyError(words)))
        else:  # as text: not every exception can be sent, and one that cannot be would be lost
            line.send(("bug", traceback.format_exc()))
    line.close()
