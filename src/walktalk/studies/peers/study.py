"""A study on real peers, all on this machine: the same specification, nodes as processes, and the same kind of folder.

Every node builds everything from the specification by itself and keeps only its own part of the data (`node_job`). The
history is computed afterwards, from the merged trace, by the executor of the simulator: measuring disturbs nobody, and
every run checks the engine. How far a run is, is read from what its nodes write down: none is asked or slowed down.

An interrupted run goes on from the model that it had put out. What nodes held when they were stopped is of different
moments, and walks may have been under way; the output is one model, and the trace says exactly which. So a resumed run
starts its protocol anew from there, with the iterations, bits and seconds of before: Multi-Walk has lost what walks had
learned since their last visit to the aggregator, gossip nothing but the differences between its nodes. A line in the
trace says so, and the arithmetic can be done again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from walktalk.core.errors import StudyError, UnavailableError
from walktalk.records import RunFolder, TraceRow, TraceWriter, check_folder, opened_folder, save_checkpoint
from walktalk.runtimes.peers import (
    Cluster,
    EventLog,
    Fleet,
    ReplaySetup,
    free_ports,
    make_cluster,
    merge,
    open_part,
    parts_in,
    read_event_log,
    replay,
)
from walktalk.runtimes.stacked import Measurement, is_better
from walktalk.studies.execution import estimated_trainings
from walktalk.studies.peers.node_job import NodeJob, check_ends, read_beginning, run_node
from walktalk.studies.planning import (
    Best,
    PlannedRun,
    Preparation,
    Progress,
    RunRecord,
    build_evaluate,
    check_travels,
    pick_device,
    prepare,
)
from walktalk.studies.results import StudyResult, history_row, study_result, trace_columns, write_run
from walktalk.studies.spec import StudySpec, dump_spec, spec_mapping

LOOK_EVERY = 0.5  # seconds


class Watch:
    """Reads how far one run is from what its nodes write down; what an interrupted run left counts too."""

    def __init__(self, folder: Path, seconds_before: float = 0.0) -> None:
        self.iterations, self.bytes = 0, 0
        self._folder, self._before = folder, seconds_before
        self._read: dict[Path, int] = {}  # how much of each event log is read
        self._finished: set[Path] = set()  # parts of event logs that are full and read
        self._began: float | None = None  # when the first node began
        self.look()
        self._began = None

    @property
    def seconds(self) -> float:
        """Seconds that the run has lasted."""
        return self._before + (time.time() - self._began if self._began is not None else 0.0)

    def look(self) -> None:
        """Read what nodes have written since the last look."""
        for node in self._folder.glob("*/"):
            for path in (path for parts in parts_in(node).values() for path in parts):
                if path not in self._finished:
                    self._look_into(path)

    def _look_into(self, path: Path) -> None:
        compressed, plain = path.suffix == ".gz", path.with_name(path.name.removesuffix(".gz"))
        try:
            with open_part(path) as file:
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
    """Reports progress over all runs of a study."""

    def __init__(self, tell: Callable[[Progress], None] | None, runs: Sequence[PlannedRun]) -> None:
        self._tell, self._runs = tell, runs
        self._estimates = [estimated_trainings([run]) for run in runs]
        self._next_look = 0.0
        self._complete = False
        self._told = 0  # runs whose evaluations were reported

    def now_and_then(self, index: int, watch: Watch, records: Sequence[RunRecord]) -> None:
        """Report that the run of this number goes on, if the last report is long enough ago."""
        if self._tell is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_EVERY
        watch.look()
        self.report(index, records, watch)

    def report(self, index: int, records: Sequence[RunRecord], watch: Watch | None = None) -> None:
        """Report how many runs are done, and what the watch says of the next one."""
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


LAUNCHER = "launcher"  # the folder of its event log, beside those of the nodes
BEGINNING = "beginning.safetensors"


def whole_trace(here: RunFolder, nodes: int) -> list[TraceRow]:
    """All that nodes wrote down in a run, and what the launcher did."""
    names = [*(f"node-{number}" for number in range(nodes)), LAUNCHER]
    return merge(read_event_log(here.nodes / name) for name in names)


def write_beginning(ready: Preparation, run: PlannedRun, here: RunFolder) -> Path | None:
    """Sum up an interrupted run for its nodes; None where it had not begun."""
    nodes, folder = run.setup.graph.nodes, here.nodes
    trace = whole_trace(here, nodes)
    if not any(row.event == "trained" for row in trace):
        return None
    setup = ReplaySetup.of(run.setup, run.initial.cpu(), build_evaluate(ready.spec))
    facts = {
        "seconds": trace[-1].time,
        "iterations": [sum(row.node == node and row.event == "trained" for row in trace) for node in range(nodes)],
        "bytes": [sum(row.bytes for row in trace if row.node == node and row.event == "send") for node in range(nodes)],
    }
    replayed = replay(trace, setup, ready.trainer)
    states = replayed.measurements[-1].states if replayed.measurements else None
    beside = {} if states is None else {"states": states.cpu()}
    save_checkpoint(folder / BEGINNING, {"model": replayed.output, **beside}, facts)
    event_log = EventLog(folder / LAUNCHER, time.time_ns())
    event_log.write(TraceRow(time.time(), -1, "resumed"))
    event_log.close()
    return folder / BEGINNING


log = logging.getLogger(__name__)


def run_on_peers(
    spec: StudySpec,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
    pace: float = 0.0,
    progress: Callable[[Progress], None] | None = None,
) -> StudyResult:
    """Run a study, one run after the other, each with one process a node on this machine.

    Args:
        spec: What is to be run.
        out: The folder for its records.
        resume: Go on where an interrupted run of this study stopped in that folder.
        overwrite: Replace what is in that folder, when the new results are whole; without it they are refused.
        device: auto, cpu or cuda: of the arithmetic afterwards; nodes train on the CPU.
        pace: Seconds that a training takes at least, so that more nodes than processors take turns.
        progress: Called now and then with how far things are.
    """
    if spec.faults or spec.availability is not None:
        raise UnavailableError(
            "faults and availability: are for the simulator; on real peers, `walktalk chaos` makes them happen"
        )
    check_ends(spec)
    check_travels(spec, "the nodes' processes")
    taking = {"resume": resume, "overwrite": overwrite}
    check_folder(out, dump_spec(spec), **taking, engine="peers")  # before any data is read
    ready = prepare(spec, pick_device(device))
    for run in ready.runs:
        if "peers" not in run.setup.protocol.runtimes:
            raise UnavailableError(f"{run.label} runs in the simulator only; leave it out or use --engine sim")
        run.setup.protocol.check_graph(run.setup.graph)  # nodes alone see their neighbours only, and would wait forever
    with opened_folder(out, dump_spec(spec), **taking, engine="peers") as folder:
        records: list[RunRecord] = []
        reporter = Reporter(progress, ready.runs)
        for index, run in enumerate(ready.runs):
            here = folder.run(run.label, run.repetition)
            reporter.report(index, records)
            if not here.model.exists():  # else it was finished before, and its records are made again from its trace
                tell = partial(reporter.now_and_then, index, records=records)
                _run_fleet(ready, run, here, pace, tell)
            records.append(_record(ready, run, here))
        reporter.report(len(records), records)
        result = study_result(spec, records, folder, engine="peers", trainer=ready.trainer)
    for word in result.summary.get("notes", ()):
        log.warning("%s", word)
    return result


def best_of(measurements: Sequence[Measurement]) -> Best | None:
    """The best of the models that were measured; None where no measure of any is finite."""
    found: Best | None = None
    for one in measurements:
        new = one.best
        if new is not None and (found is None or is_better(new.measure, new.value, found.value)):
            found = Best(new.model.cpu().numpy().copy(), one.op.iteration, new.measure, new.value, new.is_mean)
    return found


def local_cluster(spec: StudySpec, run: PlannedRun, folder: Path, pace: float = 0.0) -> Cluster:
    """All nodes of a run on this machine, on free ports."""
    ports = free_ports(run.setup.graph.nodes)
    called = run.setup.graph.names or range(len(ports))
    nodes = {
        f"node-{number}": {"address": f"127.0.0.1:{port}", "part": part}
        for number, (port, part) in enumerate(zip(ports, called, strict=True))
    }
    study = spec_mapping(spec)
    return make_cluster(
        {
            "name": "local",
            "study": study,
            "algorithm": run.label,
            "repetition": run.repetition,
            "folder": str(folder),
            "pace": pace,
            "nodes": nodes,
        }
    )


def _run_fleet(
    ready: Preparation, run: PlannedRun, here: RunFolder, pace: float, tell: Callable[[Watch], None]
) -> None:
    cluster = local_cluster(ready.spec, run, here.nodes, pace)
    names, beginning = list(cluster.nodes), write_beginning(ready, run, here)
    watch = Watch(cluster.folder, read_beginning(beginning).seconds if beginning is not None else 0.0)
    fleet = Fleet(run_node, [NodeJob(cluster, name, beginning=beginning) for name in names], names)
    fleet.wait(lambda: tell(watch))
    if fleet.failed():
        raise StudyError(f"{run.label}: {', '.join(fleet.failed())} ended with an error; what it was is printed above")


def _record(ready: Preparation, run: PlannedRun, here: RunFolder) -> RunRecord:
    """The run's trace, history and model, from what its nodes wrote down."""
    setup = run.setup
    trace = whole_trace(here, setup.graph.nodes)
    if not trace:
        raise StudyError(f"{here.nodes}: what the nodes wrote down is gone, so the run's records cannot be made again")
    lost = next((row.time for row in trace if row.event == "all_lost"), None)
    if lost is not None:
        log.warning(
            "%s: all walks were lost by %.0f s and nobody starts them again; the run ended there (guard: "
            "aggregator would)",
            run.label,
            lost,
        )
    with TraceWriter(here.trace) as writer:
        writer.write(trace_columns(trace))
    again = ReplaySetup.of(setup, run.initial.cpu(), build_evaluate(ready.spec))
    replayed = replay(trace, again, ready.trainer)
    history = [history_row(run.label, run.repetition, m) for m in replayed.measurements]
    trained = sum(row.event == "trained" for row in trace)
    record = RunRecord(run.label, run.repetition, history, [], replayed.output, trained)
    last = replayed.measurements[-1].states if replayed.measurements else None
    record.states = None if last is None else last.cpu().numpy()
    record.best = best_of(replayed.measurements)
    write_run(here, record, ready.trainer)
    return record
