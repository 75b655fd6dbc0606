"""How far a run on real peers is, read from what its nodes write down: nobody in the run is asked or slowed down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from walktalk.runtimes.peers import opened_part, parts_in
from walktalk.studies.building import PlannedRun, Progress, RunRecord
from walktalk.studies.driving import estimated_trainings

LOOK_EVERY = 0.5  # seconds


class Watch:
    """Iterations, bytes and seconds of one run, so far; what an interrupted run left in the folder counts too."""

    def __init__(self, folder: Path, seconds_before: float = 0.0) -> None:
        self.iterations, self.bytes = 0, 0
        self._folder, self._before = folder, seconds_before
        self._read: dict[Path, int] = {}  # how much of each diary is read
        self._finished: set[Path] = set()  # parts of diaries that are full and read
        self._began: float | None = None  # when the first node began
        self.look()
        self._began = None

    @property
    def seconds(self) -> float:
        """Of the run."""
        return self._before + (time.time() - self._began if self._began is not None else 0.0)

    def look(self) -> None:
        """Read what is new."""
        for node in self._folder.glob("*/"):
            for path in (path for parts in parts_in(node).values() for path in parts):
                if path not in self._finished:
                    self._look_into(path)

    def _look_into(self, path: Path) -> None:
        compressed, plain = path.suffix == ".gz", path.with_name(path.name.removesuffix(".gz"))
        try:
            with opened_part(path) as file:
                file.seek(self._read.get(plain, 0))
                new = file.read()
        except FileNotFoundError:
            return  # it has just been compressed: the next time
        whole = new[: new.rfind(b"\n") + 1]  # the last line may be on its way
        self._read[plain] = self._read.get(plain, 0) + len(whole)
        if compressed:
            self._finished.add(path)
        for line in whole.splitlines():
            self._count(line)

    def _count(self, line: bytes) -> None:
        if b'"trained"' in line:
            self.iterations += 1
        elif b'"send"' in line:
            self.bytes += int(json.loads(line)[8])
        elif b'"started"' in line and self._began is None:
            self._began = float(json.loads(line)[0])


class Reporter:
    """Tells whoever wants to know, over all runs of a study."""

    def __init__(self, tell: Callable[[Progress], None] | None, runs: Sequence[PlannedRun]) -> None:
        self._tell, self._runs = tell, runs
        self._estimates = [estimated_trainings([run]) for run in runs]
        self._next_look = 0.0
        self._complete = False
        self._told = 0  # runs whose evaluations were reported

    def now_and_then(self, index: int, watch: Watch, records: Sequence[RunRecord]) -> None:
        """The run of this number goes on."""
        if self._tell is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_EVERY
        watch.look()
        self.report(index, records, watch)

    def report(self, index: int, records: Sequence[RunRecord], watch: Watch | None = None) -> None:
        """So many runs are done, and of the next one, if it goes on, what the watch says."""
        if self._tell is None or self._complete:
            return
        losses = {record.label: record.history[-1].train_loss for record in records if record.history}
        done, (iterations, seconds, bits) = sum(self._estimates[:index]), (0, 0.0, 0.0)
        if watch is not None:
            iterations, seconds, bits = watch.iterations, watch.seconds, 8.0 * watch.bytes
            share = self._runs[index].setup.stop.progress(iterations, seconds, bits)
            done += round(share * self._estimates[index])
        self._complete = done >= sum(self._estimates)  # said once
        phase = f"{self._runs[min(index, len(self._runs) - 1)].label} on real peers"
        rows = tuple(row for record in records[self._told :] for row in record.history)
        self._told = len(records)
        self._tell(Progress(done, sum(self._estimates), iterations, seconds, bits, losses, phase, rows))
